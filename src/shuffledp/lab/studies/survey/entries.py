"""The rows of the survey's table of private sums, each with a protocol that stands for it, and how one is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.lab.studies.checks import rmse
from shuffledp.protocols.questions import CountProtocol, SumProtocol
from shuffledp.protocols.registry import find
from shuffledp.randomness import RandomSource

EPSILON, DELTA = 1.0, 1e-6
_UNIT = Interval(0.0, 1.0)
_MOST_ATOM_LEVELS = 500  # the noise for more is more than is drawn
_USERS_COUNTED = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """One row of the survey's table and one protocol for it."""

    name: str
    """As it is written in figures."""
    row: str
    """Which row of the notes."""
    noted: str
    """What the notes say about error and messages."""
    corrected: str
    """What is right, of the sum."""
    question: str
    protocol: str
    group: str = ""
    """Rows of one group have one colour in figures."""
    counts_all_messages: bool = False
    """The number of messages is random, and a tally counts each."""
    share: float | None = None
    """Where the noise is that of the central model: for which part of epsilon."""
    effort: float = 1.0
    """Which part of the usual rounds is run, where they take long."""


ENTRIES = (
    Entry(
        "local: duchi",
        "Local",
        "O(1/sqrt(n)); 1",
        "O(sqrt(n)/epsilon), a mean's divided by n; 1",
        "sum",
        "duchi",
        "local",
    ),
    Entry(
        "local: piecewise",
        "Local",
        "O(1/sqrt(n)); 1",
        "O(sqrt(n)/epsilon), a mean's divided by n; 1",
        "sum",
        "piecewise",
        "local",
    ),
    Entry(
        "privacy blanket",
        "Shuffle, Privacy Blanket",
        "O(1/epsilon); O(log(n/delta))",
        "Theta(n^(1/6)); 1 (the notes' numbers are those of split and mix)",
        "sum",
        "privacy-blanket",
    ),
    Entry("cheu, many bits", "", "", "O(log(1/delta)/epsilon); epsilon sqrt(n)", "sum", "cheu", "cheu", effort=0.15),
    Entry(
        "almost central",
        "Shuffle, Almost Central",
        "(empty)",
        "as near to the central error as one likes; 1 + o(1)",
        "sum",
        "almost-central",
        counts_all_messages=True,
        share=0.9,
        effort=0.25,
    ),
    Entry(
        "split and mix",
        "Shuffle, Privacy Blanket",
        "O(1/epsilon); O(log(n/delta))",
        "O(1/epsilon); O(1 + log(1/delta)/log(n))",
        "sum",
        "split-and-mix",
        share=1.0,
    ),
    Entry("central", "Central", "O(1/epsilon); 1", "O(1/epsilon); 1", "sum", "discrete-laplace", "central", share=1.0),
    Entry(
        "local: randomized response",
        "Local",
        "O(1/sqrt(n)); 1",
        "O(sqrt(n)/epsilon), a mean's divided by n; 1",
        "count",
        "randomized-response",
        "local",
    ),
    Entry(
        "cheu, one message",
        "Shuffle, one message for binary sums",
        "Omega(sqrt(log(1/delta))); 1",
        "Omega(sqrt(log(1/delta))), and O(sqrt(log(1/delta))/epsilon) by this protocol; 1",
        "count",
        "cheu",
        "cheu",
    ),
    Entry(
        "correlated noise",
        "Shuffle, Vanishing complexity for binary sums",
        "O(1/epsilon); O(log^2(1/delta)/n)",
        "O(1/epsilon); 1 + O(log(1/delta)/(epsilon n))",
        "count",
        "correlated-noise",
        counts_all_messages=True,
        share=0.9,
    ),
    Entry(
        "central", "Central", "O(1/epsilon); 1", "O(1/epsilon); 1", "count", "discrete-laplace", "central", share=1.0
    ),
)
"""In the order in which they are drawn."""


