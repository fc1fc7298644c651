"""A small protocol under test, with the laws that follow from its own table of reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.model import Messages, Tally
from shuffledp.testing.laws import Alphabet, Table

__all__ = ["Subject"]

TallyLaw = Mapping[tuple[int, ...], float]


@dataclass(frozen=True)
class Subject:
    """The protocol under test with its tables, made once."""

    protocol: Any
    values: tuple[Any, ...]
    samples: int
    alpha: float

    @property
    def users(self) -> int:
        """As many as the protocol needs."""
        return int(self.protocol.users)

    @property
    def estimator(self) -> str:
        """The default one."""
        return str(self.protocol.estimators[0])

    @cached_property
    def alphabet(self) -> Alphabet:
        """Numbers for all multisets of messages of a round."""
        longest = max(sum(copies) for law in self.report_laws for copies in law)
        return Alphabet(self.protocol.message_format.codes, self.users * longest + 1)

    @cached_property
    def report_laws(self) -> list[Mapping[tuple[int, ...], Any]]:
        """The protocol's own tables."""
        return [self.protocol.report_law(value) for value in self.values]

    @cached_property
    def reports(self) -> dict[Any, Table]:
        """The law of a report of each value."""
        laws = zip(self.values, self.report_laws, strict=True)
        return {value: Table.of(law, self.alphabet) for value, law in laws}

    @cached_property
    def data_sets(self) -> list[tuple[Any, ...]]:
        """A mixed one, and all users with the first or the last value."""
        mixed = tuple(self.values[user % len(self.values)] for user in range(self.users))
        return [mixed, (self.values[0],) * self.users, (self.values[-1],) * self.users]

    @property
    def released_only(self) -> bool:
        """Whether a trusted party releases, and nobody else sees messages."""
        return bool(self.protocol.model == "central" or self.protocol.trusts_shuffler)

    @cached_property
    def possible_reports(self) -> list[int]:
        """The numbers of all reports that some value may have: what a dishonest user can send unnoticed."""
        return sorted({outcome for table in self.reports.values() for outcome in table.outcomes.tolist()})

    def messages_law(self, data: tuple[Any, ...]) -> Table:
        """The law of the shuffled messages."""
        return Table.joined([self.reports[value] for value in data])

    def released_law(self, data: tuple[Any, ...], sent: tuple[int, ...] = ()) -> TallyLaw:
        """The distribution of what is released of a round over this data, whose order says nothing.

        ``sent`` are the numbers of further reports, which dishonest users chose.
        """
        key = tuple(sorted(data)), tuple(sorted(sent))
        if key not in self._released_laws:
            self._released_laws[key] = self._enumerated(*key)
        return self._released_laws[key]

    @cached_property
    def _released_laws(self) -> dict[tuple[tuple[Any, ...], tuple[int, ...]], TallyLaw]:
        return {}

    @cached_property
    def _releases(self) -> dict[int, list[tuple[tuple[int, ...], float]]]:
        """What is released of each multiset met so far: other data meets it again."""
        return {}

    def _enumerated(self, data: tuple[Any, ...], sent: tuple[int, ...]) -> TallyLaw:
        law: dict[tuple[int, ...], float] = {}
        table = self.messages_law(data)
        for outcome, mass in zip((table.outcomes + sum(sent)).tolist(), table.masses.tolist(), strict=True):
            if outcome not in self._releases:
                released = self.protocol.release_law(self.tally_of(outcome))
                self._releases[outcome] = [(seen, float(share)) for seen, share in released.items()]
            for seen, share in self._releases[outcome]:
                law[seen] = law.get(seen, 0.0) + mass * share
        return law

    def estimate_of(self, seen: tuple[int, ...]) -> NDArray[np.float64]:
        """The numbers that are estimated from a released tally."""
        if seen not in self._estimates:
            estimate = self.protocol.estimate(Tally(np.array(seen), self.users, released=self.released_only))
            found = estimate.counts if hasattr(estimate, "counts") else estimate.value
            self._estimates[seen] = np.atleast_1d(found)
        return self._estimates[seen]

    @cached_property
    def _estimates(self) -> dict[tuple[int, ...], NDArray[np.float64]]:
        return {}

    def tally_of(self, outcome: int) -> Tally:
        """The tally of a numbered multiset of messages."""
        messages = self.protocol.message_format.message(self.alphabet.kinds_of(outcome))
        tally: Tally = self.protocol.tally(Messages(messages, self.users))
        return tally

    def summary(self, data: tuple[Any, ...]) -> NDArray[Any]:
        """What the fast route starts from."""
        if self.protocol.question == "sum":
            return np.array(data)
        return np.bincount(data, minlength=self.protocol.domain_size)

    def truth(self, data: tuple[Any, ...]) -> NDArray[np.float64]:
        """What is estimated: every count, the count of ones, the sum or the mean."""
        if self.protocol.question == "sum":
            domain = self.protocol.domain
            total = len(data) * domain.lower + domain.width * sum(data)
            return np.array([total / len(data) if getattr(self.protocol, "statistic", "sum") == "mean" else total])
        counts = np.bincount(data, minlength=self.protocol.domain_size).astype(np.float64)
        return counts[1:] if self.protocol.question == "count" else counts
