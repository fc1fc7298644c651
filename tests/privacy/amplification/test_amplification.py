"""Amplification by shuffling: the printed numbers, brute force from below, and faults that must be caught."""

import contextlib
import math
from fractions import Fraction
from itertools import pairwise
from math import comb

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.amplification import (
    METHODS,
    BlanketLaw,
    ClonesLaw,
    RandomizedResponse,
    RandomizedResponseLaw,
    bennett_delta,
    blanket_delta,
    check_restriction,
    clones_delta,
    clones_epsilon_closed_form,
    closed_form_delta,
    erlingsson_epsilon,
    erlingsson_simple_epsilon,
    exact_delta,
    hoeffding_delta,
    least_blanket,
    least_slots,
    response_channel,
    revealed_clones_delta,
    stronger_clones_delta,
    stronger_clones_epsilon_closed_form,
    two_response_delta,
)
from shuffledp.privacy.amplification.exact import local_epsilon_of
from shuffledp.privacy.amplification.privacy_blanket import _ResponseSums, bennett_expectation
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.randomness import Dyadic

TABLE = """
1e4 0.25 1e-6 0.0493 0.0219 0.0431 0.0085 0.0407 0.0080 0.0075 0.0035 0.0010
1e4 0.5 1e-6 0.1866 0.0540 0.0939 0.0204 0.0845 0.0181 0.0162 0.0085 0.0025
1e4 1 1e-6 none 0.1666 0.2140 0.0530 0.1800 0.0432 0.0357 0.0233 0.0072
1e4 2 1e-6 none 1.0171 0.5009 0.1550 0.3982 0.1144 0.0870 0.0798 0.0292
1e4 4 1e-6 none 4.0000 4.0000 0.6009 0.9581 0.4108 0.3146 0.3805 0.2337
1e4 6 1e-6 none 6.0000 6.0000 5.7210 6.0000 1.4724 1.3111 1.4397 1.1823
1e6 0.25 1e-8 0.0057 0.0025 0.0050 0.0010 0.0047 0.0010 0.0009 0.0004 0.0001
1e6 0.5 1e-8 0.0214 0.0061 0.0111 0.0024 0.0100 0.0021 0.0019 0.0010 0.0003
1e6 1 1e-8 0.1548 0.0184 0.0268 0.0061 0.0222 0.0050 0.0041 0.0027 0.0009
1e6 2 1e-8 none 0.1003 0.0712 0.0176 0.0541 0.0130 0.0097 0.0092 0.0034
1e6 4 1e-8 none 4.0000 0.2264 0.0642 0.1665 0.0451 0.0320 0.0420 0.0264
1e6 6 1e-8 none 6.0000 0.5393 0.1895 0.4091 0.1318 0.0948 0.1304 0.1176
"""
COLUMNS = (
    "erlingsson",
    "privacy-blanket",
    "clones-closed",
    "clones",
    "stronger-clones-closed",
    "stronger-clones",
    "exact-2-rr",
)
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def blanket_of(local_epsilon: float, values: int) -> Dyadic:
    return Dyadic.of(values / (math.exp(local_epsilon) + values - 1))


@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_the_printed_table(column):
    """None stands for a bound that is worse than the local epsilon; its value for an unmet condition."""
    for row in ROWS:
        users, local_epsilon, delta = int(float(row[0])), float(row[1]), float(row[2])
        printed = local_epsilon if row[3 + column] == "none" else float(row[3 + column])
        try:
            found = METHODS[COLUMNS[column]](users, local_epsilon, delta)
        except ConditionError:
            found = local_epsilon
        assert found == pytest.approx(printed, rel=1e-3, abs=5.1e-5), row


