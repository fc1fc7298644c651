"""The study of error against communication: the printed numbers, its judgement of errors, and planted faults."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.figures import LIGHT
from shuffledp.lab.free_clusters import FreeClusters
from shuffledp.lab.studies import frontier, near_optimum
from shuffledp.lab.studies.registry import find_study
from shuffledp.lab.studies.study import Settings
from shuffledp.planning import Histogram, plan
from shuffledp.protocols.histogram import discrete_laplace
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.randomness import Dyadic, InsecureSeededRandomness, negative_binomial


@pytest.fixture(scope="module")
def outcome():
    return find_study("frontier").measure(Settings(quick=True))


@pytest.fixture(scope="module")
def rows(outcome):
    table = outcome.tables[""]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


@pytest.fixture(scope="module")
def plans():
    return plan(Histogram(10_000, 16), epsilon=1.0, delta=1e-6)


def find_row(rows, protocol, size, noise="tight"):
    return next(row for row in rows if (row["protocol"], row["domain_size"], row["noise"]) == (protocol, size, noise))


def test_it_holds_and_measures_every_candidate(outcome, rows):
    assert outcome.holds, [check for check in outcome.checks if not check.holds]
    assert all(row["rounds"] > 0 for row in rows)
    assert {row["protocol"] for row in rows} == set(PROTOCOLS["histogram"])
    assert sum(check.claim == "the error is as predicted" for check in outcome.checks) == len(rows)


@pytest.mark.parametrize(
    ("protocol", "size", "error", "messages"),
    [
        ("correlated-noise", 16, 3.017, 1.677),
        ("correlated-noise", 1000, 3.12, 43.3),
        ("discrete-laplace", 16, 2.583, None),
        ("discrete-laplace", 1000, 2.796, None),
        ("balcer-cheu", 16, 6.52, 16.93),
        ("uniform-blanket", 1000, 6.53, 5.265),
        ("hadamard-blanket", 1000, 6.58, 70.89),
        ("fake-users", 16, 9.23, 2.0),
        ("cheu", 1000, 7.08, 5.921),
        ("unary", 1000, 191.93, 1.0),
    ],
)
def test_the_printed_numbers(rows, protocol, size, error, messages):
    row = find_row(rows, protocol, size)
    assert row["predicted_error"] == pytest.approx(error, abs=6e-3)
    assert messages is None or row["messages_per_user"] == pytest.approx(messages, rel=1e-3)
    assert row["measured_low"] <= row["measured_error"] <= row["measured_high"]


def test_the_frontier_goes_from_one_message_to_correlated_noise(rows):
    for size in (16, 1000):
        line = sorted(
            (row for row in rows if row["on_frontier"] and row["domain_size"] == size),
            key=lambda row: row["bytes_per_user"],
        )
        assert line[0]["protocol"] == "shuffled-k-rr"
        assert line[-1]["protocol"] == "correlated-noise"
        assert np.all(np.diff([row["planned_error"] for row in line]) < 0)
        assert all(row["model"] == "shuffled" for row in line)


def test_hidden_counts_err_by_themselves(rows):
    """Ten users in each category are below every threshold."""
    for protocol, noise in (("balcer-cheu", "tight"), ("balcer-cheu", "paper"), ("sample-and-threshold", "tight")):
        assert find_row(rows, protocol, 1000, noise)["measured_error"] == pytest.approx(10.0, rel=0.01)


def test_figures_are_drawn(outcome):
    assert [figure.name for figure in outcome.figures] == ["", "optimum", "n1e4-d16"]
    assert outcome.figures[0].draw(".svg", LIGHT).startswith(b"<svg")


def test_a_seed_repeats_everything(plans):
    few = replace(plans, plans=tuple(each for each in plans.plans if each.calibration == "tight")[::2])
    first, second = (
        [point.row() for point in frontier._points(few, Settings(quick=True, source=InsecureSeededRandomness(4)))]
        for _ in range(2)
    )
    assert first == second


def test_rounds_that_take_long_are_not_run(plans):
    hashing = next(each for each in plans.plans if each.protocol.name == "local-hashing")
    full = Settings()
    assert frontier._rounds(hashing, 10**6, 10**5, full) == 0
    assert frontier._rounds(hashing, 10**6, 1000, full) >= 1
    assert frontier._rounds(hashing, 10**6, 16, full) * 16 >= 160
    assert frontier._rounds(plans.plans[0], 10**4, 16, full) <= 400


# the judgement of errors


def point_of(plans, errors, predicted=1.0):
    return frontier._Point(10_000, 16, plans.plans[0], predicted, errors, 10, on_frontier=False)


def test_few_errors_raise_no_wrong_alarm(plans):
    """With the sample's own spread alone, two of a thousand would, of Laplace errors."""
    generator = np.random.default_rng()
    samples = np.concatenate((generator.standard_normal((1500, 160)), generator.laplace(0, 0.5**0.5, (1500, 160))))
    assert all(point_of(plans, errors).check().holds for errors in samples)


