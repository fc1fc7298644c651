"""Calibration for several releases: the composition meets the target, is close to it, and is checked independently."""

import math

import pytest

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning import several_releases
from shuffledp.planning.several_releases import calibrate_within, guarantee_of_releases
from shuffledp.privacy.composition import compose, followed_by
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.quick_composition import QuickComposition
from shuffledp.protocols.registry import PROTOCOLS, find

COUNT = {"users": 25_000}
HISTOGRAM = {"users": 25_000, "domain_size": 12}
TARGET = {"epsilon": 1.0, "delta": 1e-8}


def released_independently(curve, releases, epsilon):
    """The delta of several releases by dp-accounting on its own grid, from the pairs of distributions themselves."""
    from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions

    deltas = []
    for pairs in curve.directions(1e-18):
        losses = None
        for pair in pairs:
            ends = [dict(enumerate(masses)) for masses in (pair.p.tolist(), pair.q.tolist())]
            logs = [{outcome: math.log(mass) for outcome, mass in end.items() if mass > 0} for end in ends]
            one = from_two_probability_mass_functions(
                logs[1], logs[0], pessimistic_estimate=False, value_discretization_interval=1e-4
            )
            losses = one if losses is None else losses.compose(one)
        deltas.append(losses.self_compose(releases).get_delta_for_epsilon(epsilon))
    return max(deltas)


def answered_twelve_times(epsilon):
    """The exact delta at epsilon 1 of twelve bits told truly with probability e^epsilon / (1 + e^epsilon)."""
    truth = 1 / (1 + math.exp(-epsilon))
    return math.fsum(
        math.comb(12, true)
        * max(0.0, truth**true * (1 - truth) ** (12 - true) - math.e * truth ** (12 - true) * (1 - truth) ** true)
        for true in range(13)
    )


@pytest.mark.parametrize(
    ("question", "name", "settings", "releases"),
    [
        ("count", "balcer-cheu", COUNT, 2),
        ("count", "correlated-noise", COUNT, 2),
        ("count", "randomized-response", COUNT, 40),
        ("histogram", "uniform-blanket", HISTOGRAM, 40),
        ("sum", "split-and-mix", {"users": 25_000, "lower": 0, "upper": 120}, 2),
        pytest.param("count", "balcer-cheu", COUNT, 40, marks=pytest.mark.slow),
        pytest.param("count", "correlated-noise", COUNT, 40, marks=pytest.mark.slow),
        pytest.param("count", "randomized-response", COUNT, 2, marks=pytest.mark.slow),
        pytest.param("histogram", "uniform-blanket", HISTOGRAM, 2, marks=pytest.mark.slow),
        pytest.param("sum", "split-and-mix", {"users": 25_000, "lower": 0, "upper": 120}, 40, marks=pytest.mark.slow),
    ],
)
def test_the_composition_meets_the_target_within_one_per_cent(question, name, settings, releases):
    protocol = calibrate_within(find(question, name), settings, **TARGET, releases=releases)
    composed = compose(protocol.guarantee.curve, releases)
    assert composed.delta_at(1.0) <= 1e-8
    assert 0.99 < least_epsilon(composed, 1e-8) <= 1.0


@pytest.mark.parametrize("releases", [3, 12])
@pytest.mark.parametrize(("question", "name", "settings"), [("count", "balcer-cheu", COUNT)])
def test_an_independent_composition_is_not_above_the_target(question, name, settings, releases):
    protocol = calibrate_within(find(question, name), settings, **TARGET, releases=releases)
    curve = protocol.guarantee.curve
    assert released_independently(curve, releases, 1.0) <= 1e-8 < released_independently(curve, releases, 0.98)


def test_bits_told_twelve_times_have_the_exact_delta():
    protocol = calibrate_within(find("count", "randomized-response"), COUNT, epsilon=1.0, delta=1e-3, releases=12)
    epsilon = protocol.guarantee.curve.epsilon
    assert answered_twelve_times(epsilon) <= 1e-3 < answered_twelve_times(1.01 * epsilon)


def test_a_release_that_is_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(several_releases, "compose", lambda curve, releases: compose(curve, releases - 1))
    monkeypatch.setattr(
        several_releases,
        "QuickComposition",
        lambda curve, releases, *fine, **tiny: QuickComposition(curve, releases - 1, *fine, **tiny),
    )
    bits = calibrate_within(find("count", "randomized-response"), COUNT, epsilon=1.0, delta=1e-3, releases=12)
    assert answered_twelve_times(bits.guarantee.curve.epsilon) > 1e-3
    protocol = calibrate_within(find("count", "balcer-cheu"), COUNT, **TARGET, releases=12)
    assert released_independently(protocol.guarantee.curve, 12, 1.0) > 1e-8


@pytest.mark.parametrize(
    ("name", "rmse"),
    [("uniform-blanket", 24.0), ("balcer-cheu", 25.1), pytest.param("correlated-noise", 29.96, marks=pytest.mark.slow)],
)
def test_errors_of_twelve_histograms_under_one_target(name, rmse):
    protocol = calibrate_within(find("histogram", name), HISTOGRAM, **TARGET, releases=12)
    assert protocol.expected_error().rmse == pytest.approx(rmse, rel=0.005)


def test_one_release_is_the_ordinary_calibration():
    kind = find("count", "balcer-cheu")
    assert calibrate_within(kind, COUNT, **TARGET) == kind.calibrate(**COUNT, **TARGET)


