"""The model: what a user's report costs, what is counted, and what a protocol is."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import BelowMinimumError, ParameterError
from shuffledp.estimate import CountEstimate, Estimate, HistogramEstimate, SumEstimate
from shuffledp.messages import MessageFormat, Messages

if TYPE_CHECKING:
    from fractions import Fraction

    from shuffledp.privacy.guarantee import Guarantee
    from shuffledp.randomness import RandomSource

__all__ = [
    "Cost",
    "CountEstimate",
    "Estimate",
    "ExpectedError",
    "HistogramEstimate",
    "MessageFormat",
    "Messages",
    "Pmf",
    "Protocol",
    "SumEstimate",
    "Tally",
    "check_enough_users",
]


Pmf = Mapping[tuple[int, ...], "Fraction | float"]
"""From an outcome to its probability. What is missing to one is a tail of at most 1e-4 that was left out."""


@dataclass(frozen=True)
class Cost:
    """What one user sends, before sealing."""

    messages_per_user: float
    """Expected; the same whatever the value, where the protocol allows."""
    max_messages_per_user: int | None
    """None where the noise has no largest value."""
    bits_per_message: int

    @property
    def bytes_per_user(self) -> float:
        """Expected, with the bits of all messages packed."""
        return self.messages_per_user * self.bits_per_message / 8

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "messages_per_user": self.messages_per_user,
            "max_messages_per_user": self.max_messages_per_user,
            "bits_per_message": self.bits_per_message,
            "bytes_per_user": self.bytes_per_user,
        }


@dataclass(frozen=True)
class ExpectedError:
    """How far off a released number will be, predicted from the exact distribution of the noise."""

    rmse: float
    """Root mean squared error of one number that stands clear of the noise."""
    max_error: float
    """No released number is further off than this, all taken together, with the given confidence."""
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"rmse": self.rmse, "max_error": self.max_error, "confidence": self.confidence}


@dataclass(frozen=True, eq=False)
class Tally:
    """What the analyzer counts: whole numbers that add up over parts of a round, and from how many users."""

    counts: NDArray[np.int64]
    users: int
    secure: bool = True
    """False if any of the noise came from a seed."""
    released: bool = False
    """True once a trusted party has added its noise; then it is final, and counts may lie below 0."""

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or not np.issubdtype(self.counts.dtype, np.integer):
            raise ParameterError("A tally is a flat array of whole numbers.")
        if self.users < 0 or (not self.released and len(self.counts) and int(self.counts.min()) < 0):
            raise ParameterError("A tally counts messages and users; neither can be below 0.")

    @classmethod
    def zero(cls, size: int) -> Tally:
        """The tally of nobody."""
        return cls(np.zeros(size, dtype=np.int64), 0)

    def __add__(self, other: Tally) -> Tally:
        if len(self.counts) != len(other.counts):
            raise ParameterError(
                f"Tallies of {len(self.counts):,} and {len(other.counts):,} message values do not belong together."
            )
        if self.released or other.released:
            raise ParameterError("A released tally carries its noise already; add tallies before the release.")
        return Tally(self.counts + other.counts, self.users + other.users, self.secure and other.secure)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        same = (self.users, self.secure, self.released) == (other.users, other.secure, other.released)
        return same and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]


class Protocol(typing.Protocol):
    """What every protocol offers: a frozen set of public parameters from which all else follows.

    A *value* is what randomizers take: the index of a category, a bit, or for a sum the place of a
    number in its interval, from 0.0 to 1.0.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    model: ClassVar[str]
    estimators: ClassVar[tuple[str, ...]]
    """By name, the default first."""

    @property
    def users(self) -> int:
        """The least number of reports of a round."""

    @property
    def guarantee(self) -> Guarantee:
        """The privacy of one release."""

    @property
    def cost(self) -> Cost:
        """What a user sends."""

    @property
    def message_format(self) -> MessageFormat:
        """What a message consists of."""

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""

    def report_pmf(self, value: Any) -> Pmf:
        """The distribution of one user's report, as copies of each message (by its code); for small formats."""

    def randomize(self, value: Any, *, source: RandomSource = ...) -> NDArray[Any]:
        """The messages of one user."""

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = ...) -> Messages:
        """The messages of many users."""

    def tally(self, messages: Messages) -> Tally:
        """Count the messages."""

    def release(self, tally: Tally, *, source: RandomSource = ...) -> Tally:
        """What leaves the party that counts; the tally itself unless that party is trusted with more."""

    def release_pmf(self, tally: Tally) -> Pmf:
        """The distribution of what is released of this tally."""

    def estimate(self, tally: Tally, *, estimator: str = ...) -> Any:
        """The statistic with its uncertainty."""

    def run(self, values: Iterable[Any], *, route: str = "auto", source: RandomSource = ...) -> Any:
        """The whole flow in this process."""


def check_enough_users(users: int, needed: int) -> None:
    """Refuse a round with fewer users than its guarantee rests on."""
    if users < needed:
        raise BelowMinimumError(
            f"The round has {users:,} reports; the guarantee rests on {needed:,}. "
            f"Wait for {needed - users:,} more or plan for fewer users.",
            users=users,
            needed=needed,
        )
