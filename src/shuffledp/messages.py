"""Messages of users in one flat array, their format as bits, and tallies of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import DomainError, ParameterError
from shuffledp.native import ACTIVE, available_cores

_CHUNK_BITS = 1 << 23
_WORD_BITS = (8, 16, 32, 64)  # messages of at most as many bits as the largest are packed as integers
_CHUNK_VALUES = 1 << 20
_MAX_COUNTED = 1 << 31  # at a time: counters of 32 bits do not overflow
_MIN_VALUES_PER_THREAD = 1 << 21
_NARROW_TABLE = 1 << 10  # four of them stay in the nearest cache
_TABLE_BYTES = 1 << 25  # for all tables beside the result

Tables = list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of a round in one flat array: ``values``, of ``users`` users.

    User i sent ``values[offsets[i]:offsets[i + 1]]``; ``offsets`` is None once the messages are shuffled. ``secure`` is
    False if the noise came from a seed.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=100, epsilon=1.0, delta=1e-3)
    >>> messages = protocol.randomize_all(protocol.domain.encode_all([0, 1] * 50))
    >>> len(messages), messages.shuffled(sdp.permute).offsets
    (200, None)
    """

    values: NDArray[Any]
    """One entry per message; a row per message where a message has several parts."""
    users: int
    offsets: NDArray[np.int64] | None = None
    """User i sent values[offsets[i]:offsets[i + 1]]; None once the messages are shuffled."""
    secure: bool = True
    """False if the noise came from a seed."""

    def __len__(self) -> int:
        return len(self.values)

    def unordered(self) -> Messages:
        """The messages without their senders, in the same order; only for callers that ignore the order."""
        return Messages(self.values, self.users, secure=self.secure)

    def shuffled(self, permute: Callable[[NDArray[Any]], None]) -> Messages:
        """Permute all messages in place and drop their senders."""
        permute(self.values)
        return self.unordered()


