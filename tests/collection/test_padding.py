"""The number of sealed messages says nothing of the value: for every protocol, constant; and what a cap costs."""

import dataclasses
import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import small_counting
import small_histogram_local
import small_histogram_more
import small_histogram_shuffled
import small_quantiles
import small_strings
import small_summing
from scipy import stats

from shuffledp import BalcerCheuHistogram
from shuffledp.collection.device import client as device_client
from shuffledp.collection.device import sealed_report
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.padding import capped_guarantee, is_unbounded, least_cap
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import ParameterError, PolicyError
from shuffledp.privacy.capping import CappedCurve, Share, chance_of_more
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.testing.statistics import ALPHA, p_value

GROUPS = (
    small_counting,
    small_histogram_local,
    small_histogram_shuffled,
    small_histogram_more,
    small_summing,
    small_quantiles,
    small_strings,
)
SMALL = {
    "histogram/balcer-cheu": BalcerCheuHistogram.with_noise(users=3, absence=0.3, delta=0.5, domain_size=3),
    **{name: protocol for group in GROUPS for name, protocol in group.instances().items()},
}
TAKEN = sorted(
    f"{question}/{name}"
    for question, named in PROTOCOLS.items()
    for name, kind in named.items()
    if kind.trust in ("shuffled", "local") and not kind.trusts_shuffler
)
CHANCE = 1e-3


def cap_of(protocol, chance: float = CHANCE) -> int:
    if not is_unbounded(protocol):
        return protocol.cost.max_messages_per_user
    return next(most for most in range(1, 10_000) if protocol.chance_of_more_messages(most) <= chance)


def values_of(protocol) -> list:
    if protocol.question == "sum":
        interval = protocol.domain
        steps = interval.steps or 4
        return [interval.lower + interval.width * step / steps for step in range(steps + 1)]
    if protocol.question == "quantiles":
        return protocol.domain.edges.tolist()
    if protocol.question == "strings":
        return [protocol.domain.string(index) for index in protocol.inputs()]
    return list(range(2 if protocol.question == "count" else protocol.domain_size))


