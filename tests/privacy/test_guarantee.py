"""The guarantee object: curve, sentence, JSON."""

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from shuffledp.checks import check_target
from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.guarantee import Guarantee, least_epsilon
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


@pytest.fixture
def guarantee() -> Guarantee:
    curve = BinomialCount(Binomial(10_000, Dyadic.of(0.0034)))
    return Guarantee(epsilon=1.01, delta=1e-6, users=10_000, honest_users=10_000, curve=curve, theorem="test")


def test_the_curve_goes_both_ways(guarantee):
    epsilon = guarantee.epsilon_at(1e-6)
    assert guarantee.delta_at(epsilon) <= 1e-6 < guarantee.delta_at(epsilon * (1 - 1e-6))
    assert guarantee.epsilon_at(0.999) == 0.0


def test_below_the_floor_no_epsilon_holds(guarantee):
    floor = (1 - 0.0034) ** 10_000
    assert guarantee.epsilon_at(floor / 2) == math.inf


def test_the_sentence_says_what_it_rests_on(guarantee):
    sentence = guarantee.sentence()
    assert "10,000 of 10,000 users" in sentence
    assert "there is no guarantee" in sentence
    left = Guarantee(**{**vars(guarantee), "local_epsilon": 2.0}).sentence()
    assert "epsilon = 2 remains" in left


@pytest.mark.parametrize(
    ("epsilon", "delta", "users", "words"),
    [
        (1.0, 1e-6, 10_000, []),
        (10.0, 1e-4, 10_000, []),  # neither is above its limit
        (1.0, 1.01e-4, 10_000, ["delta 0.000101 is above 1/users (0.0001)"]),
        (10.01, 1e-6, 10_000, ["epsilon 10.01 is above 10"]),
        (12.0, 0.01, 1_000, ["delta 0.01 is above 1/users (0.001): a mechanism that publishes", "1.628e+05 times"]),
        (math.inf, 1e-6, 1_000, []),  # the sentence says that there is no guarantee
        (1.0, 0.0, 1_000, []),
    ],
)
def test_what_a_large_delta_or_epsilon_means_is_said(guarantee, epsilon, delta, users, words):
    one = replace(guarantee, epsilon=epsilon, delta=delta, users=users)
    assert len(one.warnings) == len(words)
    for warning, wanted in zip(one.warnings, words, strict=True):
        assert wanted in warning
        assert f"Warning: {warning}" in one.sentence()
    assert one.to_json()["warnings"] == list(one.warnings)
    if not words:
        assert "Warning" not in one.sentence()


def test_many_releases_of_a_modest_epsilon_get_the_warning():
    one = Target(200, 1.0, 0.0).local_guarantee(1.0, theorem="exact ratio")
    assert not one.warnings
    assert "epsilon 12 is above 10" in one.after(12).warnings[0]


def test_json_has_no_infinities(guarantee):
    hopeless = Guarantee(**{**vars(guarantee), "epsilon": math.inf})
    assert json.loads(json.dumps(hopeless.to_json(), allow_nan=False))["epsilon"] is None
    assert guarantee.to_json()["neighbours"] == "replace-one"


@pytest.mark.parametrize("delta", [0, 1, -1, math.nan])
def test_meaningless_deltas_are_refused(guarantee, delta):
    with pytest.raises(ParameterError):
        guarantee.epsilon_at(delta)
    with pytest.raises(ParameterError):
        check_target(1.0, delta)


def test_several_releases_cost_less_than_their_sum(guarantee):
    composed = guarantee.after(12)
    assert guarantee.epsilon < composed.epsilon < 6
    assert composed.releases == 12
    assert composed.delta_at(composed.epsilon) <= 1e-6
    assert least_epsilon(composed.curve, 1e-6) == composed.epsilon
    assert "12 releases" in composed.sentence()


def test_composed_deltas_below_the_resolution_are_refused(guarantee):
    tiny = Guarantee(**{**vars(guarantee), "delta": 1e-41})
    with pytest.raises(ParameterError, match="certified for delta >= 1e-40"):
        tiny.after(2)
    hopeless = Guarantee(**{**vars(guarantee), "epsilon": math.inf})
    assert "no guarantee" in hopeless.sentence()


def test_a_notebook_shows_promise_conditions_and_proof(guarantee):
    weak = replace(guarantee, epsilon=20.0, theorem="<b>proof</b>", local_epsilon=25.0)
    document = ElementTree.fromstring(weak._repr_html_())
    facts = {row[0].text: row[1].text for row in document.iter("tr")}
    assert facts["proof"] == "<b>proof</b>"
    assert facts["if shuffler and analyzer collude"] == "epsilon = 25"
    assert (facts["users"], facts["of whom must follow the protocol"]) == ("10,000", "10,000")
    (warning,) = (element.text for element in document.iter("p") if element.get("class") == "warning")
    assert (warning,) == weak.warnings
    assert weak.statement() in [element.text for element in document.iter("p")]
    assert weak.sentence() == f"{weak.statement()} Warning: {warning}"


@pytest.mark.parametrize("trust", ["local", "central"])
def test_a_notebook_mentions_the_shuffler_only_if_there_is_one(guarantee, trust):
    other = replace(guarantee, trust=trust)
    assert "shuffler" in guarantee._repr_html_()
    assert "shuffler" not in other._repr_html_()


def test_a_notebook_says_that_there_is_no_guarantee(guarantee):
    missing = replace(guarantee, epsilon=math.inf)
    assert "<h4>No guarantee: epsilon = inf, delta = 1e-06</h4>" in missing._repr_html_()
    assert missing.sentence() == missing.statement()


def test_the_repr_is_short(guarantee):
    assert repr(guarantee) == (
        "Guarantee(epsilon = 1.01, delta = 1e-06; shuffled, replace-one; 10,000 users, at least 10,000 honest)"
    )
    assert repr(replace(guarantee, releases=12)).endswith("; 12 releases)")


def test_a_data_frame_has_one_row(guarantee):
    (row,) = guarantee.to_frame().to_dict("records")
    document = guarantee.to_json()
    assert set(row) == set(document) - {"warnings"}
    assert row.pop("local_epsilon") == math.inf
    assert row.items() <= document.items()
