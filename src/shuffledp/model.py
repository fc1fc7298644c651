"""The shuffled model: what users send, what is counted, what is released, and what a protocol is."""

from __future__ import annotations

import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import BelowMinimumError, MissingPackageError, ParameterError

if TYPE_CHECKING:
    from fractions import Fraction

    import pandas as pd
    import pyarrow as pa

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

Floats = NDArray[np.float64]
Intervals = Callable[[float], Floats]
"""From a confidence to the lower and upper ends, one row per estimated number."""


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


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """What every released statistic carries."""

    protocol: str
    estimator: str
    users: int
    guarantee: Guarantee
    intervals: Intervals = field(repr=False)
    secure: bool
    """False if a seed was used: then there is no privacy."""
    caveats: tuple[str, ...] = field(default=(), kw_only=True)
    """What about this result the guarantee does not cover, in plain words."""

    def _check_confidence(self, confidence: float) -> None:
        if not 0 < confidence < 1:
            raise ParameterError(f"The confidence must lie between 0 and 1, not {confidence}.", confidence=confidence)

    def guarantee_sentence(self) -> str:
        """The guarantee in plain words, or that there is none because the noise came from a seed."""
        if not self.secure:
            return "NOT PRIVATE: the noise came from a fixed seed (--insecure-seed); do not release this result."
        return " ".join((self.guarantee.sentence(), *self.caveats))

    def _to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "estimator": self.estimator,
            "guarantee": self.guarantee.to_json() if self.secure else None,
            "secure": self.secure,
            "caveats": list(self.caveats),
            "users": self.users,
        }

    def _caption(self, confidence: float) -> list[str]:
        """The lines under a figure's title: what the bars are, the guarantee, and what it does not cover."""
        lines = [f"Lines: {confidence:.0%} confidence. {self.users:,} users, protocol {self.protocol}."]
        if not self.secure:
            return [*lines, self.guarantee_sentence()]
        factor = math.exp(min(self.guarantee.epsilon, 700.0))
        lines.append(
            f"Differentially private in the shuffled model: epsilon = {self.guarantee.epsilon:.4g} (any outcome at "
            f"most {factor:.3g} times likelier), delta = {self.guarantee.delta:.2g}."
        )
        return [*lines, *self.caveats]

    def _title(self, subject: str) -> str:
        return f"{'Private' if self.secure else 'NOT PRIVATE'} {subject}"

    def plot(self, path: str | Path, *, confidence: float = 0.95, title: str | None = None) -> None:
        """Draw the estimate with its intervals (.png, .svg or .html)."""
        from shuffledp.figures import check_figure_path
        from shuffledp.output import write_whole

        suffix = check_figure_path(path).suffix.lower()
        write_whole(path, self.figure(suffix, confidence=confidence, title=title))

    @abstractmethod
    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """The drawing as the content of a file with that suffix."""


@dataclass(frozen=True, eq=False)
class CountEstimate(Estimate):
    """An estimated number of users who hold a 1."""

    value: float
    standard_error: float

    @property
    def fraction(self) -> float:
        """The estimated share of users."""
        return self.value / self.users

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """An interval that holds the true count with at least this confidence, whatever the count is."""
        self._check_confidence(confidence)
        low, high = self.intervals(confidence)[0]
        return float(low), float(high)

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """The documented JSON form."""
        return self._to_json() | {
            "value": self.value,
            "standard_error": self.standard_error,
            "interval": list(self.interval(confidence)),
            "confidence": confidence,
        }

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar with its interval among all users, as the content of a .png, .svg or .html file."""
        from shuffledp.figures import bars

        return bars(
            suffix,
            names=["yes"],
            values=np.array([self.value]),
            intervals=np.array([self.interval(confidence)]),
            title=title or self._title("count"),
            value_title=f"users (of {self.users:,})",
            caption=self._caption(confidence),
        )


@dataclass(frozen=True, eq=False)
class HistogramEstimate(Estimate):
    """Estimated numbers of users per category."""

    categories: tuple[str, ...]
    counts: Floats
    standard_errors: Floats

    @property
    def frequencies(self) -> Floats:
        """The estimated share of users per category."""
        return self.counts / self.users

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """Per category an interval that holds its true count with at least this confidence.

        With ``simultaneous``, all intervals together do (by dividing the risk among the categories).
        """
        self._check_confidence(confidence)
        if simultaneous:
            confidence = 1 - (1 - confidence) / len(self.counts)
        return self.intervals(confidence)

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """The documented JSON form."""
        return self._to_json() | {
            "categories": list(self.categories),
            "counts": self.counts.tolist(),
            "standard_errors": self.standard_errors.tolist(),
            "intervals": self.interval(confidence).tolist(),
            "confidence": confidence,
        }

    def to_table(self, confidence: float = 0.95) -> pa.Table:
        """The estimate as an Arrow table, one row per category."""
        import pyarrow as pa

        low, high = self.interval(confidence).T
        return pa.table(
            {
                "category": list(self.categories),
                "count": self.counts,
                "standard_error": self.standard_errors,
                "lower": low,
                "upper": high,
                "frequency": self.frequencies,
                "secure": [self.secure] * len(self.counts),
            }
        )

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The estimate as a pandas data frame, one row per category (pandas must be installed)."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingPackageError(
                "to_frame() needs pandas: pip install pandas, or use to_table() for an Arrow table."
            ) from None
        return self.to_table(confidence).to_pandas()

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar per category with its interval, as the content of a .png, .svg or .html file."""
        from shuffledp.figures import bars

        return bars(
            suffix,
            names=list(self.categories),
            values=self.counts,
            intervals=self.interval(confidence),
            title=title or self._title("histogram"),
            value_title=f"users (of {self.users:,})",
            caption=self._caption(confidence),
        )


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
