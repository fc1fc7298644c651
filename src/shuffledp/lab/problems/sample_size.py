"""Sample sizes for identifying a support, with explicit constants, and the rates of Table 2.

All numbers are for success with probability 99/100, as in Definition 13. *Direct* sample sizes follow from the exact
distribution of the reported items and a union bound over the support; the paper's follow from Theorem 12 and a coupon
collector argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shuffledp.checks import check_positive_epsilon, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError, ShuffledpError
from shuffledp.lab.problems.exact_zeros import ExactZeros, paper_radius
from shuffledp.lab.problems.identification import Method
from shuffledp.lab.problems.pointer_chasing import PointerChasing
from shuffledp.lab.problems.pointer_jumping import PointerJumping
from shuffledp.lab.problems.problem import Problem
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import Dyadic
from shuffledp.search import bisect_integers

SUCCESS = 0.99
"""The success probability that is required."""
MAX_SAMPLES = 1 << 40

_COUPON_RISK = 1 / 200


@dataclass(frozen=True)
class PaperSampleSize:
    """Claim 14 with its constants written out."""

    noise_mean: float
    """mu = 200 ln(4/delta) / epsilon^2: the noise of Theorem 12, at half of epsilon and delta per changed count."""
    error_radius: float
    """t: the error of every count is at most this, except with probability 1/200."""
    least_count: int
    """k = 2t + 1: the number of samples of every item that suffices."""
    users: int
    """The sample size by a Chernoff bound on the coupon collector."""
    users_exact_coupon: int
    """The sample size by the exact binomial distribution of an item's samples."""


def paper_sample_size(support_size: int, epsilon: float, delta: float) -> PaperSampleSize:
    """The sample size of the proof of Claim 14 of Balcer and Cheu (2020) for an overall (epsilon, delta).

    Each item has n/h samples on average. With n/h >= 2k it has fewer than k with probability at most
    exp(-n / (8 h)), which is at most 1 / (200 h) if n/h >= 8 ln(200 h).
    """
    _check_claim_14(support_size, epsilon, delta)
    mean = 200 * math.log(4 / delta) / epsilon**2
    radius = paper_radius(mean, support_size)
    copies = 2 * radius + 1
    chernoff = support_size * max(2 * copies, 8 * math.log(200 * support_size))
    least_private = math.ceil(2 * mean)  # Theorem 11 needs a probability of at most 1/2 to leave a token out
    return PaperSampleSize(
        noise_mean=mean,
        error_radius=radius,
        least_count=math.ceil(copies),
        users=max(math.ceil(chernoff), least_private),
        users_exact_coupon=max(coupon_users(support_size, math.ceil(copies), _COUPON_RISK), least_private),
    )


def coupon_users(support_size: int, copies: int, risk: float) -> int:
    """The fewest samples with h Pr[Bin(n, 1/h) < copies] <= risk: then every item occurs ``copies`` times or more."""
    if support_size == 1:
        return copies
    share = Dyadic.at_least(Fraction(1, support_size), bits=160)

    def enough(users: int) -> bool:
        return support_size * float(Binomial(users, share).lower_tail(copies - 1)) <= risk

    return least_number(enough, start=support_size * copies)


def direct_sample_size(problem: Problem, method: Method) -> int:
    """The fewest users for whom success with probability 99/100 is proven, with the noise that is actually drawn.

    The noise is calibrated for each number of users, so the proven probability is not exactly monotone: the returned
    number is enough and the next smaller one is not, but some smaller number might be.
    """
    return _least_users(problem, method, lambda users: method.identifier(problem, users).success_at_least >= SUCCESS)


def exact_sample_size(problem: Problem, method: Method) -> int:
    """The fewest users with exact success probability 99/100; only where empty items are estimated as exactly 0."""

    def enough(users: int) -> bool:
        identifier = method.identifier(problem, users)
        if not isinstance(identifier, ExactZeros):
            raise ParameterError(
                f"The exact probability of success is available only where empty items are never reported, not for "
                f"{method.protocol} with the rule {method.rule}."
            )
        return identifier.success_probability >= SUCCESS

    return _least_users(problem, method, enough)


def shuffled_rate(problem: Problem, epsilon: float, delta: float) -> float:
    """Table 2, shuffled: h ln(h) ln(1/delta) / epsilon^2 (without h ln h for pointer chasing), up to a constant.

    Claim 14 requires delta < (1 / (200 h))^(1/25).
    """
    _check_claim_14(problem.support_size, epsilon, 2 * delta, per_count=True)
    return _support_factor(problem) * math.log(1 / delta) / epsilon**2


