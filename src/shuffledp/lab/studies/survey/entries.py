"""The entries of the survey's table of private sums: a protocol for each row, and the measurement of its rounds.

The survey is a set of notes on private mean estimation, called "the notes" here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.lab.studies.checks import rmse
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.registry import find
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.randomness import RandomSource

EPSILON, DELTA = 1.0, 1e-6
_MAX_LEVELS = 500  # more levels would need more noise than can be drawn
_USERS_COUNTED = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """The fixed values of all users in all rounds, so that only the protocols are random."""

    name: str
    values: Callable[[int], NDArray[Any]]
    """From the number of users to their values, as randomizers take them."""


def _skewed_numbers(users: int) -> Floats:
    """The quantiles of the density 2 (1 - x), in which small numbers are frequent."""
    quantiles: Floats = 1 - np.sqrt(1 - (np.arange(users) + 0.5) / users)
    return quantiles


def _quarter_of_ones(users: int) -> NDArray[np.int64]:
    return (np.arange(users) < users // 4).astype(np.int64)


NUMBERS = Data("numbers in [0, 1]", _skewed_numbers)
BITS = Data("bits", _quarter_of_ones)


def _levels_of_almost_central(users: int) -> dict[str, Any]:
    return {"levels": min(math.ceil(EPSILON * math.sqrt(users)), _MAX_LEVELS)}


def _no_options(users: int) -> dict[str, Any]:  # noqa: ARG001
    return {}


@dataclass(frozen=True)
class Entry:
    """One row of the survey's table and one protocol for it."""

    name: str
    """The label in figures."""
    row: str
    """The row of the notes."""
    noted: str
    """Error and messages as stated in the notes."""
    corrected: str
    """The correct error of the sum, and messages."""
    question: str
    protocol: str
    """With the question, the name of the protocol in the registry."""
    group: str = ""
    """Entries of one group have the same colour in figures."""
    counts_all_messages: bool = False
    """Whether the number of messages is random, so that it is taken from the tally."""
    share: float | None = None
    """The share of epsilon that the noise is calibrated for, if it is the noise of the central model."""
    effort: float = 1.0
    """The share of the usual number of rounds that is run, below 1 for slow protocols."""
    data: Data = NUMBERS
    options: Callable[[int], dict[str, Any]] = _no_options
    """Options of the calibration, by the number of users."""
    drawn: bool = True
    """Whether the figure of errors shows it; a curve that nearly coincides with another is left out."""
    swept: bool = False
    """Whether it is also measured at other values of delta."""
    hoeffding: bool = False
    """Whether Hoeffding's bound of the notes is about it."""
    paper_bounds: str = ""
    """The quantity that must not exceed its value with the paper's constants: ``error``, ``messages`` or none."""


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
        drawn=False,
    ),
    Entry(
        "privacy blanket",
        "Shuffle, Privacy Blanket",
        "O(1/epsilon); O(log(n/delta))",
        "Theta(n^(1/6)); 1 (the notes' numbers are those of split and mix)",
        "sum",
        "privacy-blanket",
        paper_bounds="error",
    ),
    Entry("cheu, many bits", "", "", "O(log(1/delta)/epsilon); epsilon sqrt(n)", "sum", "cheu", "cheu", effort=0.15),
    Entry(
        "almost central",
        "Shuffle, Almost Central",
        "(empty)",
        "arbitrarily close to the central error; 1 + o(1)",
        "sum",
        "almost-central",
        counts_all_messages=True,
        share=0.9,
        effort=0.25,
        options=_levels_of_almost_central,
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
        data=BITS,
        hoeffding=True,
    ),
    Entry(
        "cheu, one message",
        "Shuffle, one message for binary sums",
        "Omega(sqrt(log(1/delta))); 1",
        "Omega(sqrt(log(1/delta))), and O(sqrt(log(1/delta))/epsilon) by this protocol; 1",
        "count",
        "cheu",
        "cheu",
        data=BITS,
        swept=True,
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
        data=BITS,
        swept=True,
        paper_bounds="messages",
    ),
    Entry(
        "central",
        "Central",
        "O(1/epsilon); 1",
        "O(1/epsilon); 1",
        "count",
        "discrete-laplace",
        "central",
        share=1.0,
        data=BITS,
        swept=True,
    ),
)
"""All entries, in the order in which they are drawn."""


