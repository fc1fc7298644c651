"""Audit: lower bounds on epsilon from how often an event occurred under two neighbouring data sets.

If a mechanism is (epsilon, delta)-private, the probability of an event under one data set is at most e^epsilon times
its probability under a neighbour, plus delta. So if an event has probability at least ``low`` under one and at most
``high`` under the other, then epsilon >= ln((low - delta) / high). The intervals of Clopper and Pearson (1934) give
both bounds with a stated risk for any number of trials. The event is learned from one sample and counted in another;
on the same sample the risk would be larger than stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.checks import check_confidence, check_delta, check_epsilon
from shuffledp.errors import ParameterError

Rows = NDArray[Any]
Floats = NDArray[np.float64]

_MAX_CUTS = 400
_SHOWN = 4  # outcomes that a description lists
_ROUNDING = 1e-9
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, hence invertible modulo 2^64


def proportion_bounds(hits: ArrayLike, trials: ArrayLike, risk: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the true probability; each is wrong with a probability of at most ``risk``."""
    from scipy.special import betainccinv, betaincinv

    successes, total = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if not 0 < risk < 1 or np.any(total < 1) or np.any(successes < 0) or np.any(successes > total):
        raise ParameterError(
            f"Bounds need a risk between 0 and 1 and no more hits than trials, not {risk:g}, {successes} of {total}.",
            risk=risk,
        )
    missed = total - successes
    low = np.where(successes > 0, betaincinv(np.maximum(successes, 1), missed + 1, risk), 0.0)
    high = np.where(missed > 0, betainccinv(successes + 1, np.maximum(missed, 1), risk), 1.0)
    return low * (1 - _ROUNDING), np.minimum(high * (1 + _ROUNDING), 1.0)


def _log_ratio(low: Floats, high: Floats, delta: float) -> Floats:
    """ln((low - delta) / high), or 0 if that is negative."""
    excess = np.maximum(low - delta, 0.0)
    return np.log(np.maximum(excess, high) / high)


@dataclass(frozen=True)
class Evidence:
    """How often one event occurred under either data set; a lower bound on the entire privacy curve.

    The event and the direction must have been chosen before these trials.
    """

    hits: int
    """Occurrences under the data set that is expected to make the event likely."""
    trials: int
    other_hits: int
    """Occurrences under the neighbouring data set."""
    other_trials: int
    risk: float
    """The probability that one of the two bounds is wrong; each has half of it."""

    @property
    def low(self) -> float:
        """Lower bound on the probability of the event under the first data set."""
        return float(proportion_bounds(self.hits, self.trials, self.risk / 2)[0])

    @property
    def high(self) -> float:
        """Upper bound on the probability of the event under the second data set."""
        return float(proportion_bounds(self.other_hits, self.other_trials, self.risk / 2)[1])

    def epsilon_at(self, delta: float) -> float:
        """Lower bound on epsilon at this delta."""
        check_delta(delta, allow_zero=True)
        return float(_log_ratio(np.array(self.low), np.array(self.high), delta))

    def delta_at(self, epsilon: float) -> float:
        """Lower bound on delta at this epsilon."""
        check_epsilon(epsilon)
        return max(0.0, self.low - math.exp(min(epsilon, 700.0)) * self.high)


