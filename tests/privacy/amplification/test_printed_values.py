"""Amplification by shuffling: the numbers that the literature prints."""

import math

import pytest

from shuffledp.errors import ConditionError
from shuffledp.privacy.amplification import (
    METHODS,
    BlanketCurve,
    ClonesCurve,
    RandomizedResponseCurve,
    clones_curve,
    clones_delta,
    least_blanket,
    least_slots,
    two_response_delta,
)
from shuffledp.privacy.amplification.privacy_blanket import _ResponseSums
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


@pytest.mark.parametrize("rows", [ROWS[::2], pytest.param(ROWS[1::2], marks=pytest.mark.slow)], ids=["some", "others"])
@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_the_printed_table(column, rows):
    """None stands for a bound that is worse than the local epsilon; its value for an unmet condition."""
    for row in rows:
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
        curve = BlanketCurve(users, blanket_of(local_epsilon, values), values)
        assert curve.delta_at(printed + 5.1e-5) <= delta, row
        assert curve.delta_at(printed - 5.1e-5) > delta, row


def test_golden_values():
    curve = ClonesCurve((Binomial(999, Dyadic.of(0.1)),), 0.9)
    assert curve.delta_at(0.5) == pytest.approx(6.69288676766e-05, rel=1e-9)
    assert clones_delta(0.2, 10_000, 2.0) == pytest.approx(6.61476133487e-09, rel=1e-9)
    krr = BlanketCurve(10_000, blanket_of(2.0, 10), 10)
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
    balls = ClonesCurve((), sure=round(few.mean * 10_000))
    assert balls.delta_at(1.0) < 0.7e-6  # whoever counts balls as sure believes in too much privacy


def test_two_responses_of_cheu_et_al():
    """Section 3.2: a lambda of about 68 by enumeration and 85 by clones at (1, 1e-6, 10^4)."""

    def by_clones(size):
        return ClonesCurve((Binomial(9_999, Dyadic.of(size / 1e4)),), 1 - size / 2e4).delta_at(1.0)

    assert two_response_delta(10_000, 69 / 2e4, 1.0, ones=0) < 1e-6 < two_response_delta(10_000, 67 / 2e4, 1.0, ones=0)
    assert by_clones(86) < 1e-6 < by_clones(83)


def test_one_message_real_sum_needs_the_printed_noise():
    """Section 5.4: about 42 blanket messages a value at (1, 1e-6)."""
    found = float(least_blanket(10**6, 33, 1.0, 1e-6)) * 10**6 / 33
    assert found == pytest.approx(42.2, rel=0.02)
    assert BlanketCurve(10**4, blanket_of(5.53, 16), 16).delta_at(1.0) == pytest.approx(1e-6, rel=0.05)


def test_published_epsilons_of_programs_are_reproduced_or_improved():
    """The authors' program of clones prints 0.16754 to 0.17279; a blanket by FFT (2025) 0.02685 and 0.00856, and the
    variation-ratio program 0.0071840, for randomized response of 100 values; all at delta 1e-6."""
    assert least_epsilon(clones_curve(10**5, 4.0), 1e-6) == pytest.approx(0.16977, abs=1e-5)
    assert METHODS["stronger-clones"](10**4, 1.0, 1e-6) == pytest.approx(0.043206, abs=1e-6)  # printed: 0.043207
    names = ("clones-closed", "stronger-clones-closed", "clones", "stronger-clones")  # as on the page of errata
    assert [f"{METHODS[name](10**4, 1.0, 1e-6):.3g}" for name in names] == ["0.214", "0.18", "0.053", "0.0432"]
    blanket = Dyadic.at_least(100 / (math.e + 99))
    for users, printed, ours in ((10**3, 0.02685, 0.02547), (10**4, 0.0071840, 0.0071833)):
        found = least_epsilon(RandomizedResponseCurve(users, blanket, 100), 1e-6)
        assert found == pytest.approx(ours, rel=2e-4)
        assert found < printed


# brute force from below