def calibrated(
    entry: Entry, users: int, *, calibration: str = "tight", delta: float = DELTA
) -> CountProtocol | SumProtocol:
    """The protocol of an entry, calibrated for this number of users."""
    kind = find(entry.question, entry.protocol)
    protocol = kind.calibrate(
        users=users,
        epsilon=EPSILON,
        delta=delta,
        calibration=calibration,
        **kind.domain_settings(lower=0.0, upper=1.0),
        **entry.options(users),
    )
    assert isinstance(protocol, CountProtocol | SumProtocol)  # noqa: S101 - the survey has no histograms
    return protocol


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurement of one protocol for one number of users."""

    entry: Entry
    users: int
    delta: float
    errors: Floats
    predicted: float
    """The predicted root mean squared error for these data."""
    radius: float
    """The error that is exceeded in at most 5 of 100 rounds, for any data."""
    messages: Floats
    """The average number of messages per user: for each round if it is random, else one number."""
    expected_messages: float
    bits_per_message: float
    rounding: float
    """The largest part of the mean squared error that comes from rounding, over all data; 0 where it is not bounded."""
    true_delta: float
    """Delta at the study's epsilon, computed from the noise that is drawn."""

    @property
    def name(self) -> str:
        """The protocol with its question."""
        return f"{self.entry.question}/{self.entry.protocol}"

    @property
    def largest_square(self) -> float | None:
        """A bound on the mean squared error, including rounding, if the noise is that of the central model."""
        if self.entry.share is None:
            return None
        return 2 / (self.entry.share * EPSILON) ** 2 + self.rounding

    def as_row(self) -> dict[str, Any]:
        """The measurement as a row of a table."""
        error, low, high = rmse(self.errors)
        return {
            "protocol": self.name,
            "users": self.users,
            "delta": self.delta,
            "rounds": len(self.errors),
            "rmse": error,
            "rmse_low": low,
            "rmse_high": high,
            "predicted_rmse": self.predicted,
            "predicted_95_percent": self.radius,
            "rmse_of_mean": error / self.users,
            "messages": float(self.messages.mean()),
            "expected_messages": self.expected_messages,
            "bits_per_message": self.bits_per_message,
            "true_delta": self.true_delta,
        }


def measured(entry: Entry, users: int, rounds: int, source: RandomSource, *, delta: float = DELTA) -> Measured:
    """Run ``rounds`` rounds of an entry."""
    protocol = calibrated(entry, users, delta=delta)
    values = entry.data.values(users)
    summary: NDArray[Any] = protocol.summary(values)
    truth = float(protocol.truth(values)[0])
    errors, messages = np.empty(rounds), []
    for number in range(rounds):
        tally = protocol.sample_tally(summary, source=source)
        errors[number] = protocol.estimate(tally).value - truth
        if entry.counts_all_messages:
            messages.append(int(tally.counts.sum()) / users)
    expected = protocol.expected_error_of(values)
    return Measured(
        entry,
        users,
        delta,
        errors,
        expected.rmse,
        expected.max_error,
        np.array(messages or [_messages_of_some(protocol, entry.data, source)]),
        protocol.cost.messages_per_user,
        protocol.cost.bits_per_message,
        0.0 if entry.share is None else _largest_rounding(protocol),
        protocol.guarantee.delta_at(EPSILON),
    )


def _largest_rounding(protocol: CountProtocol | SumProtocol) -> float:
    """The largest mean squared error over all data minus that of the lowest values, which are not rounded."""
    lowest = np.full(protocol.users, protocol.inputs()[0])
    return max(0.0, protocol.expected_error().rmse ** 2 - protocol.expected_error_of(lowest).rmse ** 2)


def _messages_of_some(protocol: CountProtocol | SumProtocol, data: Data, source: RandomSource) -> float:
    """The average number of messages of a few users, for protocols in which all users send the same number."""
    return len(protocol.randomize_all(data.values(_USERS_COUNTED), source=source)) / _USERS_COUNTED
