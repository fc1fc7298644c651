"""What the protocols of one question share: counts, histograms, sums.

A protocol file then holds what is its own: parameters, calibration, randomizer, cost, guarantee, and the
distribution of its error.
"""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Bit, Categories, Interval, Numbered, check_counts
from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import count_values
from shuffledp.model import (
    Cost,
    CountEstimate,
    ExpectedError,
    HistogramEstimate,
    MessageFormat,
    Messages,
    Pmf,
    SumEstimate,
    Tally,
    check_enough_users,
)
from shuffledp.privacy.calibration import CALIBRATIONS
from shuffledp.protocols.documents import public_parameters
from shuffledp.protocols.flow import run_round
from shuffledp.protocols.parts.linear import LINEAR_ESTIMATORS, LinearAnalysis, check_estimator
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import SYSTEM, RandomSource

if TYPE_CHECKING:
    from shuffledp.privacy.guarantee import Guarantee

__all__ = ["CountProtocol", "HistogramProtocol", "Round", "SumProtocol", "one_message_each"]

STATISTICS = ("sum", "mean")
_CHUNK_MESSAGES = 1 << 20
_NUMBERS_AT_A_TIME = 1 << 22


class Round(ABC):
    """The flow of one round, with the steps that most protocols do not need to change."""

    name: ClassVar[str]
    question: ClassVar[str]
    model: ClassVar[str] = "shuffled"
    estimators: ClassVar[tuple[str, ...]] = LINEAR_ESTIMATORS
    calibrations: ClassVar[tuple[str, ...]] = CALIBRATIONS
    """Ways to choose the noise that differ; where the paper's constants are the least ones, ``tight`` alone."""
    fragile: ClassVar[bool] = False
    """Whether one message that is missing or wrong moves the estimate anywhere."""
    trusts_shuffler: ClassVar[bool] = False
    """True where the shuffler must do more than shuffle, and is trusted with what it sees."""

    terms: Terms

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Further settings of ``calibrate`` that trade error for communication; the planner tries each.

        ``settings`` are the question's, with epsilon and delta.
        """
        return ()

    @property
    def users(self) -> int:
        """The least number of reports of a round."""
        return self.terms.users

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The privacy of one release."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """What a user sends."""

    @property
    def draws_per_report(self) -> float:
        """Expected number of random draws, and of entries of sampling tables, that randomizing one value takes."""
        cost = self.cost
        return max(cost.messages_per_user, cost.max_messages_per_user or 0) * self.message_format.columns

    @property
    @abstractmethod
    def message_format(self) -> MessageFormat:
        """What a message consists of."""

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""
        return public_parameters(self)

    @abstractmethod
    def report_pmf(self, value: Any) -> Pmf:
        """The distribution of one report, as copies of each message by its code; for small formats."""

    @abstractmethod
    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""

    def randomize(self, value: Any, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The randomizer on one user's value."""
        return self.randomize_all(np.array([value]), source=source).values

    def tally(self, messages: Messages) -> Tally:
        """How often each message occurred, by its code."""
        form = self.message_format
        if form.columns == 1 and messages.values.ndim == 1:
            return Tally(count_values(messages.values, form.codes), messages.users, messages.secure)
        counts = np.zeros(form.codes, dtype=np.int64)
        for start in range(0, len(messages), _CHUNK_MESSAGES):
            chunk = form.check(messages.values[start : start + _CHUNK_MESSAGES])
            counts += count_values(form.code(chunk), len(counts))
        return Tally(counts, messages.users, messages.secure)

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:  # noqa: ARG002
        """The analyzer may see the tally as it is."""
        return tally

    def release_pmf(self, tally: Tally) -> Pmf:
        """Nothing is changed."""
        return {tuple(tally.counts.tolist()): Fraction(1)}