@pytest.mark.parametrize(("values", "column"), [(10, 10), (100, 11)])
def test_the_printed_table_of_response_channel(values, column):
    """The printed epsilon, plus or minus its last digit, brackets delta."""
    for row in ROWS:
        users, local_epsilon, delta, printed = int(float(row[0])), float(row[1]), float(row[2]), float(row[column])
        law = BlanketLaw(users, blanket_of(local_epsilon, values), values)
        assert law.delta_at(printed + 5.1e-5) <= delta, row
        assert law.delta_at(printed - 5.1e-5) > delta, row


def test_golden_values():
    law = ClonesLaw((Binomial(999, Dyadic.of(0.1)),), 0.9)
    assert law.delta_at(0.5) == pytest.approx(6.69288676766e-05, rel=1e-9)
    assert clones_delta(0.2, 10_000, 2.0) == pytest.approx(6.61476133487e-09, rel=1e-9)
    krr = BlanketLaw(10_000, blanket_of(2.0, 10), 10)
    assert _ResponseSums(krr, math.expm1(0.1)).direct() / 10_000 == pytest.approx(1.77935564009e-08, rel=1e-8)
    assert 1.77935564009e-08 <= krr.delta_at(0.1) <= 1.77935564009e-08 * (1 + 1e-3)
    assert two_response_delta(1000, 0.02, 0.5, ones=0) == pytest.approx(0.00303921269672, rel=1e-8)
    assert two_response_delta(1000, 0.02, 0.5, ones=8) == pytest.approx(0.00310660215127, rel=1e-8)
    assert two_response_delta(10_000, 13.8155 / 2e4, 1.0, ones=0) == pytest.approx(0.0102109491698, rel=1e-4)


def test_many_uniform_messages_need_the_printed_mean():
    """In the limit of many cells; and the paper's own count of messages would not be private (4.13)."""
    slots = least_slots(10_000, 10**8, 1.0, 1e-6)
    assert slots.mean * 10_000 / 10**8 == pytest.approx(42.6545306443, rel=1e-5)
    few = least_slots(10_000, 2, 1.0, 1e-6)
    assert few.whole == 0
    balls = ClonesLaw((), sure=round(few.mean * 10_000))
    assert balls.delta_at(1.0) < 0.7e-6  # whoever counts balls as sure believes in too much privacy


def test_two_responses_of_cheu_et_al():
    """Section 3.2: a lambda of about 68 by enumeration and 85 by clones at (1, 1e-6, 10^4)."""

    def by_clones(size):
        return ClonesLaw((Binomial(9_999, Dyadic.of(size / 1e4)),), 1 - size / 2e4).delta_at(1.0)

    assert two_response_delta(10_000, 69 / 2e4, 1.0, ones=0) < 1e-6 < two_response_delta(10_000, 67 / 2e4, 1.0, ones=0)
    assert by_clones(86) < 1e-6 < by_clones(83)


def test_one_message_real_sum_needs_the_printed_noise():
    """Section 5.4: about 42 blanket messages a value at (1, 1e-6)."""
    found = float(least_blanket(10**6, 33, 1.0, 1e-6)) * 10**6 / 33
    assert found == pytest.approx(42.2, rel=0.02)
    assert BlanketLaw(10**4, blanket_of(5.53, 16), 16).delta_at(1.0) == pytest.approx(1e-6, rel=0.05)


# brute force from below


def random_channel(generator, values, outputs, local_epsilon):
    """Rows within e^local_epsilon of each other."""
    base = generator.dirichlet(np.full(outputs, 0.7)) + 1e-3
    rows = base * np.exp(local_epsilon * generator.choice([0, 0.5, 1], size=(values, outputs)) / 2)
    rows[0, 0] *= 1.2  # no two rows alike
    return rows / rows.sum(axis=1, keepdims=True)


