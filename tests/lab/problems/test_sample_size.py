"""Sample sizes: all rows and columns of the specification, Table 2, conditions."""

import math

import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.lab.problems import (
    Method,
    PointerChasing,
    PointerJumping,
    SupportIdentification,
    central_rate,
    direct_sample_size,
    exact_sample_size,
    local_rate,
    local_rate_scope,
    paper_sample_size,
    shuffled_rate,
)
from shuffledp.lab.problems.sample_size import coupon_users, least_number

# Reference values: epsilon, delta, h, mu, t, k, n by Chernoff, by the exact coupon, direct with paper noise, with tight
# noise; then the last two as computed here, by a finer search
ROWS = [
    (1.0, 1e-6, 2, 3040, 3325, 6652, 26608, 13631, 6374, 163, 6373, 163),
    (1.0, 1e-6, 10, 3040, 3358, 6717, 134338, 69760, 32752, 768, 32743, 768),
    (1.0, 1e-6, 100, 3040, 3399, 6800, 1359938, 712392, 333696, 8452, 333634, 8449),
    (1.0, 1e-6, 1000, 3040, 3436, 6874, 13747732, 7246229, 3383296, 91744, 3382375, 91736),
    (0.5, 1e-6, 2, 12161, 12732, 25464, 101857, 51567, 24904, 538, 24899, 538),
    (0.5, 1e-6, 10, 12161, 12797, 25594, 511885, 260975, 126240, 2005, 126240, 2005),
    (0.5, 1e-6, 100, 12161, 12879, 25760, 5151966, 2638600, 1274880, 20560, 1274597, 20556),
    (0.5, 1e-6, 1000, 12161, 12954, 25908, 51816352, 26625822, 12836864, 216192, 12835857, 216170),
    (1.0, 1e-8, 2, 3961, 4287, 8575, 34298, 17521, 8256, 231, 8255, 231),
    (1.0, 1e-8, 10, 3961, 4324, 8649, 172976, 89424, 42288, 1029, 42277, 1029),
    (1.0, 1e-8, 100, 3961, 4371, 8743, 1748665, 911068, 429824, 11108, 429819, 11105),
    (1.0, 1e-8, 1000, 3961, 4413, 8828, 17655986, 9249002, 4352000, 119328, 4350430, 119300),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_the_paper_columns(row):
    epsilon, delta, size, mean, radius, copies, chernoff, exact, *_ = row
    found = paper_sample_size(size, epsilon, delta)
    assert round(found.noise_mean) == mean
    assert round(found.error_radius) == radius
    assert found.least_count in (copies, copies + 1)  # printed rounded; a count is rounded up
    assert found.users in (chernoff, chernoff + 1)  # the same
    assert found.users_exact_coupon == exact


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
@pytest.mark.parametrize("calibration", ["paper", "tight"])
def test_the_direct_columns(row, calibration):
    """Enough is as many as stated and not one less; never more than the specification says."""
    epsilon, delta, size = row[:3]
    printed, users = (row[8], row[10]) if calibration == "paper" else (row[9], row[11])
    assert printed * 0.999 < users <= printed
    problem = SupportIdentification(size, 10**30)
    method = Method(epsilon=epsilon, delta=delta, calibration=calibration)
    assert method.identifier(problem, users).success_at_least >= 0.99
    assert method.identifier(problem, users - 1).success_at_least < 0.99


def test_the_direct_sample_size_is_found():
    method = Method(epsilon=1.0, delta=1e-6)
    assert direct_sample_size(SupportIdentification(10, 10**30), method) == 768
    assert direct_sample_size(PointerJumping(10**4, 10), method) == 768
    assert direct_sample_size(PointerChasing(2, 10**6), method) == 163
    assert direct_sample_size(PointerChasing(1, 10**6), method) == 160  # one of the two items is enough
    paper = Method(epsilon=1.0, delta=1e-6, calibration="paper")
    assert direct_sample_size(PointerChasing(2, 10**6), paper) == 6373


def test_the_exact_sample_size_is_not_larger_than_the_proven_one():
    for protocol in ("balcer-cheu", "stability"):
        method = Method(epsilon=1.0, delta=1e-6, protocol=protocol)
        for problem in (PointerChasing(2, 9), SupportIdentification(30, 10**30)):
            exact, proven = exact_sample_size(problem, method), direct_sample_size(problem, method)
            assert 0.98 * proven <= exact <= proven
    with pytest.raises(ParameterError, match="empty items are never reported"):
        exact_sample_size(PointerChasing(2, 9), Method(epsilon=1.0, delta=1e-6, protocol="unary"))


def test_models_in_the_order_of_their_trust():
    needed = {
        protocol: direct_sample_size(PointerChasing(2, 1000), Method(epsilon=1.0, delta=1e-6, protocol=protocol))
        for protocol in ("stability", "balcer-cheu", "unary")
    }
    assert needed["stability"] < needed["balcer-cheu"] < needed["unary"] / 100


def test_only_without_exact_zeros_the_domain_matters():
    small, large = PointerChasing(2, 10), PointerChasing(2, 1000)
    for protocol in ("stability", "balcer-cheu"):
        method = Method(epsilon=1.0, delta=1e-6, protocol=protocol)
        assert direct_sample_size(small, method) == direct_sample_size(large, method)
    method = Method(epsilon=1.0, delta=1e-6, protocol="unary")
    growth = direct_sample_size(large, method) / direct_sample_size(small, method)
    assert growth == pytest.approx(large.log_domain_size / small.log_domain_size, rel=0.6)


def test_ten_to_the_sixth_in_the_local_model():
    assert (
        direct_sample_size(PointerChasing(2, 10**6), Method(epsilon=1.0, delta=1e-6, protocol="unary")) == 407_014_993
    )


def test_coupons():
    users = coupon_users(3, 2, 0.01)
    chances = [sum(math.comb(n, k) * 2 ** (n - k) for k in (0, 1)) / 3**n for n in (users - 1, users)]
    assert 3 * chances[0] > 0.01 >= 3 * chances[1]
    assert coupon_users(1, 17, 0.01) == 17


def test_rates_of_table_2():
    chasing, jumping = PointerChasing(2, 10**6), PointerJumping(10**4, 10)
    log = math.log(1e6)
    assert shuffled_rate(chasing, 0.5, 1e-6) == pytest.approx(4 * log)
    assert central_rate(chasing, 0.5, 1e-6) == pytest.approx(2 * log)
    assert local_rate(chasing, 0.5) == pytest.approx(1e6 / math.exp(0.5))
    assert shuffled_rate(jumping, 0.5, 1e-6) == pytest.approx(10 * math.log(10) * 4 * log)
    assert central_rate(jumping, 0.5, 1e-6) == pytest.approx(10 * math.log(10) * 2 * log)
    assert local_rate(jumping, 0.5) == pytest.approx(4000 / math.log(10))
    assert local_rate_scope(chasing) == "non-interactive local protocols with k = 2"
    assert local_rate_scope(jumping) == "sequentially interactive local protocols with s = h^4"


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda: paper_sample_size(2, 1.5, 1e-6), "Claim 14 needs epsilon <= 1; given 1.5"),
        (lambda: paper_sample_size(1000, 1.0, 0.999999), None),
        (lambda: paper_sample_size(10**6, 1.0, 0.95), r"Claim 14 needs delta/2 < \(1 / \(200 h\)\)\^\(1/25\) = 0.4655"),
        (lambda: shuffled_rate(SupportIdentification(10, 100), 1.0, 0.8), r"needs delta < .* = 0.7378"),
        (lambda: local_rate(PointerChasing(3, 10), 1.0), "needs k = 2; given 3"),
        (lambda: local_rate(PointerJumping(10, 10), 1.0), "needs s = h\\^4 and h >= 2; given s = 10 and h = 10"),
        (lambda: local_rate(SupportIdentification(2, 10), 1.0), "no local lower bound"),
    ],
)
def test_conditions(compute, words):
    if words is None:
        compute()  # 0.5 is below (1 / 200,000)^(1/25) = 0.61
        return
    with pytest.raises(ConditionError, match=words):
        compute()


