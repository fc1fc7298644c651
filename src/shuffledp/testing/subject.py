"""A small protocol under test, with the distributions derived from its own pmf of reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.estimate import (
    CountEstimate,
    Estimate,
    HistogramEstimate,
    QuantileEstimate,
    StringsEstimate,
    SumEstimate,
)
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import Protocol
from shuffledp.testing.distributions import Alphabet, Table

TallyPmf = Mapping[tuple[int, ...], float]


@dataclass(frozen=True)
class Subject:
    """The protocol under test, with cached tables."""

    protocol: Protocol
    values: tuple[Any, ...]
    samples: int
    alpha: float

    @property
    def users(self) -> int:
        """The number of users that the protocol is calibrated for."""
        return self.protocol.users

    @property
    def estimator(self) -> str:
        """The default estimator."""
        return self.protocol.estimators[0]

    @cached_property
    def alphabet(self) -> Alphabet:
        """The encoding of all multisets of messages of a round."""
        longest = max(sum(copies) for pmf in self.report_pmfs for copies in pmf)
        return Alphabet(self.protocol.message_format.codes, self.users * longest + 1)

    @cached_property
    def report_pmfs(self) -> list[Mapping[tuple[int, ...], Any]]:
        """The pmf of a report for each value."""
        return [self.protocol.report_pmf(value) for value in self.values]

    @cached_property
    def reports(self) -> dict[Any, Table]:
        """The distribution of a report of each value."""
        pmfs = zip(self.values, self.report_pmfs, strict=True)
        return {value: Table.of(pmf, self.alphabet) for value, pmf in pmfs}

    @cached_property
    def data_sets(self) -> list[tuple[Any, ...]]:
        """Three data sets: mixed values, all users with the first value, all with the last."""
        mixed = tuple(self.values[user % len(self.values)] for user in range(self.users))
        return [mixed, (self.values[0],) * self.users, (self.values[-1],) * self.users]

    @property
    def released_only(self) -> bool:
        """Whether only the release of a trusted party is seen, not the messages."""
        return self.protocol.released_only

    @cached_property
    def possible_reports(self) -> list[int]:
        """All reports that some value may have, encoded: those that a dishonest user can send undetected."""
        return sorted({outcome for table in self.reports.values() for outcome in table.outcomes.tolist()})

    def messages_pmf(self, data: tuple[Any, ...]) -> Table:
        """The distribution of the shuffled messages."""
        return Table.joined([self.reports[value] for value in data])

    def released_pmf(self, data: tuple[Any, ...], sent: tuple[int, ...] = ()) -> TallyPmf:
        """The distribution of the released tally of a round over this data; the order has no effect.

        ``sent`` are further encoded reports, chosen by dishonest users.
        """
        key = tuple(sorted(data)), tuple(sorted(sent))
        if key not in self._released_pmfs:
            self._released_pmfs[key] = self._enumerated(*key)
        return self._released_pmfs[key]

    @cached_property
    def _released_pmfs(self) -> dict[tuple[tuple[Any, ...], tuple[int, ...]], TallyPmf]:
        return {}

    @cached_property
    def _releases(self) -> dict[int, list[tuple[tuple[int, ...], float]]]:
        """The distribution of the release of each multiset, cached for other data."""
        return {}

    def _enumerated(self, data: tuple[Any, ...], sent: tuple[int, ...]) -> TallyPmf:
        pmf: dict[tuple[int, ...], float] = {}
        table = self.messages_pmf(data)
        for outcome, mass in zip((table.outcomes + sum(sent)).tolist(), table.masses.tolist(), strict=True):
            if outcome not in self._releases:
                released = self.protocol.release_pmf(self.tally_of(outcome))
                self._releases[outcome] = [(counts, float(share)) for counts, share in released.items()]
            for counts, share in self._releases[outcome]:
                pmf[counts] = pmf.get(counts, 0.0) + mass * share
        return pmf

    def estimate_of(self, counts: tuple[int, ...]) -> NDArray[np.float64]:
        """The numbers that are estimated from a released tally."""
        if counts not in self._estimates:
            estimate = self.protocol.estimate(Tally(np.array(counts), self.users, released=self.released_only))
            self._estimates[counts] = numbers_of(estimate, self.protocol)
        return self._estimates[counts]

    @cached_property
    def _estimates(self) -> dict[tuple[int, ...], NDArray[np.float64]]:
        return {}

    def tally_of(self, outcome: int) -> Tally:
        """The tally of an encoded multiset of messages."""
        messages = self.protocol.message_format.message(self.alphabet.codes_of(outcome))
        return self.protocol.tally(Messages(messages, self.users))

    def summary(self, data: tuple[Any, ...]) -> NDArray[Any]:
        """The summary of the data that ``sample_tally`` takes."""
        return self.protocol.summary(np.array(data))

    def truth(self, data: tuple[Any, ...]) -> NDArray[np.float64]:
        """The true value of what is estimated: all counts, the count of ones, the sum or the mean."""
        return self.protocol.truth(np.array(data))


def numbers_of(estimate: Estimate, protocol: Protocol) -> NDArray[np.float64]:
    """The estimated numbers: all counts, the users below each edge, or the single value."""
    if isinstance(estimate, StringsEstimate):
        counts = np.zeros(len(protocol.inputs()))
        counts[protocol.domain.encode_all(estimate.strings)] = estimate.counts
        return counts
    if isinstance(estimate, HistogramEstimate):
        return estimate.counts
    if isinstance(estimate, QuantileEstimate):
        return estimate.below
    if isinstance(estimate, CountEstimate | SumEstimate):
        return np.array([estimate.value])
    raise ParameterError(
        f"An estimate is a count, a histogram, a sum, quantiles or strings, not {type(estimate).__name__}."
    )