def central_rate(problem: Problem, epsilon: float, delta: float) -> float:
    """Table 2, central: epsilon times the rate of the shuffled model, up to a constant."""
    check_target(epsilon, delta)
    return _support_factor(problem) * math.log(1 / delta) / epsilon


def local_rate(problem: Problem, epsilon: float) -> float:
    """Table 2, local: a lower bound, up to a constant, on the samples that certain local protocols need.

    l / e^epsilon for pointer chasing with k = 2, for non-interactive protocols only (Joseph, Mao and Roth 2020);
    h^3 / (epsilon^2 ln h) for pointer jumping with s = h^4, even with sequential interaction (Joseph, Mao, Neel and
    Roth 2019).
    """
    check_positive_epsilon(epsilon)
    if isinstance(problem, PointerChasing):
        if problem.steps != 2:
            raise ConditionError(f"The lower bound for pointer chasing needs k = 2; given {problem.steps}.")
        return problem.length * math.exp(-epsilon)
    if isinstance(problem, PointerJumping):
        if problem.height < 2 or problem.branching != problem.height**4:
            raise ConditionError(
                f"The lower bound for pointer jumping needs s = h^4 and h >= 2; given s = {problem.branching:,} and "
                f"h = {problem.height:,}."
            )
        return problem.height**3 / (epsilon**2 * math.log(problem.height))
    raise ConditionError(f"Table 2 has no local lower bound for {problem.describe()}.")


def local_rate_scope(problem: Problem) -> str:
    """The protocols and parameters that the bound of ``local_rate`` holds for, as a phrase."""
    if isinstance(problem, PointerChasing):
        return "non-interactive local protocols with k = 2"
    return "sequentially interactive local protocols with s = h^4"


def least_number(enough: Callable[[int], bool], *, start: int, maximum: int = MAX_SAMPLES) -> int:
    """A number n >= 2 that is enough while n - 1 is not (or is 1); by doubling or halving ``start``, then bisection."""
    high = max(2, start)
    if enough(high):
        low = high
        while low > 1 and (low == high or enough(low)):
            high, low = low, max(1, low // 2)
    else:
        low = high
        while low == high or not enough(high):
            low, high = high, 2 * high
            if high > maximum:
                raise InfeasibleError(f"More than {maximum:,} users would be needed.", users=maximum)
    return bisect_integers(enough, low, high)


def _least_users(problem: Problem, method: Method, enough: Callable[[int], bool]) -> int:
    """Search for the fewest users; a number for which the protocol cannot be calibrated is not enough."""
    method.check_domain(problem)
    refusal: list[ShuffledpError] = []
    least_private = 0

    def private_and_enough(users: int) -> bool:
        nonlocal least_private
        if users < least_private:  # known from an earlier calibration error
            return False
        try:
            return enough(users)
        except (InfeasibleError, ConditionError) as error:
            refusal[:] = [error]
            needed = error.values.get("needed")
            least_private = max(least_private, needed) if isinstance(needed, int) else least_private
            return False

    try:
        return least_number(private_and_enough, start=64 * problem.support_size)
    except InfeasibleError as error:
        if refusal and isinstance(refusal[0], ConditionError):
            raise refusal[0] from None  # a condition that no number of users meets
        raise InfeasibleError(
            f"{method.protocol} would need more than {MAX_SAMPLES:,} users for {problem.describe()} at "
            f"epsilon = {method.epsilon:g} and delta = {method.delta:g}.",
            users=MAX_SAMPLES,
        ) from error


def _support_factor(problem: Problem) -> float:
    """h ln h, which is a constant for pointer chasing."""
    if isinstance(problem, PointerChasing) or problem.support_size == 1:
        return 1.0
    return problem.support_size * math.log(problem.support_size)


def _check_claim_14(support_size: int, epsilon: float, delta: float, *, per_count: bool = False) -> None:
    """Check the conditions of the claim, which apply to each changed count: half of the overall delta.

    If ``per_count``, the caller was given the delta of one count, and error messages name that delta.
    """
    check_target(epsilon, min(delta, 0.5) if per_count else delta)
    if support_size < 1:
        raise ParameterError(f"The size of the support (h) must be at least 1, not {support_size}.")
    if epsilon > 1:
        raise ConditionError(
            f"Claim 14 needs epsilon <= 1; given {epsilon:g}. The direct sample size has no such limit.",
            epsilon=epsilon,
        )
    largest = (1 / (200 * support_size)) ** (1 / 25)
    if not delta / 2 < largest:
        raise ConditionError(
            f"Claim 14 needs delta{'' if per_count else '/2'} < (1 / (200 h))^(1/25) = {largest:.4g}; "
            f"given {delta / 2:g}.",
            delta=delta,
        )