def test_options_are_passed_on():
    kind = find("count", "balcer-cheu")
    options = {"honest_fraction": 0.8, "calibration": "paper", "padded": False}
    protocol = calibrate_within(kind, {"users": 10**6}, **TARGET, releases=3, **options)
    assert protocol.target.honest_fraction == 0.8
    assert protocol.target.calibration == "paper"
    assert compose(protocol.guarantee.curve, 3).delta_at(1.0) <= 1e-8


@pytest.mark.parametrize("share", [0.2, pytest.param(0.9, marks=pytest.mark.slow)])
def test_earlier_releases_are_counted(share):
    before = find("count", "balcer-cheu").calibrate(users=25_000, epsilon=share, delta=1e-8).guarantee.curve
    protocol = calibrate_within(find("histogram", "uniform-blanket"), HISTOGRAM, **TARGET, releases=2, before=before)
    curve = protocol.guarantee.curve
    composed = followed_by(before, compose(curve, 2))
    assert composed.delta_at(1.0) <= 1e-8
    assert 0.99 < least_epsilon(composed, 1e-8) <= 1.0
    less_noise = find("histogram", "uniform-blanket").calibrate(
        **HISTOGRAM, epsilon=1.02 * protocol.target.epsilon, delta=protocol.target.delta
    )
    assert followed_by(before, compose(less_noise.guarantee.curve, 2)).delta_at(1.0) > 1e-8


@pytest.mark.parametrize("before", [PureCurve(1.0), PureCurve(math.inf)])
def test_nothing_is_possible_when_everything_is_spent(before):
    with pytest.raises(InfeasibleError, match="earlier releases alone") as failure:
        calibrate_within(find("count", "balcer-cheu"), COUNT, epsilon=0.99, delta=1e-8, before=before)
    assert "\n" not in str(failure.value)


def test_too_few_users_are_one_clear_line():
    with pytest.raises(InfeasibleError, match=r"^100 releases cannot have epsilon = 0.1 .* together") as failure:
        calibrate_within(find("count", "balcer-cheu"), {"users": 500}, epsilon=0.1, delta=1e-8, releases=100)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("releases", [0, -1, 10_001, 1.5, True])
def test_a_number_of_releases_out_of_range_is_rejected(releases):
    with pytest.raises(ParameterError, match="number of releases"):
        calibrate_within(find("count", "balcer-cheu"), COUNT, **TARGET, releases=releases)


def test_below_the_certified_delta_pairs_are_added():
    protocol = calibrate_within(find("count", "balcer-cheu"), COUNT, epsilon=2.0, delta=1e-45, releases=4)
    assert protocol.target.epsilon == pytest.approx(1 / 2)
    assert 4 * protocol.guarantee.delta_at(protocol.target.epsilon) <= 1e-45
    total = guarantee_of_releases(protocol.guarantee, 4, delta=1e-45)
    assert 1.98 < total.epsilon <= 2.0
    assert total.delta_at(total.epsilon) <= 1e-45
    assert total.releases == 4
    after = calibrate_within(
        find("count", "balcer-cheu"), COUNT, epsilon=2.0, delta=1e-45, releases=4, before=PureCurve(1.0)
    )
    assert after.target.epsilon == pytest.approx(1 / 4)
    nearly_all = find("count", "balcer-cheu").calibrate(**COUNT, epsilon=2.0, delta=0.9e-45).guarantee.curve
    for before, reason in ((nearly_all, "spend all of it"), (compose(nearly_all, 2), "earlier releases alone")):
        with pytest.raises(InfeasibleError, match=reason):
            calibrate_within(find("count", "balcer-cheu"), COUNT, epsilon=2.0, delta=1e-45, before=before)


def test_composed_guarantees_are_those_of_the_accountant():
    guarantee = sdp.BalcerCheuCount.calibrate(**COUNT, **TARGET).guarantee
    assert guarantee_of_releases(guarantee, 12, delta=1e-8) == guarantee.after(12, delta=1e-8)
    assert guarantee_of_releases(guarantee, 1, delta=1e-15).epsilon == guarantee.epsilon_at(1e-15)


def test_few_compositions_are_needed(monkeypatch):
    composed = []
    monkeypatch.setattr(several_releases, "compose", lambda *given: (composed.append(given), compose(*given))[1])
    for name in ("balcer-cheu", "correlated-noise", "randomized-response", "discrete-laplace"):
        composed.clear()
        calibrate_within(PROTOCOLS["count"][name], COUNT, **TARGET, releases=12)
        assert len(composed) <= 6


def test_a_slow_curve_is_composed_by_few_points_and_checked_exactly():
    """The curve of k-ary randomized response has no pairs; an exact composition evaluates it at 160 points."""
    points = []
    kind = find("histogram", "shuffled-k-rr")
    delta_at = kind.calibrate(**HISTOGRAM, **TARGET).guarantee.curve.__class__.delta_at
    with pytest.MonkeyPatch.context() as patch:
        curve_class = type(kind.calibrate(**HISTOGRAM, **TARGET).guarantee.curve)
        patch.setattr(
            curve_class, "delta_at", lambda curve, epsilon: (points.append(epsilon), delta_at(curve, epsilon))[1]
        )
        protocol = calibrate_within(kind, HISTOGRAM, **TARGET, releases=12)
        assert len(points) < 160
    composed = compose(protocol.guarantee.curve, 12)
    assert composed.delta_at(1.0) <= 1e-8 < composed.delta_at(0.985)