@dataclass(frozen=True)
class MessageFormat:
    """The format of a message: an integer below each of ``bounds``, then ``flags`` bits."""

    bounds: tuple[int, ...]
    flags: int = 0

    def __post_init__(self) -> None:
        if any(not 1 <= bound <= 1 << 64 for bound in self.bounds) or self.flags < 0 or not self.columns:
            raise ParameterError(
                "A message needs at least one part, bounds in 1 .. 2^64 and no negative number of flags; "
                f"got bounds={self.bounds}, flags={self.flags}."
            )

    @property
    def columns(self) -> int:
        """The number of parts of a message."""
        return len(self.bounds) + self.flags

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that can represent every part."""
        return np.min_scalar_type(max([*self.bounds, 2]) - 1)

    @property
    def bits(self) -> int:
        """The number of bits of one message."""
        return max(1, sum((bound - 1).bit_length() for bound in self.bounds) + self.flags)

    @property
    def size(self) -> int:
        """The number of bytes of one packed message."""
        return -(-self.bits // 8)

    @property
    def codes(self) -> int:
        """The number of different messages."""
        return math.prod(self.bounds) << self.flags

    def empty(self, length: int) -> NDArray[Any]:
        """An uninitialized array for ``length`` messages."""
        return np.empty(length if self.columns == 1 else (length, self.columns), dtype=self.dtype)

    def check(self, values: NDArray[Any]) -> NDArray[Any]:
        """The messages, after checking that each has this format."""
        rows = values.reshape(-1, 1) if values.ndim == 1 else values
        if rows.ndim != 2 or rows.shape[1] != self.columns or not _is_integer(rows.dtype):
            raise DomainError(
                f"Messages of shape {values.shape} and type {values.dtype} do not have {self.columns} parts."
            )
        if len(rows) == 0:
            return values
        limits = np.array([*self.bounds, *[2] * self.flags], dtype=object)
        lowest, highest = rows.min(axis=0), rows.max(axis=0)
        if any(int(low) < 0 or int(high) >= limit for low, high, limit in zip(lowest, highest, limits, strict=True)):
            raise DomainError("A message has a part outside its bounds.", bounds=self.bounds)
        return values

    def code(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The index of each message in the list of all messages."""
        if self.codes > 1 << 62:
            raise ParameterError(f"There are {self.codes:,} different messages, too many for 64-bit indices.")
        rows = values.reshape(-1, self.columns).astype(np.int64)
        index = np.zeros(len(rows), dtype=np.int64)
        for column, bound in enumerate((*self.bounds, *[2] * self.flags)):
            index = index * bound + rows[:, column]
        return index

    def message(self, code: NDArray[np.int64]) -> NDArray[Any]:
        """The messages at these indices in the list of all messages."""
        rows = np.empty((len(code), self.columns), dtype=self.dtype)
        remaining = np.asarray(code, dtype=np.int64)
        for column, bound in reversed(list(enumerate((*self.bounds, *[2] * self.flags)))):
            remaining, part = np.divmod(remaining, bound)
            rows[:, column] = part
        return rows[:, 0] if self.columns == 1 else rows

    def pack(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Each message as ``size`` bytes: its parts from the most significant bit on, then zeros."""
        rows = self.check(values).reshape(-1, self.columns)
        packed = np.zeros((len(rows), self.size), dtype=np.uint8)
        if self._word is not None:
            for start in range(0, len(rows), _CHUNK_VALUES):
                words = self._words(rows[start : start + _CHUNK_VALUES], self._word)
                content = words.astype(self._word.newbyteorder(">"), copy=False).view(np.uint8)
                packed[start : start + _CHUNK_VALUES] = content.reshape(len(words), -1)[:, : self.size]
            return packed
        for start in range(0, len(rows), self._chunk):
            chunk = rows[start : start + self._chunk]
            bits = np.zeros((len(chunk), 8 * self.size), dtype=np.uint8)
            at = 0
            for column, bound in enumerate(self.bounds):
                width = (bound - 1).bit_length()
                shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
                bits[:, at : at + width] = (chunk[:, column, None].astype(np.uint64) >> shifts) & np.uint64(1)
                at += width
            bits[:, at : at + self.flags] = chunk[:, len(self.bounds) :]
            packed[start : start + self._chunk] = np.packbits(bits, axis=1)
        return packed

    def unpack(self, packed: NDArray[np.uint8]) -> NDArray[Any]:
        """The messages from their bytes; refuses bytes that ``pack`` does not produce."""
        if packed.ndim != 2 or packed.shape[1] != self.size or packed.dtype != np.uint8:
            raise DomainError(f"Packed messages are rows of {self.size} bytes.", size=self.size)
        rows = np.zeros((len(packed), self.columns), dtype=self.dtype)
        if self._word is not None:
            for start in range(0, len(packed), _CHUNK_VALUES):
                end = start + _CHUNK_VALUES
                self._read_words(packed[start:end], rows[start:end], self._word)
            return rows[:, 0] if self.columns == 1 else rows
        for start in range(0, len(packed), self._chunk):
            bits = np.unpackbits(packed[start : start + self._chunk], axis=1)
            at = 0
            for column, bound in enumerate(self.bounds):
                width = (bound - 1).bit_length()
                part = np.zeros(len(bits), dtype=np.uint64)
                for position in range(at, at + width):
                    part = part << np.uint64(1) | bits[:, position]
                rows[start : start + self._chunk, column] = part
                if part.size and int(part.max()) >= bound:
                    raise DomainError("A packed message has a part outside its bounds.", bounds=self.bounds)
                at += width
            rows[start : start + self._chunk, len(self.bounds) :] = bits[:, at : at + self.flags]
            if bits[:, at + self.flags :].any():
                raise DomainError("A packed message has bits set after its end.")
        return rows[:, 0] if self.columns == 1 else rows

    @property
    def _word(self) -> np.dtype[Any] | None:
        """The smallest unsigned integer that has room for a packed message; None if there is none."""
        return next((np.dtype(f"u{bits // 8}") for bits in _WORD_BITS if self.bits <= bits), None)

    def _words(self, rows: NDArray[Any], word: np.dtype[Any]) -> NDArray[Any]:
        """Messages as integers whose most significant bits are the parts."""
        words, free = np.zeros(len(rows), dtype=word), 8 * word.itemsize
        for column, bound in enumerate((*self.bounds, *[2] * self.flags)):
            width = (bound - 1).bit_length()
            free -= width
            if width:
                words |= rows[:, column].astype(word) << word.type(free)
        return words

    def _read_words(self, packed: NDArray[np.uint8], rows: NDArray[Any], word: np.dtype[Any]) -> None:
        """The inverse of ``_words`` for packed messages; refuses the same bytes as ``unpack``."""
        padded = np.ascontiguousarray(packed)
        if self.size < word.itemsize:
            padded = np.zeros((len(packed), word.itemsize), dtype=np.uint8)
            padded[:, : self.size] = packed
        words, free = padded.view(word.newbyteorder(">"))[:, 0].astype(word), 8 * word.itemsize
        for column, bound in enumerate((*self.bounds, *[2] * self.flags)):
            width = (bound - 1).bit_length()
            free -= width
            if not width:
                continue
            part = words >> word.type(free) & word.type((1 << width) - 1)
            if len(part) and int(part.max()) >= bound:
                raise DomainError("A packed message has a part outside its bounds.", bounds=self.bounds)
            rows[:, column] = part
        if free and (words & word.type((1 << free) - 1)).any():
            raise DomainError("A packed message has bits set after its end.")

    @property
    def _chunk(self) -> int:
        return max(1, _CHUNK_BITS // (8 * self.size))


@dataclass(frozen=True, eq=False)
class Tally:
    """The analyzer's ``counts`` of each message value, and the number of ``users`` who sent them.

    Tallies of parts of a round add up. ``secure`` is False if noise came from a seed; ``released`` is True once a
    trusted party has added its noise.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=100, epsilon=1.0, delta=1e-3)
    >>> tally = protocol.tally(protocol.randomize_all(protocol.domain.encode_all([0, 1] * 50)))
    >>> tally.users, tally.counts.sum().item()
    (100, 200)
    """

    counts: NDArray[np.int64]
    users: int
    secure: bool = True
    """False if any of the noise came from a seed."""
    released: bool = False
    """True once a trusted party has added its noise; then it is final, and counts may lie below 0."""

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or not np.issubdtype(self.counts.dtype, np.integer):
            raise ParameterError("A tally is a flat array of integers.")
        if self.users < 0 or (not self.released and len(self.counts) and int(self.counts.min()) < 0):
            raise ParameterError("A tally counts messages and users; neither can be below 0.")

    @classmethod
    def zero(cls, size: int) -> Tally:
        """The empty tally, of no users."""
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


def count_values(values: NDArray[Any], bound: int) -> NDArray[np.int64]:
    """The number of occurrences of each integer below ``bound``; DomainError if a value is not one of them."""
    if values.ndim != 1 or not _is_integer(values.dtype):
        raise DomainError(f"Messages of shape {values.shape} and type {values.dtype} are not a flat array of integers.")
    if bound < 0:
        raise ParameterError(f"bound must not be negative; got {bound}.", bound=bound)
    counts = np.zeros(bound, dtype=np.int64)
    if not (_count_natively if ACTIVE else _count_in_chunks)(values, counts):
        raise DomainError(f"A message is outside its bounds: an integer from 0 to below {bound:,}.", bound=bound)
    return counts


def _count_in_chunks(values: NDArray[Any], counts: NDArray[np.int64]) -> bool:
    """Count with numpy; False if a value is outside the table."""
    for start in range(0, len(values), _CHUNK_VALUES):
        chunk = values[start : start + _CHUNK_VALUES]
        if int(chunk.min()) < 0 or int(chunk.max()) >= len(counts):
            return False
        counts += np.bincount(chunk.astype(np.int64, copy=False), minlength=len(counts))
    return True


def _count_natively(values: NDArray[Any], counts: NDArray[np.int64]) -> bool:
    """Count with the compiled kernels, which read unsigned numbers: negative ones come after all others."""
    item_bytes = values.dtype.itemsize
    limit = len(counts) if values.dtype.kind != "i" else min(len(counts), 1 << (8 * item_bytes - 1))
    readable = values.flags.c_contiguous and values.flags.aligned and values.dtype.isnative
    step = _MAX_COUNTED if readable else _CHUNK_VALUES
    for start in range(0, len(values), step):
        part = values[start : start + step]
        if not readable:
            part = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("="))
        if not _count_part(part.view(f"u{item_bytes}"), limit, counts):
            return False
    return True


def _count_part(part: NDArray[Any], limit: int, counts: NDArray[np.int64]) -> bool:
    """Count in several threads, each with its own tables, if there are many values and the tables are small."""
    from shuffledp.native._counting import count_in_bytes

    width = len(counts)
    max_tables = _TABLE_BYTES // ((counts.itemsize + 1) * max(1, width))
    if max_tables == 0:
        return count_in_bytes(part, limit, np.empty(0, dtype=np.uint8), counts) >= 0
    threads = max(1, min(available_cores(), len(part) // _MIN_VALUES_PER_THREAD, max_tables))
    cuts = [len(part) * thread // threads for thread in range(threads + 1)]
    parts = [part[start:end] for start, end in pairwise(cuts)]
    count = partial(_count_narrow if width <= _NARROW_TABLE else _count_wide, limit=limit, width=width)
    for tables in map(count, parts) if threads == 1 else _in_threads(count, parts):
        if tables is None:
            return False
        for table in tables:
            counts += table
    return True


def _in_threads(count: Callable[[NDArray[Any]], Tables | None], parts: list[NDArray[Any]]) -> list[Tables | None]:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and devices do not need it

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(count, parts))


def _count_narrow(part: NDArray[Any], *, limit: int, width: int) -> Tables | None:
    """Tables whose sum is the counts; None if a value is not below the limit."""
    from shuffledp.native._counting import count_in_four

    tables = np.zeros((4, width), dtype=np.uint32)
    return list(tables) if count_in_four(part, limit, tables) else None


def _count_wide(part: NDArray[Any], *, limit: int, width: int) -> Tables | None:
    from shuffledp.native._counting import count_in_bytes

    low, high = np.zeros(width, dtype=np.uint8), np.zeros(width, dtype=np.int64)
    carried = count_in_bytes(part, limit, low, high)
    return None if carried < 0 else [low, high] if carried else [low]


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iub"