def sizes(make_report, task, rounds: int = 4) -> set[tuple[int, int]]:
    """Bytes of the reports on every value, and the messages in them."""
    form = ReportFormat.of(task)
    reports = [make_report(task, value) for value in values_of(task.protocol) for _ in range(rounds)]
    return {(len(each), len(form.records(each)) // form.sealed_size) for each in reports}


def test_there_is_a_small_instance_of_every_protocol():
    assert set(TAKEN) <= set(SMALL)
    assert len(TAKEN) >= 28


@pytest.mark.parametrize("name", TAKEN)
def test_every_value_has_reports_of_one_size(name, parties):
    protocol = SMALL[name]
    task = parties.around(protocol, cap_of(protocol))
    form = ReportFormat.of(task)
    assert sizes(sealed_report, task) == {(form.size, task.messages_per_report)}
    value = values_of(protocol)[-1]
    report = sealed_report(task, value)
    records = form.records(report)
    sealed = [bytes(records[at : at + form.sealed_size]) for at in range(0, len(records), form.sealed_size)]
    opened = Opener(parties.analyzer, task.id, task.message_size).open(sealed)
    assert not opened.rejected
    assert len(opened.messages) + opened.dummies == task.messages_per_report
    packed = np.array([list(each) for each in opened.messages], dtype=np.uint8).reshape(-1, task.message_size)
    assert len(protocol.message_format.unpack(packed)) == len(opened.messages)


def test_the_check_of_sizes_can_fail(parties):
    """Without dummies two messages would mean yes."""
    protocol = SMALL["count/balcer-cheu"]
    task = parties.around(protocol, 2)

    def unpadded(task, value) -> bytes:
        packed = [row.tobytes() for row in protocol.message_format.pack(protocol.randomize(value))][: 1 + value]
        return b"\0" * 53 + b"".join(Sealer(task.analyzer, task.id, task.message_size).seal(packed, len(packed)))

    assert len(sizes(unpadded, task)) > 1


@pytest.mark.parametrize("name", TAKEN)
def test_real_reports_are_as_long_as_the_task_says(name, parties):
    """At a realistic size, as ``task create`` would make it."""
    task = parties.task(name, users=2000, epsilon=2.0, delta=1e-5)
    numbers = (0.5, -1.0, 4.0)
    values = {"sum": numbers, "quantiles": numbers, "count": (0, 1), "histogram": ("bus", "train")}
    values |= {"strings": ("", "ab")}
    for value in values[task.protocol.question]:
        assert len(sealed_report(task, value)) == ReportFormat.of(task).size
    if not is_unbounded(task.protocol):
        with pytest.raises(ParameterError, match="messages, not"):
            capped_guarantee(
                task.protocol, cap=task.messages_per_report + 1, users=2000, epsilon=task.epsilon, delta=task.delta
            )


def test_places_in_a_report_say_nothing(parties):
    """Whether a place holds a message or a dummy does not depend on the place; all counts, alpha = 1e-7."""
    protocol = SMALL["histogram/balcer-cheu"]
    task = parties.around(protocol, 4)
    form, opener = ReportFormat.of(task), Opener(parties.analyzer, task.id, task.message_size)
    seen, rounds = np.zeros(4, dtype=int), 400
    for _ in range(rounds):
        records = form.records(sealed_report(task, 0))
        for place in range(4):
            sealed = bytes(records[place * form.sealed_size : (place + 1) * form.sealed_size])
            seen[place] += opener.open([sealed]).dummies
    assert p_value(seen, np.full(4, 0.25)) > ALPHA
    in_order = np.array([0, 0, seen.sum() - seen.sum() // 3, seen.sum() // 3])  # dummies last, as they are made
    assert p_value(in_order, np.full(4, 0.25)) < ALPHA


# what a cap costs


def masses(shape: float, ratio: float, weight: int, length: int) -> np.ndarray:
    """The distribution of weight times a negative binomial number, up to a length."""
    curve = np.zeros(length)
    mass = (1 - ratio) ** shape
    for k in range((length - 1) // weight + 1):
        curve[k * weight] = mass
        mass *= ratio * (shape + k) / (k + 1)
    return curve


def exact_tails(shares, length: int = 4000) -> np.ndarray:
    """Pr[more than m] for every m; what lies beyond the length counts as more."""
    curve = np.array([1.0])
    for shape, ratio, weight in shares:
        curve = np.convolve(curve, masses(shape, ratio, weight, length))[:length]
    return np.maximum(0.0, 1 - np.cumsum(curve))


@pytest.mark.parametrize("shape", [0.001, 0.3, 1.0, 7.5])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.97])
@pytest.mark.parametrize("weight", [1, 2, 3])
def test_chernoff_is_not_below_the_exact_tail(shape, ratio, weight):
    shares = [(shape, ratio, weight), (2 * shape, 0.4, 1)]
    tails = exact_tails(shares)
    for most in (0, 1, 2, 3, 5, 10, 30, 100, 300, 1000):
        bound = chance_of_more([Share(*each) for each in shares], most)
        assert bound >= tails[most] - 1e-13
        assert bound <= 1


def noise_of(protocol) -> list[tuple[float, float, int]]:
    """The shares of one user, from the parameters alone."""
    honest = protocol.target.honest_users
    if protocol.name == "almost-central":
        return [(float(shape / honest), float(ratio), len(members)) for members, shape, ratio in protocol._parts]
    bins, flood = protocol.message_format.codes // 2, getattr(protocol, "flood", protocol)
    return [
        (2 * bins / honest, float(protocol.ratio), 1),
        (float(bins * flood.flood_shape / honest), float(flood.flood_ratio), 2),
    ]


UNBOUNDED = (
    "count/correlated-noise",
    "histogram/correlated-noise",
    "quantiles/correlated-noise",
    "sum/almost-central",
)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_the_chance_of_too_long_a_report(name):
    protocol = SMALL[name]
    tails = exact_tails(noise_of(protocol))
    bounds = [protocol.chance_of_more_messages(most) for most in range(200)]
    assert bounds[0] == 1  # the own message
    for most in range(1, 200):
        assert bounds[most] >= tails[most - 1] - 1e-13
        assert bounds[most] <= bounds[most - 1]
    drawn = [len(protocol.randomize(0.0 if protocol.question == "sum" else 0)) for _ in range(500)]
    for most in range(1, 12):
        longer = sum(length > most for length in drawn)
        assert stats.binom.sf(longer - 1, 500, tails[most - 1]) > ALPHA


def test_only_these_have_no_largest_number_of_messages():
    assert {name for name in TAKEN if is_unbounded(SMALL[name])} == set(UNBOUNDED)


def capped(curve: dict, most: int) -> dict:
    kept = {outcome: float(mass) for outcome, mass in curve.items() if sum(outcome) <= most}
    total = sum(kept.values())
    return {outcome: mass / total for outcome, mass in kept.items()}


def together(one: dict, other: dict) -> Counter:
    """What two users send, mixed."""
    sums: Counter = Counter()
    for (a, p), (b, q) in product(one.items(), other.items()):
        sums[tuple(map(sum, zip(a, b, strict=True)))] += p * q
    return sums


def divergence(one: dict, other: dict, epsilon: float) -> float:
    return sum(max(0.0, mass - math.exp(epsilon) * other.get(outcome, 0.0)) for outcome, mass in one.items())


@pytest.mark.parametrize("most", [2, 3, 5, 9])
def test_drawing_again_costs_no_more_than_is_added(most):
    """Exactly, by enumeration of a round of two: total variation, and delta at many epsilon."""
    protocol = SMALL["count/correlated-noise"]
    curves = [protocol.report_pmf(bit) for bit in (0, 1)]
    left_out = 1e-4
    tail = exact_tails(noise_of(protocol))[most - 1]
    for curve in curves:
        short = capped(curve, most)
        distance = sum(abs(float(curve.get(each, 0)) - short.get(each, 0.0)) for each in set(curve) | set(short)) / 2
        assert distance == pytest.approx(tail, abs=left_out)
    chance = protocol.chance_of_more_messages(most)
    assert chance >= tail
    bound = CappedCurve(protocol.guarantee.curve, 2, chance)
    for other in (0, 1):
        rounds = [together(capped(curves[bit], most), capped(curves[other], most)) for bit in (0, 1)]
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            worst = max(divergence(rounds[0], rounds[1], epsilon), divergence(rounds[1], rounds[0], epsilon))
            exactly = protocol.guarantee.curve.delta_at(epsilon) + (1 + math.exp(epsilon)) * 2 * tail
            assert worst <= min(1.0, exactly) + left_out
            assert worst <= bound.delta_at(epsilon) + left_out


def test_the_number_of_messages_after_drawing_again(parties):
    """The pmf of what a device draws is the pmf of short reports; a device that cuts its report is found out."""
    protocol = SMALL["count/correlated-noise"]
    most, rounds, rounds_to_see = 3, 1000, 6000
    task = parties.around(protocol, most)
    curve, cut_pmf = Counter(), Counter()
    for outcome, mass in capped(protocol.report_pmf(1), most).items():
        curve[sum(outcome)] += mass
    for outcome, mass in protocol.report_pmf(1).items():
        cut_pmf[min(most, sum(outcome))] += float(mass)
    expected = np.array([curve[length] for length in range(most + 1)])
    drawn = Counter(len(device_client._randomized(task, 1)[1]) for _ in range(rounds))
    assert p_value([drawn[length] for length in range(most + 1)], expected) > ALPHA
    cut = np.array([cut_pmf[length] for length in range(most + 1)])
    seen = np.random.default_rng().multinomial(rounds_to_see, cut / cut.sum())
    assert p_value(seen, expected) < ALPHA


def test_a_cap_that_nothing_fits(parties):
    small = SMALL["count/correlated-noise"]
    protocol = dataclasses.replace(small, flood=dataclasses.replace(small.flood, flood_shape=Fraction(256)))
    assert 1 - protocol.chance_of_more_messages(1) < 1e-12  # of one draw; a device tries a thousand
    task = parties.around(protocol, 1)
    with pytest.raises(PolicyError, match="nearly always sends more"):
        sealed_report(task, 1)


def test_the_least_cap():
    protocol = SMALL["count/correlated-noise"]
    for delta in (0.1, 1e-3, 1e-9):
        cap = least_cap(protocol, users=50, epsilon=1.0, delta=delta)
        cost = [(1 + math.e) * 50 * protocol.chance_of_more_messages(each) for each in (cap, cap - 1)]
        assert cost[0] <= delta < cost[1]
    assert least_cap(SMALL["count/balcer-cheu"], users=50, epsilon=1.0, delta=1e-9) == 2
    assert Fraction(1, 2) == SMALL["sum/privacy-blanket"].blanket.fraction  # the small ones are as noisy as they look