def bounds_for(channel, users, epsilon):
    """Every bound that is proved for any channel, by name."""
    local = local_epsilon_of(channel)
    found = {
        "clones": clones_delta(epsilon, users, local),
        "blanket": blanket_delta(channel, users, epsilon),
        "closed": closed_form_delta(epsilon, users, local),
        "hoeffding": hoeffding_delta(epsilon, users, local),
        "bennett": bennett_delta(epsilon, users, local),
    }
    revealed = 0.0
    for x, other in ((x, y) for x in range(len(channel)) for y in range(len(channel)) if x != y):
        distance = float(np.abs(channel[x] - channel[other]).sum() / 2)
        revealed = max(revealed, revealed_clones_delta(epsilon, users, local, distance))
    found["revealed"] = revealed
    with contextlib.suppress(ConditionError):
        found["stronger"] = stronger_clones_delta(epsilon, users, channel)
    return found


def falls_short(channel, users, epsilon, bound):
    return bound < exact_delta(channel, users, epsilon) * (1 - 1e-8) - 1e-15


def test_no_bound_is_below_the_truth():
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    generator = np.random.default_rng(seed)
    seen = set()
    for _ in range(60):
        values, outputs = int(generator.integers(2, 4)), int(generator.integers(2, 4))
        channel = random_channel(generator, values, outputs, float(generator.uniform(0.3, 3)))
        users, epsilon = int(generator.integers(1, 5)), float(generator.uniform(0.01, 1.2))
        for name, bound in bounds_for(channel, users, epsilon).items():
            seen.add(name)
            assert not falls_short(channel, users, epsilon, bound), (seed, name, channel.tolist(), users, epsilon)
    assert len(seen) == 7


def test_the_shared_support_matters():
    """Outputs that one value cannot produce count in full."""
    channel = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5]])
    for users in (1, 2, 4):
        assert not falls_short(channel, users, 0.1, blanket_delta(channel, users, 0.1))
    assert exact_delta(channel, 1, 0.1) == pytest.approx(0.5, rel=1e-6)
    assert blanket_delta(np.eye(2), 3, 0.1) == 1.0


def test_channels_whose_transform_vanishes():
    """Even odds make frequencies vanish exactly; one user makes the tilted law a point."""
    for channel in ([[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.9, 0.1], [0.1, 0.9]]):
        for users in (1, 2, 3, 8):
            for epsilon in (0.0, 0.1, 1.0):
                assert not falls_short(np.array(channel), users, epsilon, blanket_delta(channel, users, epsilon))


@pytest.mark.parametrize("values", [2, 3, 4])
def test_randomized_response_against_enumeration(values):
    for users in (1, 2, 3, 5):
        for blanket in (0.1, 0.4, 0.8, 0.99):
            channel = response_channel(values, blanket)
            for epsilon in (0.0, 0.05, 0.4, 1.5, 4.0):
                exact = exact_delta(channel, users, epsilon)
                for law in (BlanketLaw, RandomizedResponseLaw):
                    bound = law(users, Dyadic.of(blanket), values).delta_at(epsilon)
                    assert bound >= exact * (1 - 1e-8) - 1e-15, (users, blanket, epsilon, law)
                if values == 2:
                    assert two_response_delta(users, blanket / 2, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-15)


COUNTEREXAMPLE = np.array([[0.37, 0.08, 0.3, 0.25], [0.08, 0.37, 0.3, 0.25], [0.15, 0.15, 0.08, 0.62]])


def test_stronger_clones_refuse_what_they_are_not_proved_for():
    with pytest.raises(ConditionError) as caught:
        check_restriction(COUNTEREXAMPLE)
    values = caught.value.values
    row = COUNTEREXAMPLE
    ratio = math.exp(local_epsilon_of(row))
    x, other, z, y = (values[name] for name in ("x", "other", "z", "y"))
    assert row[z, y] < (row[x, y] + row[other, y]) / (ratio + 1)
    for values_ in (2, 3, 7):
        assert check_restriction(response_channel(values_, 0.3)) > 0
    assert check_restriction(RandomizedResponse(1.5)) == 1.5


