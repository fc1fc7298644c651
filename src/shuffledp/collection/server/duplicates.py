"""Detection of duplicate sealed messages, which no honest device sends, so that each is counted once.

An attacker who sees another user's sealed report could replay its messages under new report ids, and make that user
stand out in the release. A sealed message begins with a fresh random key and cannot be modified without breaking the
seal, so two messages that are equal byte for byte are copies, of which one is counted. A message that only begins like
another is not a copy: it cannot be opened, and must not displace the one that can.

Messages are compared by a fingerprint of all their bytes with fresh random coefficients, for which nobody can prepare
collisions. Messages with equal fingerprints are compared by a cryptographic hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.shuffling.fingerprints import draw_coefficients, fingerprints

_AT_ONCE = 1 << 24  # messages that are compared in one pass over the files
_DIGEST_SIZE = 16


class MessageRange(Protocol):
    """Consecutive sealed messages in a file."""

    @property
    def file(self) -> Path:
        """The file."""

    @property
    def offset(self) -> int:
        """Position of the first byte in the file."""

    @property
    def messages(self) -> int:
        """Number of messages."""


def find_duplicates(pieces: Sequence[MessageRange], sealed_size: int, *, at_once: int = _AT_ONCE) -> dict[int, bytes]:
    """For every piece with duplicates, by its index: one byte per message, 1 if the message has occurred before.

    At most ``at_once`` messages are compared in one pass over the files, selected by the remainder of their
    fingerprints, so that memory stays bounded.
    """
    starts = np.cumsum([0, *(piece.messages for piece in pieces)])
    passes = max(1, -(-int(starts[-1]) // at_once))
    coefficients = draw_coefficients(sealed_size)
    marks: dict[int, NDArray[np.uint8]] = {}
    for remainder in range(passes):
        colliding = _colliding(_fingerprints(pieces, sealed_size, coefficients), passes, remainder)
        copies = _copies(pieces, sealed_size, starts, colliding)
        for number, positions in _by_piece(starts, copies):
            marks.setdefault(number, np.zeros(pieces[number].messages, dtype=np.uint8))[positions] = 1
    return {number: mark.tobytes() for number, mark in marks.items()}


def _colliding(fingerprints: Iterator[NDArray[np.uint64]], passes: int, remainder: int) -> NDArray[np.int64]:
    """The indices of messages whose fingerprint occurs more than once, sorted."""
    selected, indices = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    start = 0
    for piece in fingerprints:
        chosen = np.flatnonzero(piece % np.uint64(passes) == remainder) if passes > 1 else np.arange(len(piece))
        selected.append(piece[chosen])
        indices.append(chosen + start)
        start += len(piece)
    values, positions = np.concatenate(selected), np.concatenate(indices)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    colliding = np.zeros(len(ordered), dtype=np.bool_)
    same = ordered[1:] == ordered[:-1]
    colliding[1:] |= same
    colliding[:-1] |= same
    return np.sort(positions[order[colliding]])


def _copies(
    pieces: Sequence[MessageRange], sealed_size: int, starts: NDArray[np.int64], colliding: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of messages with equal fingerprints, the indices of those that are copies of an earlier message."""
    if not len(colliding):
        return colliding
    hashes = bytearray()
    for number, positions in _by_piece(starts, colliding):
        content = _read(pieces[number], sealed_size)
        for begin in (positions * sealed_size).tolist():
            message = content[begin : begin + sealed_size]
            hashes += hashlib.blake2b(message, digest_size=_DIGEST_SIZE).digest()
    halves = np.frombuffer(hashes, dtype=np.uint64).reshape(len(colliding), 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: of equal messages the earliest comes first
    ordered = halves[order]
    is_copy = np.all(ordered[1:] == ordered[:-1], axis=1)
    return np.sort(colliding[order[1:][is_copy]])


def _by_piece(starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Group sorted indices of messages by piece: the index of the piece, and positions within it."""
    owners = np.searchsorted(starts, numbers, side="right") - 1
    for owner in np.unique(owners).tolist():
        first, last = np.searchsorted(owners, (owner, owner + 1))
        yield owner, numbers[first:last] - starts[owner]


def _fingerprints(
    pieces: Sequence[MessageRange], sealed_size: int, coefficients: NDArray[np.uint64]
) -> Iterator[NDArray[np.uint64]]:
    """The fingerprints of all messages, piece by piece."""
    for piece in pieces:
        content = np.frombuffer(_read(piece, sealed_size), dtype=np.uint8)
        yield fingerprints(content.reshape(piece.messages, sealed_size), coefficients)


def _read(piece: MessageRange, sealed_size: int) -> bytes:
    """All bytes of a piece, padded with zeros if the file is truncated, which opening it reports."""
    size = piece.messages * sealed_size
    with piece.file.open("rb") as file:
        file.seek(piece.offset)
        return file.read(size).ljust(size, b"\x00")
