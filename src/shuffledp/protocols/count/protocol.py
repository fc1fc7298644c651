"""Base of the protocols for counts: how many users hold a 1."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Bit
from shuffledp.errors import DomainError
from shuffledp.estimate import CountEstimate
from shuffledp.messages import Tally
from shuffledp.protocols.parts.analysis import CountingProtocol
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.protocols.target import Target


class CountProtocol(CountingProtocol[CountEstimate]):
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
        """No arguments: values are 0 and 1."""
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
            **self.origin(tally, estimator),
            intervals=analysis.intervals(observed),
            value=float(analysis.estimate(observed, estimator)[0]),
            standard_error=float(analysis.standard_errors(observed)[0]),
            threshold_at=analysis.withheld_below,
        )

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The number of ones."""
        return self.summary(values)[1:].astype(np.float64)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these bits."""
        return self.expected_error(counts=self.summary(values)[1:])