class _Linear(Round):
    """A round whose estimates are linear in what is counted."""

    def check_tally(self, tally: Tally) -> None:
        """Refuse a tally that this many users who follow the protocol cannot have made."""

    @abstractmethod
    def analysis(self, users: int) -> LinearAnalysis:
        """From the observations of so many users to estimates."""

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The numbers that the estimates are linear in."""
        return tally.counts

    def _checked(self, tally: Tally, estimator: str) -> LinearAnalysis:
        check_estimator(estimator, self.estimators)
        check_enough_users(tally.users, self.users)
        if self.model == "central" and not tally.released:
            raise ParameterError("This tally holds the data without noise; release it first.")
        self.check_tally(tally)
        return self.analysis(tally.users)


class CountProtocol(_Linear):
    """How many users hold a 1."""

    question: ClassVar[str] = "count"
    domain: ClassVar[Bit] = BIT

    @property
    def domain_size(self) -> int:
        """Values are 0 and 1."""
        return 2

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of the whole round, from the number of zeros and ones."""
        return _sample_by_messages(self, counts, source)

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
        """The whole flow in this process, from bits to the estimate."""
        estimate: CountEstimate = run_round(
            self, self.domain.encode_all(values), estimator=estimator or self.estimators[0], route=route, source=source
        )
        return estimate

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, counts: NDArray[np.int64] | None = None
    ) -> ExpectedError:
        """The predicted error, at worst or for given true numbers of ones."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        return self.analysis(self.users).expected_error(confidence, counts)


class HistogramProtocol(_Linear):
    """How many users hold each category."""

    question: ClassVar[str] = "histogram"
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

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of the whole round, from the true count of each category."""
        return _sample_by_messages(self, counts, source)

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
        """The whole flow in this process, from categories (numbers where they have no names) to the estimate."""
        estimate: HistogramEstimate = run_round(
            self, self.domain.encode_all(values), estimator=estimator or self.estimators[0], route=route, source=source
        )
        return estimate

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, counts: NDArray[np.int64] | None = None
    ) -> ExpectedError:
        """The predicted error: typical over all categories, or for given true counts."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        return self.analysis(self.users).expected_error(confidence, counts)

    @staticmethod
    def sizes(domain_size: int | None, categories: Categories | Iterable[str] | None) -> tuple[int, Categories | None]:
        """The size of the domain and its names, from either or both."""
        named = categories if categories is None or isinstance(categories, Categories) else Categories.of(categories)
        size = domain_size if named is None or domain_size is not None else len(named)
        if size is None:
            raise DomainError("Say which values are possible: give domain_size or categories.")
        if size < 1:
            raise DomainError(f"The domain needs at least one category, not {size}.")
        return size, named


@dataclass(frozen=True)
class _Answer:
    """What the analyzer states about the numbers; no parameter, since users send the same for a sum and a mean."""

    statistic: str = field(default="sum", init=False, compare=False)


class SumProtocol(_Answer, _Linear):
    """The sum or mean of numbers in an interval. Randomizers see each number's place in it, from 0.0 to 1.0."""

    question: ClassVar[str] = "sum"
    domain: Interval

    def answering(self, statistic: str) -> Self:
        """The same protocol, with estimates and errors of the ``sum`` or of the ``mean``."""
        if statistic not in STATISTICS:
            raise ParameterError(
                f"There is no statistic {statistic!r}; choose one of {', '.join(STATISTICS)}.", statistic=statistic
            )
        other = copy.copy(self)  # with everything that has been computed about it
        object.__setattr__(other, "statistic", statistic)
        return other

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of the whole round, from every user's place in the interval."""
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
        return total.mean if self.statistic == "mean" else total

    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> SumEstimate:
        """The whole flow in this process, from numbers in the interval to the estimated sum or mean."""
        estimate: SumEstimate = run_round(
            self, self.domain.encode_all(values), estimator=estimator or self.estimators[0], route=route, source=source
        )
        return estimate

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, values: NDArray[np.float64] | None = None
    ) -> ExpectedError:
        """The predicted error in the units of the interval: at worst, or for given places in it."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        error = self.analysis(self.users).expected_error(confidence)
        variance = error.rmse**2 if values is None else self.variance(np.asarray(values, dtype=np.float64))
        unit = self.domain.width / (self.users if self.statistic == "mean" else 1)
        return ExpectedError(
            rmse=unit * float(np.sqrt(variance)),
            max_error=unit * error.max_error,
            confidence=confidence,
        )

    @abstractmethod
    def variance(self, values: NDArray[np.float64]) -> float:
        """The exact mean squared error, in places, of a round over users at these places."""


def one_message_each(values: NDArray[Any], source: RandomSource) -> Messages:
    """Reports of a single message, in the order of the users."""
    return Messages(values, len(values), np.arange(len(values) + 1, dtype=np.int64), source.secure)


def _sample_by_messages(protocol: Any, counts: NDArray[np.int64], source: RandomSource) -> Tally:
    """The literal route without the shuffle, which a tally does not notice; some users at a time."""
    true = check_counts(counts, protocol.domain_size)
    ends = np.cumsum(true)
    portions = (
        np.searchsorted(ends, np.arange(start, end), side="right") for start, end in _portions(protocol, int(ends[-1]))
    )
    return _released(protocol, portions, source)


def _released(protocol: Any, portions: Iterable[NDArray[Any]], source: RandomSource) -> Tally:
    """Randomize and count portion by portion, then release the whole."""
    tallies = (protocol.tally(protocol.randomize_all(values, source=source)) for values in portions)
    released: Tally = protocol.release(reduce(operator.add, tallies), source=source)
    return released


def _portions(protocol: Any, users: int) -> list[tuple[int, int]]:
    """Users from .. to, so few at a time that their messages fit the memory."""
    numbers = protocol.cost.messages_per_user * protocol.message_format.columns
    step = max(1, int(_NUMBERS_AT_A_TIME / numbers))
    return [(start, min(start + step, users)) for start in range(0, users, step)] or [(0, 0)]
