"""Base of the protocols for counts: how many users hold a 1.

A histogram of two categories is a count: the number of users is public, so that the number of users in one category
says how many are in the other. ``of_two_categories`` makes such a histogram of a count, with half the error of
protocols that count both.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Bit, Categories, Numbered
from shuffledp.errors import DomainError
from shuffledp.estimate import CountEstimate, HistogramEstimate
from shuffledp.messages import Tally
from shuffledp.protocols.parts.analysis import CountingProtocol
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.protocols.target import Target


@dataclass(frozen=True)
class _AnsweredDomain:
    """The two categories that are counted; not a parameter, since users send the same for bits and for categories."""

    two_categories: Categories | Numbered | None = field(default=None, init=False, compare=False)
    """None if the values are bits."""


class CountProtocol(_AnsweredDomain, CountingProtocol[CountEstimate]):
    """How many users hold a 1."""

    question: ClassVar[str] = "count"
    domain_options: ClassVar[tuple[str, ...]] = ("domain",)

    @property
    def domain(self) -> Bit | Categories | Numbered:
        """Values are 0 and 1, or the two categories of a histogram."""
        return BIT if self.two_categories is None else self.two_categories

    def answering(self, question: str) -> Self:
        """The same protocol, with estimates of a ``count``, or of a ``histogram`` of the categories 0 and 1."""
        if question == "histogram":
            return self if self.two_categories is not None else self.of_two_categories(Numbered(2))
        return self._counting(None) if question == self.question else super().answering(question)

    def of_two_categories(self, domain: Categories | Numbered) -> Self:
        """The same protocol, with estimates of a histogram of two categories."""
        if len(domain) != 2:
            raise DomainError(f"A count is a histogram of two categories, not of {len(domain):,}.")
        return self._counting(domain)

    def _counting(self, domain: Categories | Numbered | None) -> Self:
        copied = copy.copy(self)  # keeps cached properties
        object.__setattr__(copied, "two_categories", domain)
        return copied

    @property
    def domain_size(self) -> int:
        """Values are 0 and 1."""
        return 2

    @classmethod
    def domain_arguments(cls, *, domain: Bit | None = None) -> tuple[()]:
        """No arguments: values are 0 and 1."""
        if domain is not None and not isinstance(domain, Bit):
            raise DomainError(f"A count is over the values 0 and 1, not over {domain!r}.")
        return ()

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target) -> Self:
        """The protocol's own calibration."""

    def estimate(self, tally: Tally, *, estimator: str = "") -> CountEstimate:
        """The estimated number of ones; of two categories a HistogramEstimate, which adds up to the number of users."""
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        observed = self.observed(tally)
        if self.two_categories is not None:
            ones = float(analysis.estimate(observed, estimator)[0])
            both: Any = HistogramEstimate(
                **self.origin(tally, estimator),
                intervals=partial(_of_both, analysis.intervals(observed), tally.users),
                categories=self.two_categories.names,
                counts=np.array([tally.users - ones, ones]),
                standard_errors=np.repeat(analysis.standard_errors(observed), 2),
                threshold_at=analysis.withheld_below,
            )
            return both  # type: ignore[no-any-return]
        return CountEstimate(
            **self.origin(tally, estimator),
            intervals=analysis.intervals(observed),
            value=float(analysis.estimate(observed, estimator)[0]),
            standard_error=float(analysis.standard_errors(observed)[0]),
            threshold_at=analysis.withheld_below,
        )

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The number of ones, or of both categories."""
        return self.summary(values)[0 if self.two_categories is not None else 1 :].astype(np.float64)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these bits."""
        return self.expected_error(counts=self.summary(values)[1:])


def _of_both(intervals: Callable[[float], NDArray[np.float64]], users: int, confidence: float) -> NDArray[np.float64]:
    """Intervals of both categories, from those of the second."""
    ((low, high),) = intervals(confidence)
    return np.array([[users - high, users - low], [low, high]])
