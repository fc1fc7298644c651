"""Base classes of the protocols for counts, histograms and sums.

The file of a protocol contains its parameters, calibration, randomizer, cost, guarantee and error distribution.
"""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Bit, Categories, Interval, Numbered, check_counts
from shuffledp.errors import DomainError, ParameterError
from shuffledp.estimate import CountEstimate, HistogramEstimate, SumEstimate
from shuffledp.messages import Messages, Tally, count_values
from shuffledp.protocols.flow import tally_round
from shuffledp.protocols.parts.category_noise import CategoryNoise
from shuffledp.protocols.parts.linear import LINEAR_ESTIMATORS, Analysis, check_estimator
from shuffledp.protocols.protocol import ExpectedError, Protocol, Value, check_enough_users
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, RandomSource

SUM_QUESTIONS = ("sum", "mean")
_NUMBERS_AT_A_TIME = 1 << 22
_INSIDE = 0.375


class _Checked(Protocol):
    """A protocol that checks a tally before it estimates from it."""

    def check_tally(self, tally: Tally) -> None:
        """Reject a tally that this many users who follow the protocol cannot produce."""

    def check_round(self, tally: Tally, estimator: str) -> None:
        """Refuse an unknown estimator, too few users, data without noise, and an impossible tally."""
        check_estimator(estimator, self.estimators)
        check_enough_users(tally.users, self.users)
        if self.trust == "central" and not tally.released:
            raise ParameterError("This tally holds the data without noise; release it first.")
        self.check_tally(tally)


class _Analysed(_Checked):
    """A protocol whose estimates come from an ``Analysis`` of the observed numbers."""

    estimators: ClassVar[tuple[str, ...]] = LINEAR_ESTIMATORS

    @abstractmethod
    def analysis(self, users: int) -> Analysis:
        """The analysis of the observations of ``users`` users."""

    def analysis_by(self, estimator: str, users: int) -> Analysis:  # noqa: ARG002
        """The analysis for one estimator, if it depends on the estimator."""
        return self.analysis(users)

    def _checked(self, tally: Tally, estimator: str) -> Analysis:
        self.check_round(tally, estimator)
        return self.analysis_by(estimator, tally.users)

    def _expected(self, estimator: str, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:
        estimator = estimator or self.estimators[0]
        check_estimator(estimator, self.estimators)
        return self.analysis_by(estimator, self.users).expected_error(confidence, truth)


class IndexedProtocol(_Checked):
    """A protocol over finitely many values, each with an index."""

    if TYPE_CHECKING:  # a field of the protocol, or always 2

        @property
        def domain_size(self) -> int:
            """The number of possible values."""

    @property
    def unit(self) -> float:
        """One user."""
        return 1.0

    def inputs(self, *, between: bool = False) -> tuple[int, ...]:  # noqa: ARG002
        """Every index."""
        return tuple(range(self.domain_size))

    def other_inputs(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next index."""
        return (values + 1) % self.domain_size

    def summary(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """How many users hold each index."""
        return count_values(values, self.domain_size)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from the true count of each value."""
        ends = np.cumsum(check_counts(counts, self.domain_size))
        portions = (
            np.searchsorted(ends, np.arange(start, end), side="right") for start, end in _portions(self, int(ends[-1]))
        )
        return _released(self, portions, source)


class CountProtocol(IndexedProtocol, _Analysed):
    """How many users hold a 1."""

    question: ClassVar[str] = "count"
    domain_options: ClassVar[tuple[str, ...]] = ("domain",)

    @property
    def domain(self) -> Bit:
        """Values are 0 and 1."""
        return BIT

    @property
    def domain_size(self) -> int:
        """Values are 0 and 1."""
        return 2

    @classmethod
    def domain_arguments(cls, *, domain: Bit | None = None) -> tuple[()]:
        """None: values are 0 and 1."""
        if domain is not None and not isinstance(domain, Bit):
            raise DomainError(f"A count is over the values 0 and 1, not over {domain!r}.")
        return ()

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target) -> Self:
        """The protocol's own calibration."""

    def estimate(self, tally: Tally, *, estimator: str = "") -> CountEstimate:
        """The estimated number of ones."""
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        observed = self.observed(tally)
        return CountEstimate(
            protocol=self.name,
            estimator=estimator,
            users=tally.users,
            guarantee=self.guarantee,
            intervals=analysis.intervals(observed),
            secure=tally.secure,
            value=float(analysis.estimate(observed, estimator)[0]),
            standard_error=float(analysis.standard_errors(observed)[0]),
            threshold_at=analysis.withheld_below,
        )

    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> CountEstimate:
        """A full round in this process, from bits to the estimate."""
        tally = tally_round(self, self.domain.encode_all(values), route=route, source=source)
        return self.estimate(tally, estimator=estimator)

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, counts: NDArray[np.int64] | None = None
    ) -> ExpectedError:
        """The predicted error, in the worst case or for given true numbers of ones."""
        return self._expected(estimator, confidence, counts)

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The number of ones."""
        return self.summary(values)[1:].astype(np.float64)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these bits."""
        return self.expected_error(counts=self.summary(values)[1:])


