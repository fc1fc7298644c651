"""A released sum and the mean that is the same release."""

import csv
import io
import json
import math

import numpy as np
import pyarrow.csv
import pytest

from shuffledp.errors import OutputError, ParameterError
from shuffledp.estimate import SumEstimate
from shuffledp.protocols.terms import Terms

GUARANTEE = Terms(200, 1.0, 0.0).local_guarantee(1.0, theorem="exact ratio")


def estimate(value=-500.0, *, secure=True, **more) -> SumEstimate:
    return SumEstimate(
        protocol="duchi",
        estimator="unbiased",
        users=200,
        guarantee=GUARANTEE,
        intervals=lambda confidence: np.array([[value - 100 * confidence, value + 300 * confidence]]),
        secure=secure,
        value=value,
        standard_error=40.0,
        **more,
    )


def test_the_mean_is_everything_divided_by_the_users():
    total, mean = estimate(), estimate().mean
    assert (mean.statistic, mean.value, mean.standard_error) == ("mean", -2.5, 0.2)
    for confidence in (0.5, 0.95):
        assert mean.interval(confidence) == pytest.approx(np.array(total.interval(confidence)) / 200)
    assert (total.value, total.statistic) == (-500.0, "sum")
    assert mean.guarantee is total.guarantee
    assert mean.users == 200


def test_the_mean_of_a_mean_is_itself():
    mean = estimate().mean
    assert mean.mean is mean


def test_a_mean_keeps_what_is_to_be_said():
    mean = estimate(secure=False, caveats=("Beware.",)).mean
    assert not mean.secure
    assert mean.caveats == ("Beware.",)
    assert mean.to_json()["guarantee"] is None
    assert "NOT PRIVATE" in mean.guarantee_sentence()


def test_json_and_table():
    result = json.loads(json.dumps(estimate().to_json(0.5), allow_nan=False))
    assert set(result) == {
        "protocol",
        "estimator",
        "guarantee",
        "secure",
        "caveats",
        "users",
        "value",
        "standard_error",
        "interval",
        "confidence",
    }
    assert result["interval"] == [-550.0, -350.0]
    table = estimate().mean.to_table(0.5)
    assert table.to_pylist() == [{"value": -2.5, "standard_error": 0.2, "lower": -2.75, "upper": -1.75, "secure": True}]
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    assert len(list(csv.DictReader(io.StringIO(sink.getvalue().decode())))) == 1


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 2, math.nan, math.inf])
def test_confidences_that_mean_nothing(confidence):
    for each in (estimate(), estimate().mean):
        with pytest.raises(ParameterError):
            each.interval(confidence)


@pytest.mark.parametrize("value", [-500.0, 0.0, 500.0])
def test_sums_below_zero_are_drawn_as_they_are(value):
    drawing = estimate(value).figure(".svg").decode()
    assert "Private sum" in drawing
    shown = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.4g}"
    assert shown.replace("-", "\u2212") in drawing or shown in drawing


def test_what_is_not_private_says_so_in_the_figure():
    drawing = estimate(secure=False).mean.figure(".svg").decode()
    assert "NOT PRIVATE mean" in drawing
    assert "Differentially private" not in drawing


def test_plots_are_refused_early(tmp_path):
    with pytest.raises(OutputError):
        estimate().plot(tmp_path / "figure.pdf")
    estimate().mean.plot(tmp_path / "figure.svg", title="Of <b>mine</b>")
    assert "Of &lt;b&gt;mine" in (tmp_path / "figure.svg").read_text()
