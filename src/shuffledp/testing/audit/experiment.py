"""Rounds over two neighbouring data sets, and the numbers that an adversary computes from its view of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.messages import Messages
from shuffledp.protocols.protocol import Protocol
from shuffledp.shuffling import permute as permute_uniformly

Progress = Callable[[float], None]
Permute = Callable[[NDArray[Any]], None]
Rows = NDArray[np.int64]

_NUMBERS_AT_A_TIME = 1 << 21
_MAX_CODES = 1 << 20
_MAX_CODES_TALLIED = 4096
_MAX_ENTRIES = 4
_PILOT_ROUNDS = 300

_KINDS = "messages typical of either value"
_SCORE = "the messages' sum of learned scores"
_NUMBERS = "what the analyzer counts"
_RELEASED = "what is released"
_LENGTH = "the number of messages in the round"
_POSITION = " at the user's position"


@dataclass
class Ticker:
    """Reports the fraction of rounds that are done."""

    report: Progress | None
    total: int
    done: int = 0

    def __call__(self, rounds: int) -> None:
        """Add rounds that are done."""
        self.done += rounds
        if self.report is not None:
            self.report(min(1.0, self.done / self.total))


def shown(value: Any) -> str:
    """A value as a string for messages."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_steps(total: int, step: int) -> Iterator[int]:
    """Split the total into parts of at most ``step``."""
    for start in range(0, total, step):
        yield min(step, total - start)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two data sets that differ in one user."""

    first: NDArray[Any]
    second: NDArray[Any]
    target: int
    others: str

    @property
    def values(self) -> tuple[Any, Any]:
        """The replaced user's two values."""
        first, second = self.first[self.target], self.second[self.target]
        return (first, second) if self.first.dtype == object else (first.item(), second.item())


def neighbouring_pairs(protocol: Protocol, data: tuple[Sequence[Any], Sequence[Any]] | None) -> list[Pair]:
    """The pairs of data sets to try: the given one, or several that are likely to be the worst."""
    if data is not None:
        return [_given(protocol, *data)]
    values = protocol.inputs()
    if len(values) < 2:
        raise ParameterError("A domain of one value has no neighbouring data sets; there is nothing to audit.")
    first, last = values[0], values[-1]
    if protocol.trust == "local":
        pairs = [(first, last), (first, values[1])] if len(values) > 2 else [(first, last)]
        return [Pair(np.array([one]), np.array([other]), 0, "a single report") for one, other in pairs]
    other_users = (protocol.users if protocol.released_only else protocol.guarantee.honest_users) - 1
    configurations = {f"all others hold {shown(value)}": [value] * other_users for value in (first, last, values[1])}
    if other_users > 1:
        configurations["others hold all values in turn"] = [values[user % len(values)] for user in range(other_users)]
    return [
        Pair(np.array([first, *others]), np.array([last, *others]), 0, words)
        for words, others in configurations.items()
    ]


def _given(protocol: Protocol, first: Sequence[Any], second: Sequence[Any]) -> Pair:
    one, other = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != other.shape or np.count_nonzero(one != other) != 1:
        raise ParameterError("The two data sets must be lists of equal length that differ in exactly one user.")
    target = int(np.flatnonzero(one != other)[0])
    if protocol.trust == "local":
        return Pair(one[[target]], other[[target]], 0, "a single report")
    if len(one) < protocol.guarantee.honest_users:
        raise ParameterError(
            f"The guarantee requires {protocol.guarantee.honest_users:,} users; the data sets have {len(one):,}."
        )
    return Pair(one, other, target, "others as given")