def variation_ratio_delta(channel, users, epsilon, x, other):
    """The p-version of 2023 as published: p = TV / (e^local_epsilon - 1), the rest common and unseen."""
    ratio = math.exp(local_epsilon_of(channel))
    rate = float(np.abs(channel[x] - channel[other]).sum() / 2) / (ratio - 1)
    mixed = np.zeros((2, 3))
    mixed[0], mixed[1] = (ratio * rate, rate, 0), (rate, ratio * rate, 0)
    mixed[:, 2] = 1 - mixed.sum(axis=1)
    others = np.array([rate, rate, 1 - 2 * rate])
    law = {(0, 0): 1.0}
    for _ in range(users - 1):
        law = _convolve(law, others)
    total = [_convolve(law, row) for row in mixed]
    growth = math.exp(epsilon)
    return sum(max(mass - growth * total[1].get(key, 0.0), 0.0) for key, mass in total[0].items())


def _convolve(law, row):
    result = {}
    for (a, b), mass in law.items():
        for move, probability in zip(((1, 0), (0, 1), (0, 0)), row, strict=True):
            key = (a + move[0], b + move[1])
            result[key] = result.get(key, 0.0) + mass * probability
    return result


def test_the_published_p_version_is_no_bound():
    """Random channels at n = 2 violate it; the clones of 2021 hold on the same ones."""
    generator = np.random.default_rng(5)  # a search for a witness, not a statistical test
    violated = 0
    for _ in range(150):
        channel = random_channel(generator, 3, 4, 3.0)
        epsilon = 0.3
        pair = [exact_delta_of_pair(channel, 2, epsilon, x, y) for x in range(3) for y in range(3) if x != y]
        published = [variation_ratio_delta(channel, 2, epsilon, x, y) for x in range(3) for y in range(3) if x != y]
        violated += any(truth > claim * 1.01 + 1e-9 for truth, claim in zip(pair, published, strict=True))
        assert max(pair) <= clones_delta(epsilon, 2, local_epsilon_of(channel)) * (1 + 1e-9)
    assert violated > 0


def exact_delta_of_pair(channel, users, epsilon, x, other):
    worst = 0.0
    growth = math.exp(epsilon)
    for z in range(len(channel)):
        laws = []
        for row in (channel[x], channel[other]):
            law = {}
            for a, p in enumerate(row):
                for b, q in enumerate(channel[z]):
                    key = (min(a, b), max(a, b))
                    law[key] = law.get(key, 0.0) + p * q
            laws.append(law)
        worst = max(worst, sum(max(mass - growth * laws[1].get(key, 0.0), 0.0) for key, mass in laws[0].items()))
    return worst


# exact arithmetic


def exact_clones_delta(parts, sure, alpha, growth):
    """The law as a sum of fractions."""
    counts = {sure: Fraction(1)}
    for trials, rate in parts:
        following = {}
        for count, mass in counts.items():
            for k in range(trials + 1):
                term = mass * comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
                following[count + k] = following.get(count + k, Fraction(0)) + term
        counts = following
    total = Fraction(0)
    for count, mass in counts.items():
        fair = [Fraction(comb(count, a), 2**count) for a in range(count + 1)]
        for a in range(count + 2):
            here, less = (fair[a] if a <= count else 0), (fair[a - 1] if a else 0)
            total += mass * max(alpha * less + (1 - alpha) * here - growth * ((1 - alpha) * less + alpha * here), 0)
    return total


CLONE_CASES = [
    ([], 0),
    ([], 7),
    ([(1, 5)], 0),
    ([(2, 15)], 1),
    ([(12, 3)], 0),
    ([(9, 8), (5, 2)], 0),
    ([(20, 1)], 3),
]


def clone_law_of(parts, sure, alpha):
    return ClonesLaw(tuple(Binomial(trials, Dyadic(rate, 4)) for trials, rate in parts), Dyadic(alpha, 6), sure=sure)


