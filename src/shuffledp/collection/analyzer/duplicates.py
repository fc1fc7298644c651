"""Duplicates of sealed messages, which no honest device sends, are found and not counted.

Who sees another's sealed report could send its messages again and again, under new report ids, and make that
person stand out in the release. A sealed message begins with a fresh random key, and cannot be changed without
breaking its seal; so two that are the same, byte for byte, are copies, of which one is counted. One that only begins
alike is no copy: it cannot be opened, and must not push out the message that can.

Messages are told apart by a fingerprint of all their bytes with fresh random coefficients, so that nobody can make
different ones look alike beforehand. Those that do look alike are compared by a cryptographic hash, piece by piece.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 24  # messages that are compared in one pass over the files
_WORD = np.dtype("<u4")
_DIGEST_SIZE = 16


class MessageRange(Protocol):
    """Some sealed messages one after the other in a file."""

    @property
    def file(self) -> Path:
        """Where they are."""

    @property
    def offset(self) -> int:
        """Where they begin."""

    @property
    def messages(self) -> int:
        """How many they are."""


def find_duplicates(pieces: Sequence[MessageRange], sealed_size: int, *, at_once: int = _AT_ONCE) -> dict[int, bytes]:
    """From the number of a piece that holds copies to a byte for each of its messages: 1 if it has occurred before.

    Memory stays bounded: messages are compared by remainders of their fingerprints, some at a time.
    """
    starts = np.cumsum([0, *(piece.messages for piece in pieces)])
    passes = max(1, -(-int(starts[-1]) // at_once))
    words = -(-sealed_size // _WORD.itemsize)
    coefficients = np.frombuffer(os.urandom(8 * words), dtype=np.uint64)
    marks: dict[int, NDArray[np.uint8]] = {}
    for remainder in range(passes):
        alike = _alike(_fingerprints(pieces, sealed_size, coefficients), passes, remainder)
        copies = _copies(pieces, sealed_size, starts, alike)
        for number, places in _by_piece(starts, copies):
            marks.setdefault(number, np.zeros(pieces[number].messages, dtype=np.uint8))[places] = 1
    return {number: mark.tobytes() for number, mark in marks.items()}


def _alike(fingerprints: Iterator[NDArray[np.uint64]], passes: int, remainder: int) -> NDArray[np.int64]:
    """The numbers of messages whose fingerprint is that of another as well, in order."""
    found, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    start = 0
    for each in fingerprints:
        chosen = np.flatnonzero(each % np.uint64(passes) == remainder) if passes > 1 else np.arange(len(each))
        found.append(each[chosen])
        numbers.append(chosen + start)
        start += len(each)
    values, places = np.concatenate(found), np.concatenate(numbers)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    alike = np.zeros(len(ordered), dtype=np.bool_)
    same = ordered[1:] == ordered[:-1]
    alike[1:] |= same
    alike[:-1] |= same
    return np.sort(places[order[alike]])


def _copies(
    pieces: Sequence[MessageRange], sealed_size: int, starts: NDArray[np.int64], alike: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of messages that look alike, the numbers of those that have occurred before as a whole."""
    if not len(alike):
        return alike
    hashes = bytearray()
    for number, places in _by_piece(starts, alike):
        content = _read(pieces[number], sealed_size)
        for begin in (places * sealed_size).tolist():
            message = content[begin : begin + sealed_size]
            hashes += hashlib.blake2b(message, digest_size=_DIGEST_SIZE).digest()
    halves = np.frombuffer(hashes, dtype=np.uint64).reshape(len(alike), 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: of the same ones the earliest comes first
    ordered = halves[order]
    again = np.all(ordered[1:] == ordered[:-1], axis=1)
    return np.sort(alike[order[1:][again]])


def _by_piece(starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Ordered numbers of messages as places in the pieces that they are in."""
    owners = np.searchsorted(starts, numbers, side="right") - 1
    for owner in np.unique(owners).tolist():
        first, last = np.searchsorted(owners, (owner, owner + 1))
        yield owner, numbers[first:last] - starts[owner]


def _fingerprints(
    pieces: Sequence[MessageRange], sealed_size: int, coefficients: NDArray[np.uint64]
) -> Iterator[NDArray[np.uint64]]:
    """A sum of the words of every message with random coefficients, piece by piece: different ones hardly agree."""
    for piece in pieces:
        content = np.frombuffer(_read(piece, sealed_size), dtype=np.uint8).reshape(piece.messages, sealed_size)
        padded = np.zeros((piece.messages, len(coefficients) * _WORD.itemsize), dtype=np.uint8)
        padded[:, :sealed_size] = content
        total = np.zeros(piece.messages, dtype=np.uint64)
        for words, coefficient in zip(padded.view(_WORD).T, coefficients, strict=True):
            total += words * coefficient
        yield total


def _read(piece: MessageRange, sealed_size: int) -> bytes:
    """All bytes of a piece, padded with zeros if the file ends too early, which whoever opens it will notice."""
    size = piece.messages * sealed_size
    with piece.file.open("rb") as file:
        file.seek(piece.offset)
        return file.read(size).ljust(size, b"\x00")
