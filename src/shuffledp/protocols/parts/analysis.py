"""From observed numbers to estimates: the interface ``Analysis``, and the base of protocols that have one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.flow import EstimateType, EstimatingProtocol
from shuffledp.protocols.parts.indexed import IndexedProtocol
from shuffledp.protocols.parts.linear import LINEAR_ESTIMATORS
from shuffledp.protocols.protocol import ExpectedError, check_estimator

_MAX_LISTED_CODES = 1 << 12

Floats = NDArray[np.float64]


class Analysis(Interface):
    """Maps the observed numbers of a round to estimates, intervals and errors."""

    def estimate(self, observed: NDArray[Any], estimator: str) -> Floats:
        """The estimated numbers."""

    def standard_errors(self, observed: NDArray[Any]) -> Floats:
        """The root mean squared error of each estimate."""

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], Floats]:
        """From a confidence to intervals [low, high] with at least this coverage for every true number."""

    def withheld_below(self, confidence: float) -> int | None:
        """The least count that is withheld with probability (1 - confidence) / 2 or less; None if none is withheld."""

    def expected_error(self, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:
        """The predicted error, typical or for given true numbers."""


class AnalysedProtocol(EstimatingProtocol[EstimateType]):
    """A protocol whose estimates come from an ``Analysis`` of the observed numbers."""

    estimators: ClassVar[tuple[str, ...]] = LINEAR_ESTIMATORS

    @abstractmethod
    def analysis(self, users: int) -> Analysis:
        """The analysis of the observations of ``users`` users."""

    def analysis_by(self, estimator: str, users: int) -> Analysis:  # noqa: ARG002
        """The analysis for one estimator; override it if the analysis depends on the estimator."""
        return self.analysis(users)

    @property
    def message_effects(self) -> tuple[float, float]:
        """The least and the greatest change of one observed number by one message of any content.

        Override it if there are many possible messages.
        """
        form = self.message_format
        if form.codes > _MAX_LISTED_CODES:
            raise ParameterError(f"{self.question}/{self.name} does not define message_effects.")
        messages = form.message(np.arange(form.codes))
        nothing = self.observed(self.tally(Messages(messages[:0], 1)))
        effects = [
            self.observed(self.tally(Messages(messages[code : code + 1], 1))) - nothing for code in range(form.codes)
        ]
        return float(np.min(effects)), float(np.max(effects))

    def moved_by_report(self, messages: int) -> float:
        """The largest difference between two values of one estimate that a report of arbitrary messages can cause."""
        if self.fragile:
            return math.inf
        least, greatest = self.message_effects
        if messages > 1:  # a dummy changes nothing
            least, greatest = min(least, 0.0), max(greatest, 0.0)
        slope: float = getattr(self.analysis(self.users), "slope", 1.0)
        return messages * (greatest - least) / slope * self.unit

    def _checked(self, tally: Tally, estimator: str) -> Analysis:
        self.check_round(tally, estimator)
        return self.analysis_by(estimator, tally.users)

    def _expected(
        self, estimator: str, confidence: float, truth: NDArray[Any] | None = None, *, users: int | None = None
    ) -> ExpectedError:
        """The predicted error, typical or for given true numbers; override it if the analysis alone does not tell."""
        estimator = estimator or self.estimators[0]
        check_estimator(estimator, self.estimators)
        return self.analysis_by(estimator, users or self.users).expected_error(confidence, truth)


class CountingProtocol(IndexedProtocol, AnalysedProtocol[EstimateType]):
    """A protocol that estimates how many users hold a value, for one value or for each."""

    def expected_error(
        self,
        *,
        estimator: str = "",
        confidence: float = 0.95,
        users: int | None = None,
        counts: NDArray[np.int64] | None = None,
    ) -> ExpectedError:
        """The predicted error, typical or in the worst case over all data sets, or for given true counts."""
        return self._expected(estimator, confidence, counts, users=users)
