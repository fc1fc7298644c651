"""The shuffled model: what users send, what is counted, and what a protocol is."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import BelowMinimumError, ParameterError
from shuffledp.estimate import CountEstimate, Estimate, HistogramEstimate

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
    "Messages",
    "Protocol",
    "Tally",
    "check_enough_users",
]


@dataclass(frozen=True)
class Cost:
    """What one user sends, before sealing."""

    messages_per_user: float
    """Expected; the same whatever the value, where the protocol allows."""
    max_messages_per_user: int
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
    """How far off a released number will be, predicted from the exact law of the noise."""

    rmse: float
    """Root mean squared error of one number that stands clear of the noise."""
    max_error: float
    """No released number is further off than this, all taken together, with the given confidence."""
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"rmse": self.rmse, "max_error": self.max_error, "confidence": self.confidence}


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages in one flat array. While the offsets are there, they say who sent which."""

    values: NDArray[Any]
    users: int
    offsets: NDArray[np.int64] | None = None
    """User i sent values[offsets[i]:offsets[i + 1]]; None once the messages are shuffled."""
    secure: bool = True
    """False if their noise came from a seed."""

    def __len__(self) -> int:
        return len(self.values)

    def mixed(self, permute: Callable[[NDArray[Any]], None]) -> Messages:
        """Permute all messages in place and forget who sent which."""
        permute(self.values)
        return Messages(self.values, self.users, secure=self.secure)


@dataclass(frozen=True, eq=False)
class Tally:
    """How often each message value occurred, and from how many users. Tallies add up."""

    counts: NDArray[np.int64]
    users: int
    secure: bool = True
    """False if any of the noise came from a seed."""

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or not np.issubdtype(self.counts.dtype, np.integer):
            raise ParameterError("A tally is a flat array of whole numbers.")
        if self.users < 0 or (len(self.counts) and int(self.counts.min()) < 0):
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
        return Tally(self.counts + other.counts, self.users + other.users, self.secure and other.secure)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (self.users, self.secure) == (other.users, other.secure) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]


class Protocol(typing.Protocol):
    """What every protocol offers: a frozen set of public parameters from which all else follows."""

    name: ClassVar[str]
    question: ClassVar[str]
    model: ClassVar[str]

    @property
    def users(self) -> int:
        """The least number of reports of a round."""

    @property
    def domain_size(self) -> int:
        """Values are indices below this."""

    @property
    def guarantee(self) -> Guarantee:
        """The privacy of one release."""

    @property
    def cost(self) -> Cost:
        """What a user sends."""

    @property
    def message_values(self) -> int:
        """Messages are whole numbers below this."""

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""

    def report_law(self, index: int) -> dict[tuple[int, ...], Fraction]:
        """The exact law of one user's report, as copies of each message value; for small domains."""

    def randomize(self, index: int, *, source: RandomSource = ...) -> NDArray[Any]:
        """The messages of one user."""

    def randomize_all(self, indices: NDArray[np.int64], *, source: RandomSource = ...) -> Messages:
        """The messages of many users."""

    def tally(self, messages: Messages) -> Tally:
        """Count the messages."""

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = ...) -> Tally:
        """A tally with the same law as randomizing and counting, from the true counts alone."""

    def estimate(self, tally: Tally, *, estimator: str = ...) -> Any:
        """The statistic with its uncertainty."""

    def run(self, values: Iterable[Any], *, route: str = "auto", source: RandomSource = ...) -> Any:
        """The whole flow in this process."""

    def expected_error(
        self, *, estimator: str = ..., confidence: float = 0.95, counts: NDArray[np.int64] | None = None
    ) -> ExpectedError:
        """The error predicted from the exact law."""


def check_enough_users(users: int, needed: int) -> None:
    """Refuse a round with fewer users than its guarantee rests on."""
    if users < needed:
        raise BelowMinimumError(
            f"The round has {users:,} reports; the guarantee rests on {needed:,}. "
            f"Wait for {needed - users:,} more or plan for fewer users.",
            users=users,
            needed=needed,
        )
