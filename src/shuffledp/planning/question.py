"""Questions: count, histogram, sum, mean, quantiles and strings, with their users and domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from shuffledp.domain import DEFAULT_BINS, Bins, Categories, Interval, Numbered, Strings
from shuffledp.errors import DomainError
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.protocol import Protocol

MAX_CATEGORIES = 1 << 31
"""Maximum number of categories of a histogram, whose counts are all held in memory."""


class _AsAsked:
    """A question that is planned as it is asked."""

    @property
    def planned(self) -> Self:
        """The question whose protocols are compared: this one."""
        return self


@dataclass(frozen=True)
class Count(_AsAsked):
    """The question how many of ``users`` users hold a 1.

    >>> sdp.Count(users=10_000).users
    10000
    """

    name: ClassVar[str] = "count"
    question: ClassVar[str] = "count"
    """The question of the protocols that answer it; a mean is answered by protocols for a sum."""
    unit: ClassVar[str] = "users"
    users: int

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol as it answers this question."""
        return protocol

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users}


@dataclass(frozen=True)
class Histogram:
    """The question how many of ``users`` users hold each category.

    The domain is public: give the ``categories``, or ``domain_size`` for categories that are numbered from 0. Two
    categories are planned as a count, unless ``both_counted`` is set.

    >>> sdp.Histogram(users=10_000, categories=["bus", "bike", "car"]).domain_size
    3
    """

    name: ClassVar[str] = "histogram"
    question: ClassVar[str] = "histogram"
    unit: ClassVar[str] = "users"
    users: int
    domain_size: int | None = None
    categories: Sequence[str] | Categories | None = None
    both_counted: bool = False
    """Whether two categories are counted separately, as in a collection, instead of planning a count."""

    def __post_init__(self) -> None:
        if self.categories is not None and not isinstance(self.categories, Categories):
            object.__setattr__(self, "categories", Categories.of(self.categories))
        if self.domain_size is None:
            if self.categories is None:
                raise DomainError("A histogram needs its domain: give categories or domain_size.")
            object.__setattr__(self, "domain_size", len(self.categories))
        if self.categories is not None and self.domain_size != len(self.categories):
            raise DomainError(f"domain_size is {self.domain_size}, but there are {len(self.categories)} categories.")
        if self.domain_size is not None and self.domain_size < 1:
            raise DomainError(f"The domain needs at least one category, not {self.domain_size}.")
        if self.domain_size is not None and self.domain_size > MAX_CATEGORIES:
            raise DomainError(
                f"A histogram has at most {MAX_CATEGORIES:,} categories, not {self.domain_size:,}.",
                domain_size=self.domain_size,
            )

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users, "domain_size": self.domain_size, "categories": self.categories}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol as it answers this question."""
        return protocol

    @property
    def planned(self) -> Histogram:
        """The question whose protocols are compared: for two categories a count, which has half the error."""
        if self.domain_size != 2 or self.both_counted:
            return self
        return CountedHistogram(self.users, self.domain_size, self.categories)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users, "domain_size": self.domain_size}


@dataclass(frozen=True)
class CountedHistogram(Histogram):
    """The question how many of ``users`` users hold each of two categories, answered by protocols for a count.

    >>> sdp.plan(sdp.Histogram(users=10_000, categories=["no", "yes"]), epsilon=1.0, delta=1e-6).best.question
    'count'
    """

    question: ClassVar[str] = "count"

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol, with estimates of both categories."""
        assert isinstance(protocol, CountProtocol)  # noqa: S101 - by its question
        return protocol.of_two_categories(self.categories if isinstance(self.categories, Categories) else Numbered(2))


@dataclass(frozen=True)
class Sum(_AsAsked):
    """The question what the numbers of ``users`` users add up to, each from ``lower`` to ``upper``.

    The bounds are public; ``whole`` says that all numbers are integers.

    >>> sdp.Sum(users=10_000, lower=0, upper=120).domain.width
    120.0
    """

    name: ClassVar[str] = "sum"
    question: ClassVar[str] = "sum"
    unit: ClassVar[str] = "units"
    users: int
    lower: float = 0.0
    upper: float = 1.0
    whole: bool = False
    """Only integers occur."""

    def __post_init__(self) -> None:
        self.domain  # noqa: B018 - checks the bounds

    @property
    def domain(self) -> Interval:
        """The public bounds."""
        return Interval(self.lower, self.upper, self.whole)

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users, "domain": self.domain}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol as it answers this question."""
        return protocol

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users, "lower": self.lower, "upper": self.upper, "whole": self.whole}


@dataclass(frozen=True)
class Mean(Sum):
    """The question for the mean of the numbers of ``users`` users, each from ``lower`` to ``upper``.

    It is the sum divided by the public number of users; ``whole`` says that all numbers are integers.

    >>> sdp.Mean(users=10_000, lower=0, upper=120).name
    'mean'
    """

    name: ClassVar[str] = "mean"

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol, with estimates and errors of the mean."""
        return protocol.answering("mean")


@dataclass(frozen=True)
class Quantiles(_AsAsked):
    """What are the median and other quantiles of the users' numbers, each between two public bounds?

    ``users`` is the number of users, ``lower`` and ``upper`` are the bounds, ``bins`` is the number of bins of equal
    width in which numbers are counted.

    >>> sdp.Quantiles(users=10_000, lower=0, upper=120, bins=120).domain.edges[1]
    np.float64(1.0)
    """

    name: ClassVar[str] = "quantiles"
    question: ClassVar[str] = "quantiles"
    unit: ClassVar[str] = "users"
    users: int
    lower: float = 0.0
    upper: float = 1.0
    bins: int = DEFAULT_BINS

    def __post_init__(self) -> None:
        if self.domain.bins < 2:
            raise DomainError(f"Quantiles need at least 2 bins, not {self.bins}.")

    @property
    def domain(self) -> Bins:
        """The public bounds and bins."""
        return Bins(self.lower, self.upper, self.bins)

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users, "domain": self.domain}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol as it answers this question."""
        return protocol

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users, "lower": self.lower, "upper": self.upper, "bins": self.bins}


@dataclass(frozen=True)
class FrequentStrings(_AsAsked):
    """Which strings do many users hold, when nobody can list them in advance?

    ``users`` is the number of users, ``domain`` the alphabet and the maximum length.

    >>> sdp.FrequentStrings(users=10_000, domain=sdp.Strings("a-z", 24)).domain.alphabet
    'a-z'
    """

    name: ClassVar[str] = "strings"
    question: ClassVar[str] = "strings"
    unit: ClassVar[str] = "users"
    users: int
    domain: Strings

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Strings):
            raise DomainError(f"The domain must be of type Strings, not {type(self.domain).__name__}.")

    def settings(self) -> dict[str, Any]:
        """The arguments of ``calibrate`` that follow from the question."""
        return {"users": self.users, "domain": self.domain}

    def answered_by(self, protocol: Protocol) -> Protocol:
        """The protocol as it answers this question."""
        return protocol

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        alphabet, length = self.domain.alphabet, self.domain.max_length
        return {"kind": self.name, "users": self.users, "alphabet": alphabet, "max_length": length}


Question = Count | Histogram | Sum | Quantiles | FrequentStrings


def as_collected(question: Question) -> Question:
    """The question as a task asks it: devices know both categories by name, so both are counted."""
    return replace(question, both_counted=True) if isinstance(question, Histogram) else question
