"""Base of the protocols for histograms: how many users hold each category."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.domain import Categories, Numbered
from shuffledp.errors import DomainError, ParameterError
from shuffledp.estimate import HistogramEstimate
from shuffledp.messages import Tally
from shuffledp.protocols.parts.analysis import Analysis, CountingProtocol
from shuffledp.protocols.parts.category_noise import CategoryNoise
from shuffledp.protocols.parts.linear import LINEAR_ESTIMATORS, LinearAnalysis
from shuffledp.protocols.parts.projected import PROJECTED, projected_analysis
from shuffledp.protocols.protocol import ExpectedError, Value
from shuffledp.protocols.target import Target

PROJECTED_ESTIMATORS = (PROJECTED, *LINEAR_ESTIMATORS)
"""The estimators of histograms with ``exchangeable_noise``: projected onto the number of users by default."""


class HistogramProtocol(CountingProtocol[HistogramEstimate]):
    """How many users hold each category."""

    question: ClassVar[str] = "histogram"
    domain_options: ClassVar[tuple[str, ...]] = ("domain_size", "categories", "domain")
    exact_zeros: ClassVar[bool] = False
    """Whether the default estimate of an empty category is always exactly 0."""
    independent_categories: ClassVar[bool] = False
    """Whether the observed numbers of categories are independent and distributed as ``category_noise``."""
    exchangeable_noise: ClassVar[bool] = False
    """Whether the errors of the unbiased estimates are independent and identically distributed, whatever the data.

    Then the estimator ``projected`` uses that the number of users is public.
    """
    independent_options: ClassVar[Mapping[str, Any]] = {}
    """Options of ``calibrate`` with which the categories are independent, if they are not by default."""
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

    def without_names(self) -> Self:
        """The protocol with categories that are numbered from 0."""
        return self if self.categories is None else cast("Self", replace(cast("Any", self), categories=None))

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
            **self.origin(tally, estimator),
            intervals=analysis.intervals(observed),
            categories=self.domain.names,
            counts=analysis.estimate(observed, estimator),
            standard_errors=analysis.standard_errors(observed),
            threshold_at=analysis.withheld_below,
        )

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """How many users hold each category."""
        return self.summary(values).astype(np.float64)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these indices."""
        return self.expected_error(counts=self.summary(values))

    def entries_of(self, values: Sequence[Value], length: int) -> NDArray[np.int64] | None:
        """The indices themselves, if there is one number per category."""
        return np.array(values, dtype=np.int64) if length == self.domain_size else None

    def analysis_by(self, estimator: str, users: int) -> Analysis:
        """The analysis for one estimator: unless it is ``projected``, the same for all."""
        if self.domain_size == 1:
            return OnlyCategory(users)
        analysis = self.analysis(users)
        if estimator != PROJECTED:
            return analysis
        if not (self.exchangeable_noise and isinstance(analysis, LinearAnalysis)):
            raise ParameterError(f"The noise of {self.name} is not exchangeable; its estimates cannot be projected.")
        return projected_analysis(analysis, users)

    @property
    def category_noise(self) -> CategoryNoise | None:
        """The distribution of the observed number of one category; None unless ``independent_categories``."""
        return None

    def chance_shown(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:  # noqa: ARG002
        """The probability of a positive estimate for these counts; only with ``exact_zeros``."""
        raise ParameterError(f"{self.name} also shows empty categories, so chance_shown is not defined.")


@dataclass(frozen=True)
class OnlyCategory:
    """The analysis of a single category, which all users hold: their number is public, and there is no error."""

    users: int

    def estimate(self, observed: NDArray[Any], estimator: str) -> NDArray[np.float64]:  # noqa: ARG002
        """The number of users."""
        return np.array([float(self.users)])

    def standard_errors(self, observed: NDArray[Any]) -> NDArray[np.float64]:  # noqa: ARG002
        """None."""
        return np.zeros(1)

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], NDArray[np.float64]]:  # noqa: ARG002
        """The number of users, at every confidence."""
        return self._interval

    def _interval(self, confidence: float) -> NDArray[np.float64]:
        check_confidence(confidence)
        return np.full((1, 2), float(self.users))

    def withheld_below(self, confidence: float) -> int | None:  # noqa: ARG002
        """None: the number is not withheld."""
        return None

    def expected_error(self, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:  # noqa: ARG002
        """No error."""
        check_confidence(confidence)
        return ExpectedError(rmse=0.0, max_error=0.0, confidence=confidence)


def check_categories(tally: Tally, categories: int) -> None:
    """Reject a tally without exactly one count per category."""
    if len(tally.counts) != categories:
        raise ParameterError(f"A tally of {len(tally.counts):,} categories does not fit a domain of {categories:,}.")