def calibrated(
    entry: Entry, users: int, *, calibration: str = "tight", delta: float = DELTA
) -> CountProtocol | SumProtocol:
    """The protocol of a row for so many users."""
    settings: dict[str, Any] = {"users": users, "epsilon": EPSILON, "delta": delta, "calibration": calibration}
    if entry.question == "sum":
        settings["domain"] = _UNIT
    if entry.protocol == "almost-central":
        settings["levels"] = min(math.ceil(EPSILON * math.sqrt(users)), _MOST_ATOM_LEVELS)
    protocol = find(entry.question, entry.protocol).calibrate(**settings)
    assert isinstance(protocol, CountProtocol | SumProtocol)  # noqa: S101 - the survey has no histograms
    return protocol


def data_of(question: str, users: int) -> NDArray[Any]:
    """The data, without chance. Numbers: the quantiles of the density 2 (1 - x), many small ones. Bits: a quarter ones.

    Counts of zeros and ones stand for bits.
    """
    if question == "count":
        return np.array([users - users // 4, users // 4], dtype=np.int64)
    quantiles: Floats = 1 - np.sqrt(1 - (np.arange(users) + 0.5) / users)
    return quantiles


@dataclass(frozen=True, eq=False)
class Measured:
    """Rounds of one protocol for one number of users."""

    entry: Entry
    users: int
    delta: float
    errors: Floats
    predicted: float
    """The root mean squared error for just these data."""
    radius: float
    """The error that is exceeded in at most 5 of 100 rounds, whatever the data."""
    messages: Floats
    """Sent by a user on average: in each round if that differs, else once."""
    expected_messages: float
    bits_per_message: float
    levels: int | None
    """To how many points numbers are rounded, less one."""
    true_delta: float
    """At the epsilon of all, as computed from the noise that is drawn."""

    @property
    def name(self) -> str:
        """The protocol with its question."""
        return f"{self.entry.question}/{self.entry.protocol}"

    @property
    def largest_square(self) -> float | None:
        """A bound on the mean squared error where the noise is that of the central model, rounding included."""
        if self.entry.share is None:
            return None
        rounding = 0.0 if self.levels is None else self.users / (4 * self.levels**2)
        return 2 / (self.entry.share * EPSILON) ** 2 + rounding

    def as_row(self) -> dict[str, Any]:
        """As a row of a table."""
        found, low, high = rmse(self.errors)
        return {
            "protocol": self.name,
            "users": self.users,
            "delta": self.delta,
            "rounds": len(self.errors),
            "rmse": found,
            "rmse_low": low,
            "rmse_high": high,
            "predicted_rmse": self.predicted,
            "predicted_95_percent": self.radius,
            "rmse_of_mean": found / self.users,
            "messages": float(self.messages.mean()),
            "expected_messages": self.expected_messages,
            "bits_per_message": self.bits_per_message,
            "true_delta": self.true_delta,
        }


def measured(entry: Entry, users: int, rounds: int, source: RandomSource, *, delta: float = DELTA) -> Measured:
    """Run so many rounds of a row."""
    protocol = calibrated(entry, users, delta=delta)
    data = data_of(entry.question, users)
    truth = float(data[1]) if entry.question == "count" else math.fsum(data)
    errors, messages = np.empty(rounds), []
    for place in range(rounds):
        tally = protocol.sample_tally(data, source=source)
        errors[place] = protocol.estimate(tally).value - truth
        if entry.counts_all_messages:
            messages.append(int(tally.counts.sum()) / users)
    if isinstance(protocol, CountProtocol):
        expected = protocol.expected_error(confidence=0.95, counts=data[1:])
    else:
        expected = protocol.expected_error(confidence=0.95, values=data)
    return Measured(
        entry,
        users,
        delta,
        errors,
        expected.rmse,
        expected.max_error,
        np.array(messages or [_messages_of_some(protocol, entry.question, source)]),
        protocol.cost.messages_per_user,
        protocol.cost.bits_per_message,
        getattr(protocol, "levels", None),
        protocol.guarantee.delta_at(EPSILON),
    )


def _messages_of_some(protocol: CountProtocol | SumProtocol, question: str, source: RandomSource) -> float:
    """What some users send on average, if everybody sends as many messages."""
    values = np.arange(_USERS_COUNTED) % 2 if question == "count" else data_of(question, _USERS_COUNTED)
    return len(protocol.randomize_all(values, source=source)) / _USERS_COUNTED