def epsilon_lower_bound(
    hits: int, trials: int, other_hits: int, other_trials: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The lower bound on epsilon from one event in both directions, each with half of the risk."""
    check_confidence(confidence)
    risk = (1 - confidence) / 2
    forth = Evidence(hits, trials, other_hits, other_trials, risk)
    back = Evidence(other_hits, other_trials, hits, trials, risk)
    return max(forth.epsilon_at(delta), back.epsilon_at(delta))


class Event(Protocol):
    """A set of outcomes; an outcome is a row of numbers."""

    def occurred(self, rows: Rows) -> NDArray[np.bool_]:
        """For each outcome, whether the event occurred."""

    def describe(self, names: Sequence[str]) -> str:
        """A description of the event, given a name for each number of an outcome."""


@dataclass(frozen=True)
class Threshold:
    """The event that a weighted sum of the numbers is at least, or at most, a cut."""

    weights: tuple[float, ...]
    cut: float
    above: bool

    def occurred(self, rows: Rows) -> NDArray[np.bool_]:
        """For each outcome, whether its weighted sum is on the chosen side of the cut or equal to it."""
        scores = rows @ np.array(self.weights)
        occurred: NDArray[np.bool_] = scores >= self.cut if self.above else scores <= self.cut
        return occurred

    def describe(self, names: Sequence[str]) -> str:
        """The weighted sum and the cut."""
        used = [(name, weight) for name, weight in zip(names, self.weights, strict=True) if weight != 0]
        weighted = " + ".join(name if weight == 1 else f"{weight:.3g} x {name}" for name, weight in used)
        return f"{weighted} is {'at least' if self.above else 'at most'} {self.cut:.6g}"


@dataclass(frozen=True, eq=False)
class OutcomeSet:
    """The event that the outcome is one of a list."""

    outcomes: NDArray[np.int64]

    def occurred(self, rows: Rows) -> NDArray[np.bool_]:
        """For each outcome, whether it is in the list."""
        return np.isin(_keys(rows), _keys(self.outcomes))

    def describe(self, names: Sequence[str]) -> str:
        """The first few outcomes of the list, and the number of the others."""
        listed = [_in_brackets(list(map(str, row))) for row in self.outcomes[:_SHOWN].tolist()]
        others = len(self.outcomes) - len(listed)
        return f"{_in_brackets(names)} is {' or '.join(listed)}{f' or one of {others:,} more' if others else ''}"


def _in_brackets(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


@dataclass(frozen=True)
class Learned:
    """An event, and the bound on epsilon that is expected from it in a new sample."""

    event: Event
    expected_epsilon: float


def learn_event(first: Rows, second: Rows, *, delta: float, risk: float, trials: int) -> Learned:
    """The event, likelier under the first data set, with the largest bound on epsilon expected in new samples.

    Samples are matrices of integers with one outcome per row. Candidates are lists of outcomes, thresholds of each
    number, and thresholds of the weighted sum that separates the samples best. ``trials`` is the planned number of
    trials under either data set.
    """
    one, other = _matrix(first), _matrix(second)
    candidates = [learn_outcomes(one, other, delta=delta, risk=risk, trials=trials)]
    columns = one.shape[1]
    directions = [tuple(float(index == column) for index in range(columns)) for column in range(columns)]
    if columns > 1:
        directions.append(_best_direction(one[::2], other[::2]))
    for weights in directions:
        scores = one @ np.array(weights), other @ np.array(weights)
        threshold, expected_epsilon = _best_cut(*scores, delta=delta, risk=risk, trials=trials)
        candidates.append(Learned(Threshold(weights, *threshold), expected_epsilon))
    return max(candidates, key=lambda learned: learned.expected_epsilon)


def learn_threshold(first: ArrayLike, second: ArrayLike, *, delta: float, risk: float, trials: int) -> Learned:
    """The best threshold of real scores, passed more often under the first data set."""
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    threshold, expected_epsilon = _best_cut(one, other, delta=delta, risk=risk, trials=trials)
    return Learned(Threshold((1.0,), *threshold), expected_epsilon)


def learn_outcomes(first: Rows, second: Rows, *, delta: float, risk: float, trials: int) -> Learned:
    """The best list of outcomes: ranked by likelihood ratio on one half of the samples, truncated on the other half."""
    one, other = _matrix(first), _matrix(second)
    ranked, border = np.concatenate((one[::2], other[::2])), len(one[::2])
    distinct, first_rows, inverse = np.unique(_keys(ranked), return_index=True, return_inverse=True)
    counts = [np.bincount(part, minlength=len(distinct)) for part in (inverse[:border], inverse[border:])]
    order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
    totals = [np.cumsum(_occurrences(_keys(half[1::2]), distinct)[order]) for half in (one, other)]
    sizes = len(one[1::2]), len(other[1::2])
    expected = _expected_epsilon(totals[0], sizes[0], totals[1], sizes[1], delta=delta, risk=risk, trials=trials)
    best = int(np.argmax(expected))
    return Learned(OutcomeSet(ranked[first_rows[order[: best + 1]]]), float(expected[best]))


def _matrix(rows: Rows) -> NDArray[np.int64]:
    integers = np.asarray(rows, dtype=np.int64)
    matrix = integers.reshape(len(integers), -1)
    if len(matrix) < 4:
        raise ParameterError(f"{len(matrix)} outcomes are too few to learn from; give at least 4.")
    return matrix


def _keys(rows: Rows) -> NDArray[np.uint64]:
    """A hash of each row; if two rows collide, they count as one outcome, and every bound still holds."""
    integers = np.asarray(rows, dtype=np.int64).view(np.uint64)
    keys = np.zeros(len(integers), dtype=np.uint64)
    for column in range(integers.shape[1]):
        keys = keys * _MULTIPLIER + integers[:, column]  # modulo 2^64
    return keys


def _occurrences(keys: NDArray[np.uint64], selected: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How often each of the selected keys occurs."""
    distinct, counts = np.unique(keys, return_counts=True)
    _, positions, matches = np.intersect1d(selected, distinct, assume_unique=True, return_indices=True)
    occurrences = np.zeros(len(selected), dtype=np.int64)
    occurrences[positions] = counts[matches]
    return occurrences


def _best_direction(one: Rows, other: Rows) -> tuple[float, ...]:
    """Fisher's linear discriminant, scaled so that its largest weight is 1."""
    spread = np.atleast_2d(np.cov(one, rowvar=False) + np.cov(other, rowvar=False))
    ridge = (1e-10 * float(np.trace(spread)) + 1e-9) * np.eye(len(spread))
    weights = np.linalg.solve(spread + ridge, one.mean(axis=0) - other.mean(axis=0))
    largest = float(np.max(np.abs(weights)))
    return tuple((weights / largest).tolist()) if largest > 0 else (1.0,) * len(weights)


def _best_cut(
    one: Floats, other: Floats, *, delta: float, risk: float, trials: int
) -> tuple[tuple[float, bool], float]:
    """The best cut and its side, of at most 400 cuts; half of them lie in the tails, where ratios are large."""
    ordered = np.unique(np.concatenate((one, other)))
    if len(ordered) > _MAX_CUTS:
        tail = np.geomspace(1, len(ordered) / 2, _MAX_CUTS // 4).astype(np.int64) - 1
        even = np.linspace(0, len(ordered) - 1, _MAX_CUTS // 2).astype(np.int64)
        ordered = ordered[np.unique(np.concatenate((tail, len(ordered) - 1 - tail, even)))]
    one, other = np.sort(one), np.sort(other)
    best, largest = (float(ordered[0]), True), -1.0
    for above in (True, False):
        side = "left" if above else "right"
        below = [np.searchsorted(scores, ordered, side=side) for scores in (one, other)]  # type: ignore[call-overload]
        hits = [len(one) - below[0], len(other) - below[1]] if above else below
        expected = _expected_epsilon(hits[0], len(one), hits[1], len(other), delta=delta, risk=risk, trials=trials)
        index = int(np.argmax(expected))
        if expected[index] > largest:
            best, largest = (float(ordered[index]), above), float(expected[index])
    return best, largest


def _expected_epsilon(
    hits: NDArray[Any],
    total: int,
    other_hits: NDArray[Any],
    other_total: int,
    *,
    delta: float,
    risk: float,
    trials: int,
) -> Floats:
    """The bound on epsilon expected from new trials, if this sample is too favourable by one standard deviation."""
    likely = np.maximum(hits - np.sqrt(hits), 0) / total
    unlikely = np.minimum(other_hits + np.sqrt(other_hits) + 1, other_total) / other_total
    low, _ = proportion_bounds(np.floor(likely * trials), trials, risk / 2)
    _, high = proportion_bounds(np.floor(unlikely * trials), trials, risk / 2)
    return _log_ratio(low, high, delta)