@pytest.mark.parametrize(("parts", "sure"), CLONE_CASES)
def test_clones_are_the_truth_from_above(parts, sure):
    for alpha in (64, 60, 40, 33, 32):
        for epsilon in (0.0, 1e-9, 0.1, 0.5, 1.0, 3.0, 30.0, 699.0):
            growth = Fraction(math.exp(epsilon))
            rates = [(trials, Fraction(rate, 16)) for trials, rate in parts]
            exact = exact_clones_delta(rates, sure, Fraction(alpha, 64), growth)
            bound = clone_law_of(parts, sure, alpha).delta_at(epsilon)
            assert Fraction(bound) >= exact, (alpha, epsilon)
            assert bound <= float(exact) * (1 + 1e-8) + 1e-14, (alpha, epsilon)


def test_dropping_what_is_left_out_would_be_caught(monkeypatch):
    """A window that forgets the mass of few clones falls below the truth."""
    import shuffledp.privacy.amplification.clones as clones

    law = ClonesLaw((Binomial(40, Dyadic(8, 4)),), 1.0)
    exact = exact_clones_delta([(40, Fraction(1, 2))], 0, Fraction(1), Fraction(math.exp(8.0)))
    assert Fraction(law.delta_at(8.0)) >= exact
    monkeypatch.setattr(clones, "_CUTS", (1e-2,))
    clones._clone_counts.cache_clear()
    assert Fraction(law.delta_at(8.0)) >= exact  # coarse, and still above
    blocks = clones._blocks
    monkeypatch.setattr(clones, "_blocks", lambda *given: (*blocks(*given)[:2], 0.0))
    clones._clone_counts.cache_clear()
    assert Fraction(law.delta_at(8.0)) < exact
    clones._clone_counts.cache_clear()


def test_fewer_clones_are_worse():
    for alpha in (1.0, 0.8):
        for epsilon in (0.05, 0.7):
            deltas = [ClonesLaw((), alpha, sure=count).delta_at(epsilon) for count in range(60)]
            assert all(later <= earlier * (1 + 1e-10) for earlier, later in pairwise(deltas))


def test_blocks_of_clones_only_overestimate(monkeypatch):
    import shuffledp.privacy.amplification.clones as clones

    laws = [
        ClonesLaw((Binomial(3_000_000, Dyadic.of(0.1)),), 0.95),
        ClonesLaw((Binomial(300_000, Dyadic.of(0.5)), Binomial(400_000, Dyadic.of(0.375)))),
    ]
    for law, epsilon in zip(laws, (0.02, 0.015), strict=True):
        fine = law.delta_at(epsilon)
        clones._clone_counts.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(clones, "_COARSENESS", 1e-4)
            coarse = law.delta_at(epsilon)
            clones._clone_counts.cache_clear()
            patch.setattr(clones, "_LONGEST_SUM", 0)
            by_tails = law.delta_at(epsilon)
            clones._clone_counts.cache_clear()
        assert fine * (1 - 1e-9) <= coarse <= fine * 1.02
        assert by_tails == pytest.approx(coarse, rel=1e-6)


def exact_blanket_delta(users, blanket, values, growth):
    """Lemma 5.3 for randomized response in fractions."""
    each = blanket / values
    ratio = 1 + (1 - blanket) / each
    total = Fraction(0)
    for a in range(users + 1):
        for b in range(users + 1 - a):
            for c in range(users + 1 - a - b if values > 2 else 1):
                height = a * (ratio - growth) + b * (1 - growth * ratio) + c * (1 - growth)
                if height > 0:
                    ways = comb(users, a) * comb(users - a, b) * comb(users - a - b, c)
                    chance = each ** (a + b) * (blanket - 2 * each) ** c * (1 - blanket) ** (users - a - b - c)
                    total += ways * chance * height
    return total / users