@dataclass(eq=False)
class Experiment:
    """Rounds over two neighbouring data sets, and functions of the adversary's view of them.

    A lower bound is valid for any functions of the view; better ones give larger bounds.
    """

    protocol: Protocol
    pair: Pair
    permute: Permute | None
    _tables: dict[str, NDArray[np.int64]] | None = field(default=None, init=False)

    @property
    def users(self) -> int:
        """The number of users of a round."""
        return len(self.pair.first)

    @property
    def _numbers_per_round(self) -> float:
        columns = self.protocol.message_format.columns
        return float(self.users * max(1.0, self.protocol.cost.messages_per_user) * columns)

    @property
    def chunk(self) -> int:
        """The number of rounds that are simulated at a time, to bound the memory."""
        return max(1, int(_NUMBERS_AT_A_TIME / self._numbers_per_round))

    @property
    def released_only(self) -> bool:
        """Whether the adversary sees only the release of a trusted party, not the messages."""
        return self.protocol.released_only

    def labels(self, view: str, columns: int) -> list[str]:
        """A name for each number of a view."""
        position = _POSITION if view.endswith(_POSITION) else ""
        name = view.removesuffix(_POSITION)
        if name == _KINDS:
            return [f"messages typical of value {shown(value)}{position}" for value in self.pair.values]
        if columns == 1:
            return [view]
        if self._entries_of_values is not None:
            return [f"count of value {value}{position}" for value in self.pair.values]
        return [f"number {entry + 1} of {view}" for entry in self._entries]

    def sample(
        self, data: NDArray[Any], rounds: int, *, only: set[str] | None = None, tick: Ticker | None = None
    ) -> dict[str, Rows]:
        """Simulate rounds; for each view, one row of numbers per round."""
        parts = []
        for step in in_steps(rounds, self.chunk):
            parts.append(self._observed(data, step, only))
            if tick is not None:
                tick(step)
        return {view: np.concatenate([part[view] for part in parts]) for view in parts[0]}

    def _observed(self, data: NDArray[Any], rounds: int, only: set[str] | None) -> dict[str, Rows]:
        messages = self.protocol.randomize_all(np.tile(data, rounds))
        if messages.offsets is None:
            raise ParameterError("randomize_all must return messages with offsets per user; else it cannot be audited.")
        borders = messages.offsets[:: self.users]
        # a permutation does not change counts, so fresh rounds are shuffled only if a view depends on the order
        if self.permute is not None or only is None or any(view.endswith(_POSITION) for view in only):
            self._shuffle(messages, borders)
        if self.released_only:
            return {_RELEASED: self._numbers(messages, borders[:-1], borders[1:])}
        return self._views(messages, borders, only)

    def _shuffle(self, messages: Messages, borders: NDArray[np.int64]) -> None:
        """Shuffle each round separately, in place."""
        if self.protocol.trust != "shuffled":
            return
        permute = self.permute or permute_uniformly
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            Messages(messages.values[start:end], self.users).shuffled(permute)

    def _views(self, messages: Messages, borders: NDArray[np.int64], only: set[str] | None) -> dict[str, Rows]:
        """Numbers of messages that distinguish the two values, the analyzer's counts, and the length of the round."""
        if self._tables is None:
            self._tables = self._learn_tables()
        views: dict[str, Rows] = {}
        codes = self.protocol.message_format.code(messages.values) if self._tables else None
        for name in (_KINDS, _SCORE, _NUMBERS):
            table = self._tables.get(name)
            ranges = {name: (borders[:-1], borders[1:])}
            if self.protocol.trust == "shuffled" and name != _KINDS:
                ranges[name + _POSITION] = self._user_range(borders)
            for view, (starts, ends) in ranges.items():
                if only is not None and view not in only:
                    continue
                if table is not None:
                    views[view] = _sums(table[codes], starts, ends)
                elif name == _NUMBERS:
                    views[view] = self._numbers(messages, starts, ends)
        if only is None or _LENGTH in only:
            views[_LENGTH] = np.diff(borders)[:, np.newaxis]
        return views

    def _user_range(self, borders: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start and end of the target's messages in each round, if it were not shuffled."""
        expected = self.protocol.cost.messages_per_user
        start = np.minimum(borders[:-1] + round(self.pair.target * expected), borders[1:])
        return start, np.minimum(start + max(1, round(expected)), borders[1:])

    def _learn_tables(self) -> dict[str, NDArray[np.int64]]:
        """For each view the contribution of each message, by its code; empty if there are too many codes."""
        codes = self.protocol.message_format.codes
        if codes > _MAX_CODES:
            return {}
        reports = int(min(4000, max(50, _NUMBERS_AT_A_TIME / max(1.0, self.protocol.cost.messages_per_user))))
        copies = [self._copies(value, reports) for value in (self.pair.first, self.pair.second)]
        difference = copies[0] - copies[1]
        clear = np.abs(difference) > 3 * np.sqrt(copies[0] + copies[1])
        scores = np.where(clear, np.round(4 * np.log((copies[0] + 1) / (copies[1] + 1))), 0).astype(np.int64)
        kinds = np.column_stack((clear & (difference > 0), clear & (difference < 0))).astype(np.int64)
        tables = {_KINDS: kinds, _SCORE: scores[:, np.newaxis]}
        counted = self._tallied_table(codes)
        return tables if counted is None else tables | {_NUMBERS: counted}

    def _copies(self, data: NDArray[Any], reports: int) -> NDArray[np.int64]:
        """The number of copies of each message in simulated reports of the target's value."""
        sent = self.protocol.randomize_all(np.repeat(data[self.pair.target], reports))
        format_ = self.protocol.message_format
        return np.bincount(format_.code(sent.values), minlength=format_.codes)

    def _tallied_table(self, codes: int) -> NDArray[np.int64] | None:
        """The analyzer's counts of each single message, if these add up to the counts of a round; else None."""
        if codes > _MAX_CODES_TALLIED:
            return None
        all_messages = Messages(self.protocol.message_format.message(np.arange(codes)), codes)
        try:
            table = self._numbers(all_messages, np.arange(codes), np.arange(1, codes + 1))
            sample = self.protocol.randomize_all(self.pair.first)
            total = self._numbers(sample, np.array([0]), np.array([len(sample)]))
        except ShuffledpError:
            return None
        added = table[self.protocol.message_format.code(sample.values)].sum(axis=0)
        return table if np.array_equal(added, total[0]) else None

    def _numbers(self, messages: Messages, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """The selected entries of the analyzer's counts, or of the release, for each range of messages."""
        rows = [
            self._counted(messages.values[start:end])[self._entries]
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), -1)

    def _counted(self, values: NDArray[Any]) -> NDArray[Any]:
        tally = self.protocol.release(self.protocol.tally(Messages(values, self.users)))
        return tally.counts if self.released_only else self.protocol.observed(tally)

    @cached_property
    def _length(self) -> int:
        """The number of entries that the analyzer counts."""
        return len(self._counted(self.protocol.randomize_all(self.pair.first).values))

    @cached_property
    def _entries_of_values(self) -> NDArray[np.int64] | None:
        """The entries of the two values, if every value has an entry of its own."""
        return self.protocol.entries_of(self.pair.values, self._length)

    @cached_property
    def _entries(self) -> NDArray[np.int64]:
        """The entries to observe: those of the two values, else all if they are few, else those that differ most."""
        if self._entries_of_values is not None:
            return self._entries_of_values
        length = self._length
        if length <= _MAX_ENTRIES:
            return np.arange(length)
        samples = []
        for data in (self.pair.first, self.pair.second):
            rounds = [self._counted(self.protocol.randomize_all(data).values) for _ in range(_PILOT_ROUNDS)]
            samples.append(np.array(rounds, dtype=np.float64))
        gap = np.abs(samples[0].mean(axis=0) - samples[1].mean(axis=0))
        spread = np.sqrt(samples[0].var(axis=0) + samples[1].var(axis=0)) + 1e-9
        return np.sort(np.argsort(-gap / spread, kind="stable")[:_MAX_ENTRIES])


def _sums(numbers: Rows, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
    """The sum of the rows of each range."""
    totals = np.zeros((len(numbers) + 1, numbers.shape[1]), dtype=np.int64)
    np.cumsum(numbers, axis=0, out=totals[1:])
    summed: Rows = totals[ends] - totals[starts]
    return summed
