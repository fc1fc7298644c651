"""Base class of protocols for quantiles, which count a value on every level of a tree over ordered bins."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.domain import DEFAULT_BINS, Bins
from shuffledp.errors import DomainError
from shuffledp.estimate import QuantileEstimate
from shuffledp.messages import MessageFormat, Tally
from shuffledp.protocols.flow import EstimatingProtocol
from shuffledp.protocols.parts.indexed import IndexedProtocol
from shuffledp.protocols.parts.tree import Tree, TreeFit
from shuffledp.protocols.parts.weighted_noise import Noise, WeightedNoise, bernstein_radius
from shuffledp.protocols.protocol import ExpectedError, check_estimator
from shuffledp.protocols.target import Target

Floats = NDArray[np.float64]

_EDGES_AT_ONCE = 64
QUANTILE_ESTIMATORS = ("unbiased", "monotone")


@dataclass(frozen=True)
class QuantilesProtocol(IndexedProtocol, EstimatingProtocol[QuantileEstimate]):
    """How many users lie below each edge of the bins, and with that every quantile and range."""

    question: ClassVar[str] = "quantiles"
    estimators: ClassVar[tuple[str, ...]] = QUANTILE_ESTIMATORS
    domain_options: ClassVar[tuple[str, ...]] = ("domain", "lower", "upper", "bins")

    domain: Bins
    branching: tuple[int, ...]
    """The children of a node, per level of the tree; the cells of the first level are the children of its root."""

    def __post_init__(self) -> None:
        self.tree  # noqa: B018 - checks that the levels fit the bins

    @classmethod
    def domain_arguments(
        cls,
        *,
        domain: Bins | None = None,
        lower: float | None = None,
        upper: float | None = None,
        bins: int | None = None,
    ) -> tuple[Bins]:
        """The bins between public bounds."""
        if domain is None:
            if lower is None or upper is None:
                raise DomainError("Quantiles need their bounds: give lower and upper, or domain.")
            return (Bins(lower, upper, DEFAULT_BINS if bins is None else bins),)
        if lower is not None or upper is not None or bins is not None:
            raise DomainError("Give the bins once: as lower, upper and bins, or as domain.")
        if not isinstance(domain, Bins):
            raise DomainError(f"The domain of quantiles is Bins, not {type(domain).__name__}.")
        return (domain,)

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target, domain: Bins, *, branching: tuple[int, ...] | None = None) -> Self:
        """The protocol's own calibration; ``branching`` is chosen for a small error if it is not given."""

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """Trees of fewer levels: fewer messages and larger errors."""
        return ({"branching": branching} for branching in branchings(settings["domain"].bins))

    @staticmethod
    def tree_of(domain: Bins, branching: tuple[int, ...]) -> Tree:
        """The cells of these levels; DomainError if they do not fit the bins."""
        return Tree(domain.bins, branching)

    @cached_property
    def tree(self) -> Tree:
        """The cells that a value is counted in."""
        return self.tree_of(self.domain, self.branching)

    @property
    def domain_size(self) -> int:
        """The number of bins."""
        return self.domain.bins

    @property
    def message_format(self) -> MessageFormat:
        """The number of a cell; cells are numbered level by level."""
        return MessageFormat((self.tree.nodes,))

    @abstractmethod
    def noises(self, users: int, tally: Tally | None = None) -> tuple[Noise, ...]:
        """The noise of each level for this number of users: expected, or conditional on what the tally reveals."""

    def centred(self, tally: Tally) -> list[Floats]:
        """Unbiased counts of the cells of each level."""
        return self.tree.levels_of(tally.counts.astype(np.float64))

    def estimate(self, tally: Tally, *, estimator: str = "") -> QuantileEstimate:
        """The estimated number of users below each edge."""
        estimator = estimator or self.estimators[0]
        self.check_round(tally, estimator)
        analysis = TreeAnalysis(self.tree, self.noises(tally.users), self.noises(tally.users, tally))
        below = np.cumsum(analysis.fit.bin_counts(self.centred(tally), tally.users))[:-1]
        return QuantileEstimate(
            **self.origin(tally, estimator),
            intervals=analysis.intervals(below, tally.users),
            edges=self.domain.edges,
            below=monotone(below, tally.users) if estimator == "monotone" else below,
            standard_errors=analysis.standard_errors,
            unbiased=below,
            radius_of=analysis.radius_of,
        )

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, users: int | None = None
    ) -> ExpectedError:
        """The error of the numbers of users below the edges: the root mean square and the maximum over all edges."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        check_confidence(confidence)
        noises = self.noises(users or self.users)
        return TreeAnalysis(self.tree, noises, noises).expected_error(confidence)

    def moved_by_report(self, messages: int) -> float:
        """The largest change of the number of users below an edge that a report of arbitrary messages can cause."""
        fit = TreeFit(self.tree, tuple(noise.variance for noise in self.noises(self.users)))
        largest = 0.0
        for start in range(1, self.domain_size, _EDGES_AT_ONCE):
            edges = np.arange(start, min(start + _EDGES_AT_ONCE, self.domain_size))
            below = (np.arange(self.domain_size) < edges[:, None]).astype(np.float64)
            effects = np.concatenate(fit.coefficients(below), axis=1)
            if self.message_format.flags:  # a message has either sign
                spread = 2 * np.abs(effects).max()
            else:  # a dummy changes nothing
                spread = (np.maximum(effects.max(axis=1), 0.0) - np.minimum(effects.min(axis=1), 0.0)).max()
            largest = max(largest, float(spread))
        return messages * largest

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:  # noqa: ARG002 - the noise is the same
        """The predicted error, which does not depend on the values."""
        return self.expected_error()

    def truth(self, values: NDArray[Any]) -> Floats:
        """How many users lie below each inner edge."""
        below: Floats = np.cumsum(self.summary(values))[:-1].astype(np.float64)
        return below


@dataclass(frozen=True, eq=False)
class TreeAnalysis:
    """From the noise of each level to the errors of what is estimated."""

    tree: Tree
    expected: tuple[Noise, ...]
    """The noise of each level before anything is seen: the weights of least squares follow from it."""
    noises: tuple[Noise, ...]
    """The noise of each level, given what is public about it: intervals follow from it."""

    @cached_property
    def fit(self) -> TreeFit:
        """Least squares, weighted by the expected noise of each level."""
        return TreeFit(self.tree, tuple(noise.variance for noise in self.expected))

    @cached_property
    def standard_errors(self) -> Floats:
        """Standard errors of the number of users below each inner edge."""
        return np.sqrt(self.fit.variances_below_edges)

    def radii(self, risk: float) -> Floats:
        """Bounds on the errors of these numbers, each exceeded with a probability of at most the risk (Bernstein)."""
        ratios = [
            noise.variance / expected.variance if expected.variance > 0 else 1.0
            for noise, expected in zip(self.noises, self.expected, strict=True)
        ]
        variances = self.fit.variances_below_edges * max(ratios)
        tail = max(noise.tail for noise in self.noises)
        return np.where(variances > 0, bernstein_radius(variances, tail, risk), 0.0)

    def radius_of(self, weights: Floats, risk: float) -> float:
        """A nearly exact bound on the error of sum(weights * counts of bins), exceeded with at most the risk."""
        return WeightedNoise(self.noises, self.fit.coefficients(weights)).radius(risk)

    def intervals(self, below: Floats, users: int) -> Callable[[float], Floats]:
        """From a confidence to an interval per inner edge that contains the truth with at least that probability."""
        return partial(self._intervals_at, below, users)

    def _intervals_at(self, below: Floats, users: int, confidence: float) -> Floats:
        radii = self.radii(1 - confidence)
        return np.clip(np.stack((below - radii, below + radii), axis=-1), 0.0, users)

    def expected_error(self, confidence: float) -> ExpectedError:
        """The root mean square error and the maximum error over all inner edges."""
        risk = (1 - confidence) / (self.tree.bins - 1)
        rmse = math.sqrt(float(np.mean(self.fit.variances_below_edges)))
        return ExpectedError(rmse, float(self.radii(risk).max()), confidence)


def monotone(below: Floats, users: int) -> Floats:
    """The nearest numbers that do not decrease, between 0 and the number of users (isotonic regression)."""
    from scipy.optimize import isotonic_regression

    return np.clip(isotonic_regression(below).x, 0.0, users)


def branchings(bins: int) -> list[tuple[int, ...]]:
    """Trees that calibrations try, from the most levels to one.

    >>> branchings(1024)
    [(2, 2, 2, 2, 2, 2, 2, 2, 2, 2), (4, 4, 4, 4, 4), (10, 10, 11), (32, 32), (1024,)]
    """
    result: list[tuple[int, ...]] = []
    for levels in (_levels(bins, 2), _levels(bins, 4), 3, 2, 1):
        branching = _equal(bins, levels)
        if branching not in result and (not result or len(branching) < len(result[-1])):
            result.append(branching)
    return result


def usual_branching(bins: int) -> tuple[int, ...]:
    """Four children per node: hardly larger errors than two, with half as many messages."""
    return _equal(bins, _levels(bins, 4))


def _levels(bins: int, children: int) -> int:
    """The fewest levels that reach all bins with this number of children per node."""
    levels = 1
    while children**levels < bins:
        levels += 1
    return levels


def _equal(bins: int, levels: int) -> tuple[int, ...]:
    """This number of levels with branching as equal as possible; fewer if two children per node reach all bins."""
    branching: list[int] = []
    rest = bins
    for left in range(levels, 0, -1):
        if rest > 1:
            step = rest if left == 1 else max(2, math.floor(round(rest ** (1 / left), 9)))
            branching.append(step)
            rest = -(-rest // step)
    return tuple(branching)