@pytest.mark.parametrize("values", [2, 3, 10])
def test_the_blanket_is_summed_from_above(values):
    for users in (1, 2, 6, 11):
        for numerator in (1, 7, 15):
            for epsilon in (0.0, 0.02, 0.3, 1.0, 2.5):
                exact = exact_blanket_delta(users, Fraction(numerator, 16), values, Fraction(math.exp(epsilon)))
                law = BlanketLaw(users, Dyadic(numerator, 4), values)
                bound = law.delta_at(epsilon)
                assert Fraction(bound) >= min(exact, 1), (users, numerator, epsilon)
                assert bound <= min(1.0, float(exact) * (1 + 1e-7) + 1e-12), (users, numerator, epsilon)


@pytest.mark.parametrize(
    ("users", "local_epsilon", "values", "epsilon"),
    [
        (1000, 1.0, 3, 0.05),
        (1000, 3.0, 10, 0.5),
        (10_000, 4.0, 1000, 0.1),
        (10_000, 5.0, 100, 0.5),
        (500, 0.3, 2, 0.02),
    ],
)
def test_the_grid_only_overestimates(users, local_epsilon, values, epsilon):
    """The Fourier transform against the direct sum, also on a coarse grid and with c untied."""
    sums = _ResponseSums(BlanketLaw(users, blanket_of(local_epsilon, values), values), math.expm1(epsilon))
    direct = sums.direct()
    assert direct * (1 - 1e-9) <= sums.on_grid() <= direct * (1 + 5e-4)
    assert direct * (1 - 1e-9) <= sums.on_grid(1 << 10)
    if values > 2:
        shifted = np.array([sums.reward - sums.gap, -sums.growth * sums.reward - sums.gap])
        untied = sums._untied(shifted + sums.gap * float(sums.third), abs(sums.reward) / 50)
        assert direct * (1 - 1e-9) <= untied <= direct * 1.5


def bennett_holds(count, values, blanket, growth, *, printed):
    """Against the exact expectation for randomized response."""
    each = Fraction(1, values)
    ratio = 1 + values * (1 - blanket) / blanket
    sizes = [blanket * (ratio - growth), blanket * (1 - growth * ratio), blanket * (1 - growth)]
    chances = [each, each, 1 - 2 * each]
    exact = Fraction(0)
    for a in range(count + 1):
        for b in range(count + 1 - a):
            c = count - a - b
            value = a * sizes[0] + b * sizes[1] + c * sizes[2]
            ways = comb(count, a) * comb(count - a, b)
            exact += max(value, 0) * ways * chances[0] ** a * chances[1] ** b * chances[2] ** c
    second = float(sum(p * v * v for p, v in zip(chances, sizes, strict=True)))
    gap = float(growth - 1)
    bound = bennett_expectation(count, gap=gap, most=float(max(sizes)), second_moment=second)
    return float(exact) <= (bound / (gap * count) if printed else bound) * (1 + 1e-9)


def test_bennett_is_corrected():
    """The corrected lemma holds on a grid; the printed one, by the same check, does not."""
    cases = [
        (count, values, Fraction(blanket, 10), Fraction(growth, 100))
        for count in (2, 5, 15)
        for values in (3, 5)
        for blanket in (2, 5)
        for growth in (105, 120, 200)
    ]
    assert all(bennett_holds(*case, printed=False) for case in cases)
    assert not all(bennett_holds(*case, printed=True) for case in cases)


# conditions, edges, calibration


def test_conditions_are_named():
    with pytest.raises(ConditionError, match="local_epsilon"):
        clones_epsilon_closed_form(10_000, 4.0, 1e-6)
    with pytest.raises(ConditionError):
        stronger_clones_epsilon_closed_form(10_000, RandomizedResponse(6.0), 1e-6)
    for given in ((999, 0.2, 1e-6), (5000, 0.5, 1e-6), (5000, 0.2, 0.02)):
        with pytest.raises(ConditionError, match="simple form"):
            erlingsson_simple_epsilon(*given)
    assert erlingsson_simple_epsilon(10_000, 0.25, 1e-6) >= erlingsson_epsilon(10_000, 0.25, 1e-6)


