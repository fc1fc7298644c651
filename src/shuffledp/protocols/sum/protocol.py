"""Base of the protocols for sums and means of numbers in an interval."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.errors import DomainError, ParameterError
from shuffledp.estimate import Intervals, SumEstimate
from shuffledp.messages import Tally
from shuffledp.protocols.flow import sample_released_tally, user_ranges
from shuffledp.protocols.parts.analysis import AnalysedProtocol
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, RandomSource

SUM_QUESTIONS = ("sum", "mean")
_POINT_INSIDE = 0.375


@dataclass(frozen=True)
class _AnsweredQuestion:
    """Which question the estimates answer; not a parameter, since users send the same for a sum and a mean."""

    answered_question: str = field(default="sum", init=False, compare=False)
    """``sum`` or ``mean``."""


class SumProtocol(_AnsweredQuestion, AnalysedProtocol[SumEstimate]):
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
            return (Interval(lower, upper, whole),)
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
        copied = copy.copy(self)  # keeps cached properties
        object.__setattr__(copied, "answered_question", question)
        return copied

    def summary(self, values: NDArray[Any]) -> NDArray[Any]:
        """Every user's position in the interval."""
        return values

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from every user's position in the interval."""
        portions = (values[start:end] for start, end in user_ranges(self, len(values)))
        return sample_released_tally(self, portions, source)

    def estimate(self, tally: Tally, *, estimator: str = "") -> SumEstimate:
        """The estimated sum or mean, in the units of the interval."""
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        observed = self.observed(tally)
        start, width = tally.users * self.domain.lower, self.domain.width
        total = SumEstimate(
            **self.origin(tally, estimator),
            intervals=partial(_in_units, analysis.intervals(observed), start, width),
            value=start + width * float(analysis.estimate(observed, estimator)[0]),
            standard_error=width * float(analysis.standard_errors(observed)[0]),
            bounds=(start, start + width * tally.users),
        )
        return total.mean if self.answered_question == "mean" else total

    def expected_error(
        self,
        *,
        estimator: str = "",
        confidence: float = 0.95,
        users: int | None = None,
        values: NDArray[np.float64] | None = None,
    ) -> ExpectedError:
        """The predicted error in the units of the interval: in the worst case, or for given positions."""
        error = self._expected(estimator, confidence, users=users)
        variance = error.rmse**2 if values is None else self.variance(np.asarray(values, dtype=np.float64))
        unit = self.domain.width / ((users or self.users) if self.answered_question == "mean" else 1)
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
        return (0.0, _POINT_INSIDE, 1.0) if between and not self.domain.whole else (0.0, 1.0)

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


def _in_units(positions: Intervals, start: float, width: float, confidence: float) -> NDArray[np.float64]:
    """Intervals in the units of the domain, from intervals for the sum of positions."""
    return start + width * positions(confidence)