def test_bad_input():
    with pytest.raises(ParameterError, match="epsilon must be a positive number"):
        paper_sample_size(2, 0.0, 1e-6)
    with pytest.raises(ParameterError, match=r"\(h\) must be at least 1"):
        paper_sample_size(0, 1.0, 1e-6)
    with pytest.raises(ParameterError, match="epsilon must be a positive number"):
        local_rate(PointerChasing(2, 5), -1.0)
    with pytest.raises(ConditionError, match="Theorem 12 needs epsilon <= 2; given 3"):
        direct_sample_size(PointerChasing(2, 5), Method(epsilon=3.0, delta=1e-6, calibration="paper"))
    with pytest.raises(InfeasibleError, match="unary would need more than 1,099,511,627,776 users for pointer jumping"):
        direct_sample_size(PointerJumping(10**4, 10), Method(epsilon=1.0, delta=1e-6, protocol="unary"))


@pytest.mark.parametrize("least", [2, 3, 17, 64, 1000])
@pytest.mark.parametrize("start", [1, 2, 16, 5000])
def test_the_least_number(least, start):
    assert least_number(lambda number: number >= least, start=start) == least


def test_no_number_is_enough():
    with pytest.raises(InfeasibleError, match="More than 1,000 users"):
        least_number(lambda number: False, start=3, maximum=1000)


def test_calibrations_that_fail_are_not_repeated(monkeypatch):
    """One failed calibration tells how many users are needed; a problem with the same support repeats none."""
    kind = Method(epsilon=0.93, delta=1e-6).kind
    honest, failed = kind.for_target.__func__, []

    def counted(cls, target, *domain, **options):
        try:
            return honest(cls, target, *domain, **options)
        except InfeasibleError:
            failed.append(target.users)
            raise

    monkeypatch.setattr(kind, "for_target", classmethod(counted))
    first = direct_sample_size(PointerChasing(2, 30), Method(epsilon=0.93, delta=1e-6))
    assert len(failed) <= 1
    failed.clear()
    assert direct_sample_size(PointerChasing(2, 40), Method(epsilon=0.93, delta=1e-6)) == first
    assert failed == []