def test_nonsense_is_refused():
    law = ClonesLaw((Binomial(5, Dyadic(1, 1)),))
    response = RandomizedResponseLaw(5, Dyadic(1, 1), 3)
    for bad in (law.delta_at, response.delta_at, BlanketLaw(5, Dyadic(1, 1), 3).delta_at):
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ParameterError):
                bad(epsilon)
    for given in ({"alpha": 0.4}, {"weight": 1.5}, {"sure": -1}):
        with pytest.raises(ParameterError):
            ClonesLaw((), **given)
    with pytest.raises(ParameterError):
        exact_delta([[0.5, 0.4], [0.5, 0.5]], 2, 0.1)
    with pytest.raises(ParameterError, match="enumerate"):
        exact_delta(response_channel(6, 0.5), 30, 0.1)
    with pytest.raises(ParameterError):
        BlanketLaw(0, Dyadic(1, 1), 3)


def test_trivial_laws():
    assert RandomizedResponseLaw(10, Dyadic(1, 0), 5).delta_at(0.0) == 0.0
    assert RandomizedResponseLaw(10, Dyadic(0, 0), 5).delta_at(3.0) == 1.0
    assert RandomizedResponseLaw(10, Dyadic(1, 2), 1).delta_at(0.0) == 0.0
    assert clones_delta(2.1, 1, 2.0) == 0.0
    assert clones_delta(1.0, 1, 2.0) == pytest.approx((math.exp(2) - math.e) / (1 + math.exp(2)), rel=1e-9)


@pytest.mark.parametrize(
    ("users", "cells", "epsilon", "delta"),
    [
        (10, 2, 1.0, 1e-6),
        (10, 500, 0.01, 1e-12),
        (10**4, 16, 1.0, 1e-6),
        (10**9, 10**6, 0.1, 1e-9),
        (50, 7, 10.0, 1e-4),
    ],
)
def test_least_slots_are_least(users, cells, epsilon, delta):
    slots = least_slots(users, cells, epsilon, delta)
    assert slots.law(users, cells).delta_at(epsilon) <= delta
    mean = slots.mean * (1 - 1e-6)
    fewer = type(slots)(math.floor(mean), Dyadic.at_least(mean - math.floor(mean)))
    assert fewer.law(users, cells).delta_at(epsilon) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    ("users", "values", "epsilon", "delta"),
    [
        (10, 2, 1.0, 1e-6),
        (1000, 16, 1.0, 1e-6),
        (10**4, 2, 0.5, 1e-6),
        (10**6, 100, 0.1, 1e-8),
        (10**9, 10**7, 1.0, 1e-6),
    ],
)
def test_least_blankets_are_least(users, values, epsilon, delta):
    blanket = least_blanket(users, values, epsilon, delta)
    law = RandomizedResponseLaw(users, blanket, values)
    assert law.delta_at(epsilon) <= delta
    less = RandomizedResponseLaw(users, Dyadic.at_least(float(blanket) * (1 - 2e-4)), values)
    assert less.delta_at(epsilon) > delta


def test_too_few_users_for_response_channel():
    with pytest.raises(InfeasibleError, match="too few"):
        least_blanket(10, 1000, 0.1, 1e-8)


def test_one_cell_or_value_needs_no_noise():
    assert least_slots(5, 1, 1.0, 1e-6).mean == 0
    assert float(least_blanket(5, 1, 1.0, 1e-6)) == 0


def test_laws_fall_with_epsilon_and_invert():
    law = RandomizedResponseLaw(1000, Dyadic.of(0.2), 8)
    deltas = [law.delta_at(epsilon) for epsilon in np.linspace(0, 2, 9).tolist()]
    assert deltas == sorted(deltas, reverse=True)
    epsilon = least_epsilon(law, 1e-6)
    assert law.delta_at(epsilon) <= 1e-6 < law.delta_at(epsilon * (1 - 1e-6))
