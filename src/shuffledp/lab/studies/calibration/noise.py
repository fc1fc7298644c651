"""The noise that a theorem requires and the least noise that meets the same target, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shuffledp.errors import ConditionError
from shuffledp.lab.studies.integer_accountant import Enclosure, count_delta, histogram_delta
from shuffledp.lab.studies.token_checks import printed_alpha, printed_mean
from shuffledp.privacy.balcer_cheu import CurveOf, least_users, paper_noise, tight_noise
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, least_ratio
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.smoothness import corollary_24_users, lemma_23_mean
from shuffledp.protocols.count.balcer_cheu import theorem_11_alpha
from shuffledp.protocols.histogram.balcer_cheu import theorem_12_alpha
from shuffledp.protocols.parts.postprocessing import SurplusAnalysis
from shuffledp.randomness import Dyadic
from shuffledp.search import bisect

BETA = 0.05


@dataclass(frozen=True)
class Question:
    """A count or a histogram: replacing one user changes one number or two."""

    name: str
    coordinates: int
    curve_of: CurveOf
    exact_delta: Callable[[int, Fraction, float], Enclosure]
    """Delta by integer arithmetic, which shares no code with ``curve_of``."""

    def errors_of_theorem(self, users: int, epsilon: float, delta: float) -> tuple[float, float]:
        """The error bounds of the theorem for each number, and for up to ``users`` numbers together."""
        if self.coordinates == 1:
            alphas = [theorem_11_alpha(users, epsilon, delta, beta) for beta in (BETA, BETA / users)]
        else:
            half = epsilon / 2, delta / 2
            alphas = [theorem_12_alpha(users, *half, BETA, simultaneous=together) for together in (False, True)]
        return users * alphas[0], users * alphas[1]


QUESTIONS = (
    Question("count", 1, BinomialCount, count_delta),
    Question("histogram", 2, BinomialHistogram, histogram_delta),
)


def noise_row(question: Question, users: int, epsilon: float, delta: float) -> dict[str, Any]:
    """All numbers of one target; those of a theorem whose conditions do not hold are missing."""
    parts = question.coordinates
    per_coordinate = epsilon / parts, delta / parts
    tight = tight_noise(users, epsilon, delta, question.curve_of)
    row: dict[str, Any] = {
        "question": question.name,
        "epsilon": epsilon,
        "delta": delta,
        "users": users,
        "tight_mean": users * float(tight),
        "tight_variance": Binomial(users, tight).variance,
        "tight_true_delta": _delta(question, users, tight, epsilon),
        "tight_exact_delta": question.exact_delta(users, tight.fraction, epsilon).high,
        "lemma_23_mean": (lemma := lemma_23_mean(*per_coordinate)),
        "lemma_23_variance": _variance(users, lemma),
        "lemma_23_true_delta": _delta_of_mean(question, users, lemma, epsilon),
        "gaussian_variance": parts * gaussian_variance(epsilon, delta),
        "laplace_variance": DiscreteLaplace(least_ratio(epsilon, coordinates=parts)).variance,
        "least_mean": -users * math.expm1(math.log(delta) / users),
        "tight_least_users": least_users(epsilon, delta, question.curve_of),
    }
    if parts == 2:
        row["tight_halves_mean"] = users * float(tight_noise(users, *per_coordinate, BinomialCount))
    row |= _of_formula(question, users, epsilon, delta) | _radii("tight", users, tight)
    try:
        paper = paper_noise(users, epsilon, delta, coordinates=parts)
    except ConditionError:
        return row
    promised, promised_together = question.errors_of_theorem(users, epsilon, delta)
    curve = question.curve_of(Binomial(users, paper))
    row |= {
        "paper_mean": users * float(paper),
        "paper_variance": Binomial(users, paper).variance,
        "paper_true_delta": curve.delta_at(epsilon),
        "paper_exact_delta": question.exact_delta(users, paper.fraction, epsilon).high,
        "paper_true_epsilon": least_epsilon(curve, delta),
        "paper_least_users": corollary_24_users(*per_coordinate),
        "theorem_radius": promised,
        "theorem_radius_together": promised_together,
        "printed_radius": users * printed_alpha(users, *per_coordinate, BETA),
        "printed_radius_together": users * printed_alpha(users, *per_coordinate, BETA / users),
    }
    row["variance_ratio"] = row["paper_variance"] / row["tight_variance"]
    return row | _radii("paper", users, paper)


def _of_formula(question: Question, users: int, epsilon: float, delta: float) -> dict[str, Any]:
    """The formula of Corollary 24 without its conditions, and the true delta of its noise."""
    mean = printed_mean(epsilon, delta, question.coordinates)
    return {
        "formula_mean": mean,
        "formula_variance": _variance(users, mean),
        "formula_true_delta": _delta_of_mean(question, users, mean, epsilon),
    }


def _variance(users: int, mean: float) -> float | None:
    """The variance of binomial noise with this mean; None if there are too few users for it."""
    return mean * (1 - mean / users) if 2 * mean <= users else None


def _delta_of_mean(question: Question, users: int, mean: float, epsilon: float) -> float | None:
    """The true delta of binomial noise with this mean; None if there are too few users for it."""
    return _delta(question, users, Dyadic.at_least(mean / users), epsilon) if 2 * mean <= users else None


def _delta(question: Question, users: int, absence: Dyadic, epsilon: float) -> float:
    return question.curve_of(Binomial(users, absence)).delta_at(epsilon)


def _radii(name: str, users: int, absence: Dyadic) -> dict[str, Any]:
    """The error that 95 of 100 rounds stay below: of one number, of ``users`` numbers, and of one without threshold."""
    noise = Binomial(users, absence)
    return {
        f"{name}_radius": SurplusAnalysis(noise, 1, "threshold", BETA).expected_error().max_error,
        f"{name}_radius_together": SurplusAnalysis(noise, users, "threshold", BETA).expected_error().max_error,
        f"{name}_radius_unbiased": SurplusAnalysis(noise, 1, "unbiased", BETA).expected_error().max_error,
    }


def gaussian_variance(epsilon: float, delta: float) -> float:
    """The least variance at which normal noise on one number that changes by 1 is (epsilon, delta)-private.

    Balle and Wang (2018): Phi(1/(2 s) - epsilon s) - e^epsilon Phi(-1/(2 s) - epsilon s) <= delta. Two numbers that
    change by 1 each need twice the variance.
    """
    from scipy.special import log_ndtr

    def excess(s: float) -> float:
        first, second = (float(log_ndtr(sign / (2 * s) - epsilon * s)) for sign in (1, -1))
        return math.exp(first) - math.exp(epsilon + second) - delta

    low, high = 1e-3, 1.0
    while excess(high) > 0:
        high *= 2
    return bisect(lambda s: excess(s) <= 0, low, high, relative=1e-12) ** 2