class HistogramProtocol(IndexedProtocol, _Analysed):
    """How many users hold each category."""

    question: ClassVar[str] = "histogram"
    domain_options: ClassVar[tuple[str, ...]] = ("domain_size", "categories", "domain")
    exact_zeros: ClassVar[bool] = False
    """Whether the default estimate of an empty category is always exactly 0."""
    independent_categories: ClassVar[bool] = False
    """Whether the observed numbers of categories are independent and distributed as ``category_noise``."""
    grows_with_domain: ClassVar[bool] = False
    """Whether the communication grows with the number of categories, not only with its logarithm."""
    domain_size: int
    categories: Categories | None

    def __post_init__(self) -> None:
        if self.domain_size < 1:
            raise DomainError(f"The domain needs at least one category, not {self.domain_size}.")
        if self.categories is not None and len(self.categories) != self.domain_size:
            raise DomainError(f"{len(self.categories)} categories do not make a domain of {self.domain_size}.")

    @property
    def domain(self) -> Categories | Numbered:
        """The possible values."""
        return self.categories or Numbered(self.domain_size)

    @classmethod
    def domain_arguments(
        cls,
        *,
        domain_size: int | None = None,
        categories: Categories | Iterable[str] | None = None,
        domain: Categories | Numbered | None = None,
    ) -> tuple[Categories | Numbered]:
        """The categories by name, or numbered from 0."""
        if domain is not None:
            if domain_size is not None or categories is not None:
                raise DomainError("Give the domain once: as domain, as categories or as domain_size.")
            if not isinstance(domain, (Categories, Numbered)):
                raise DomainError(
                    f"The domain of a histogram is Categories or Numbered, not {type(domain).__name__}; "
                    "give names as categories and a number as domain_size."
                )
            return (domain,)
        size, named = cls.sizes(domain_size, categories)
        if named is not None and len(named) != size:
            raise DomainError(f"{len(named)} categories do not make a domain of {size}.")
        return (named or Numbered(size),)

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The protocol's own calibration."""

    @staticmethod
    def sizes(domain_size: int | None, categories: Categories | Iterable[str] | None) -> tuple[int, Categories | None]:
        """The size of the domain and its names, from one of them or both."""
        named = categories if categories is None or isinstance(categories, Categories) else Categories.of(categories)
        size = domain_size if named is None or domain_size is not None else len(named)
        if size is None:
            raise DomainError("The domain is missing: give domain_size or categories.")
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool):
            raise DomainError(f"domain_size must be an integer, not {size!r}.")
        if size < 1:
            raise DomainError(f"The domain needs at least one category, not {size}.")
        return size, named

    @staticmethod
    def domain_fields(domain: Categories | Numbered) -> tuple[int, Categories | None]:
        """The fields ``domain_size`` and ``categories``."""
        return len(domain), domain if isinstance(domain, Categories) else None

    def estimate(self, tally: Tally, *, estimator: str = "") -> HistogramEstimate:
        """The estimated counts."""
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        observed = self.observed(tally)
        return HistogramEstimate(
            protocol=self.name,
            estimator=estimator,
            users=tally.users,
            guarantee=self.guarantee,
            intervals=analysis.intervals(observed),
            secure=tally.secure,
            categories=self.domain.names,
            counts=analysis.estimate(observed, estimator),
            standard_errors=analysis.standard_errors(observed),
            threshold_at=analysis.withheld_below,
        )

    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> HistogramEstimate:
        """A full round in this process, from categories (numbers if they have no names) to the estimate."""
        tally = tally_round(self, self.domain.encode_all(values), route=route, source=source)
        return self.estimate(tally, estimator=estimator)

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, counts: NDArray[np.int64] | None = None
    ) -> ExpectedError:
        """The predicted error: typical over all categories, or for given true counts."""
        return self._expected(estimator, confidence, counts)

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """How many users hold each category."""
        return self.summary(values).astype(np.float64)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these indices."""
        return self.expected_error(counts=self.summary(values))

    def entries_of(self, values: Sequence[Value], length: int) -> NDArray[np.int64] | None:
        """The indices themselves, if there is one number per category."""
        return np.array(values, dtype=np.int64) if length == self.domain_size else None

    @property
    def category_noise(self) -> CategoryNoise | None:
        """The distribution of the observed number of one category; None unless ``independent_categories``."""
        return None

    def chance_shown(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:  # noqa: ARG002
        """The probability of a positive estimate for these counts; only with ``exact_zeros``."""
        raise ParameterError(f"{self.name} also shows empty categories, so chance_shown is not defined.")


@dataclass(frozen=True)
class _AnsweredQuestion:
    """Which question the estimates answer; not a parameter, since users send the same for a sum and a mean."""

    answered_question: str = field(default="sum", init=False, compare=False)
    """``sum`` or ``mean``."""


class SumProtocol(_AnsweredQuestion, _Analysed):
    """The sum or mean of numbers in an interval. Randomizers take positions in it, from 0.0 to 1.0."""

    question: ClassVar[str] = "sum"
    domain_options: ClassVar[tuple[str, ...]] = ("domain", "lower", "upper", "whole")
    domain: Interval

    @classmethod
    def domain_arguments(
        cls,
        *,
        domain: Interval | None = None,
        lower: float | None = None,
        upper: float | None = None,
        whole: bool = False,
    ) -> tuple[Interval]:
        """The public bounds."""
        if domain is None:
            if lower is None or upper is None:
                raise DomainError("A sum needs its bounds: give lower and upper, or domain.")
            return (Interval(float(lower), float(upper), whole),)
        if lower is not None or upper is not None or whole:
            raise DomainError("Give the bounds once: as lower and upper, or as domain.")
        if not isinstance(domain, Interval):
            raise DomainError(
                f"The domain of a sum is an Interval, not {type(domain).__name__}; give bounds as lower and upper."
            )
        return (domain,)

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target, domain: Interval) -> Self:
        """The protocol's own calibration."""

    def answering(self, question: str) -> Self:
        """The same protocol, with estimates and errors of the ``sum`` or of the ``mean``."""
        if question not in SUM_QUESTIONS:
            raise ParameterError(
                f"A protocol for sums cannot answer {question!r}; choose one of {', '.join(SUM_QUESTIONS)}.",
                question=question,
            )
        other = copy.copy(self)  # keeps cached properties
        object.__setattr__(other, "answered_question", question)
        return other

    def summary(self, values: NDArray[Any]) -> NDArray[Any]:
        """Every user's position in the interval."""
        return values

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from every user's position in the interval."""
        portions = (values[start:end] for start, end in _portions(self, len(values)))
        return _released(self, portions, source)

    def estimate(self, tally: Tally, *, estimator: str = "") -> SumEstimate:
        """The estimated sum or mean, in the units of the interval."""
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        observed = self.observed(tally)
        intervals = analysis.intervals(observed)
        start, width = tally.users * self.domain.lower, self.domain.width
        total = SumEstimate(
            protocol=self.name,
            estimator=estimator,
            users=tally.users,
            guarantee=self.guarantee,
            intervals=lambda confidence: start + width * intervals(confidence),
            secure=tally.secure,
            value=start + width * float(analysis.estimate(observed, estimator)[0]),
            standard_error=width * float(analysis.standard_errors(observed)[0]),
            bounds=(start, start + width * tally.users),
        )
        return total.mean if self.answered_question == "mean" else total

    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> SumEstimate:
        """A full round in this process, from numbers in the interval to the estimated sum or mean."""
        tally = tally_round(self, self.domain.encode_all(values), route=route, source=source)
        return self.estimate(tally, estimator=estimator)

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, values: NDArray[np.float64] | None = None
    ) -> ExpectedError:
        """The predicted error in the units of the interval: in the worst case, or for given positions."""
        error = self._expected(estimator, confidence)
        variance = error.rmse**2 if values is None else self.variance(np.asarray(values, dtype=np.float64))
        unit = self.domain.width / (self.users if self.answered_question == "mean" else 1)
        return ExpectedError(
            rmse=unit * float(np.sqrt(variance)),
            max_error=unit * error.max_error,
            confidence=confidence,
        )

    @property
    def unit(self) -> float:
        """The width of the interval."""
        return self.domain.width

    def inputs(self, *, between: bool = False) -> tuple[float, ...]:
        """The ends of the interval, and a position inside unless only integers occur."""
        return (0.0, _INSIDE, 1.0) if between and not self.domain.whole else (0.0, 1.0)

    def other_inputs(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The end that is farther away."""
        return np.round(1 - values)

    def truth(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum or mean, in the units of the interval."""
        total = len(values) * self.domain.lower + self.domain.width * sum(values.tolist())
        return np.array([total / len(values) if self.answered_question == "mean" else total])

    def expected_error_of(self, values: NDArray[np.float64]) -> ExpectedError:
        """The predicted error for these positions in the interval."""
        return self.expected_error(values=values)

    @abstractmethod
    def variance(self, values: NDArray[np.float64]) -> float:
        """The exact mean squared error, in widths of the interval, of a round over users at these positions."""


def check_categories(tally: Tally, categories: int) -> None:
    """Reject a tally without exactly one count per category."""
    if len(tally.counts) != categories:
        raise ParameterError(f"A tally of {len(tally.counts):,} categories does not fit a domain of {categories:,}.")


def one_message_each(values: NDArray[Any], source: RandomSource) -> Messages:
    """Reports of a single message, in the order of the users."""
    return Messages(values, len(values), np.arange(len(values) + 1, dtype=np.int64), source.secure)


def _released(protocol: Protocol, portions: Iterable[NDArray[Any]], source: RandomSource) -> Tally:
    """Randomize and count in portions, then release the total."""
    tallies = (protocol.tally(protocol.randomize_all(values, source=source)) for values in portions)
    return protocol.release(reduce(operator.add, tallies), source=source)


def _portions(protocol: Protocol, users: int) -> list[tuple[int, int]]:
    """Ranges of users whose messages fit into memory."""
    numbers = protocol.cost.messages_per_user * protocol.message_format.columns
    step = max(1, int(_NUMBERS_AT_A_TIME / numbers))
    return [(start, min(start + step, users)) for start in range(0, users, step)] or [(0, 0)]