def test_errors_of_another_size_are_seen(plans):
    generator = np.random.default_rng()
    for factor in (0.8, 1.2):
        assert not point_of(plans, factor * generator.standard_normal(5000)).check().holds
    biased = generator.standard_normal(20_000) + 0.4
    assert not point_of(plans, biased).check().holds


# planted faults


def test_noise_of_half_the_scale_is_seen(plans, monkeypatch):
    central = tuple(each for each in plans.plans if each.protocol.name == "discrete-laplace")
    alone = replace(plans, plans=central)
    sampler = discrete_laplace.conditioned_laplace

    def half(ratio, *given):
        return sampler(Dyadic.at_least(ratio.fraction**2), *given)

    assert all(point.check().holds for point in frontier._points(alone, Settings(quick=True)))
    monkeypatch.setattr(discrete_laplace, "conditioned_laplace", half)
    assert not any(point.check().holds for point in frontier._points(alone, Settings(quick=True)))


def test_a_frontier_that_is_none_is_seen(plans):
    def planned(name, factor):
        changed = [
            replace(each, expected=replace(each.expected, rmse=each.expected.rmse * factor))
            if each.protocol.name == name
            else each
            for each in plans.plans
        ]
        return replace(plans, plans=tuple(changed))

    assert all(check.holds for check in frontier._readings(plans))
    worse = [check for check in frontier._readings(planned("correlated-noise", 1.1)) if not check.holds]
    assert [check.measured for check in worse] == [pytest.approx(1.168 * 1.1, rel=1e-2)]
    assert any(not check.holds for check in frontier._readings(planned("local-hashing", 0.1)))


def test_names_of_settings():
    assert [frontier._short(number) for number in (16, 1000, 10_000, 10**6, 12_345)] == [
        "16",
        "1000",
        "1e4",
        "1e6",
        "12345",
    ]
    assert math.isclose(frontier._work(0, 0), 1.0)


def test_goals_that_are_missed_are_noticed(monkeypatch):
    """Too many messages, an error above its limit, and rounds with half of the noise."""
    first = near_optimum.GOALS[0]
    monkeypatch.setattr(near_optimum, "GOALS", (replace(first, messages=1.42), replace(first, error=3.11)))
    _, checks = near_optimum.goal_checks(Settings(quick=True))
    assert {check.claim for check in checks if not check.holds} == {"messages per user", "root mean squared error"}
    monkeypatch.setattr(near_optimum, "GOALS", (first,))
    monkeypatch.setattr(type(first.protocol.shares), "totals", _half_of_the_noise)
    _, checks = near_optimum.goal_checks(Settings(quick=True))
    assert {check.claim for check in checks if not check.holds} == {"whole rounds: the error is as predicted"}


def _half_of_the_noise(shares, users, bins, source):
    drawn = [negative_binomial(Fraction(1, 2), shares.ratio, bins, source) for _ in range(2)]
    return drawn[0], drawn[1]


def test_an_optimum_that_is_not_private_is_noticed(monkeypatch):
    stored = near_optimum.found_optima()
    less = [FreeClusters(tuple((i, j, 0.95 * rate) for i, j, rate in point.rates)) for point in stored[:2]]
    monkeypatch.setattr(near_optimum, "found_optima", lambda: less)
    _, checks = near_optimum.optimum_points(Settings(quick=True))
    assert len(checks) == 2
    assert not any(check.holds for check in checks)
