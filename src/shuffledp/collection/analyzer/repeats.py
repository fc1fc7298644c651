"""Copies of sealed messages: an honest device never sends one twice, so that a copy is somebody else's.

Who sees another's sealed report could send its messages again and again, under new report ids, and make that
person stand out in the release. A sealed message begins with a fresh random key, and cannot be changed without
breaking its seal; so two that are the same, byte for byte, are copies, of which one is counted. One that only begins
alike is no copy: it cannot be opened, and must not push out the message that can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stretch", "find_repeats"]

_AT_ONCE = 1 << 24  # messages that are compared in one pass over the files
_WORD = np.dtype("<u8")


class Stretch(Protocol):
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


def find_repeats(pieces: Sequence[Stretch], sealed_size: int, *, at_once: int = _AT_ONCE) -> dict[int, list[int]]:
    """From the number of a piece to the places of those of its messages that have occurred before.

    Memory stays bounded: messages are compared by remainders of their first eight bytes, some at a time.
    """
    total = sum(piece.messages for piece in pieces)
    passes = max(1, -(-total // at_once))
    repeats: dict[int, list[int]] = defaultdict(list)
    for remainder in range(passes):
        words, numbers = [np.empty(0, _WORD)], [np.empty(0, np.int64)]
        start = 0
        for word in _beginnings(pieces, sealed_size):
            chosen = np.flatnonzero(word % np.uint64(passes) == remainder) if passes > 1 else np.arange(len(word))
            words.append(word[chosen])
            numbers.append(chosen + start)
            start += len(word)
        for piece, place in _copies(pieces, sealed_size, np.concatenate(words), np.concatenate(numbers)):
            repeats[piece].append(place)
    return {piece: sorted(places) for piece, places in repeats.items()}


def _copies(
    pieces: Sequence[Stretch], sealed_size: int, words: NDArray[np.uint64], numbers: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Of messages that begin alike, those that have occurred before as a whole."""
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    alike = np.zeros(len(ordered), dtype=np.bool_)
    same = ordered[1:] == ordered[:-1]
    alike[1:] |= same
    alike[:-1] |= same
    starts = np.cumsum([0, *(piece.messages for piece in pieces)])
    seen: set[bytes] = set()
    for number in np.sort(numbers[order[alike]]).tolist():
        piece = int(np.searchsorted(starts, number, side="right")) - 1
        place = number - int(starts[piece])
        with pieces[piece].file.open("rb") as file:
            file.seek(pieces[piece].offset + place * sealed_size)
            message = file.read(sealed_size)
        if message in seen:
            yield piece, place
        seen.add(message)


def _beginnings(pieces: Sequence[Stretch], sealed_size: int) -> Iterator[NDArray[np.uint64]]:
    """The first eight bytes of every message, piece by piece."""
    for piece in pieces:
        with piece.file.open("rb") as file:
            file.seek(piece.offset)
            content = np.frombuffer(file.read(piece.messages * sealed_size), dtype=np.uint8)
        whole = len(content) // sealed_size
        messages = content[: whole * sealed_size].reshape(whole, sealed_size)
        yield np.ascontiguousarray(messages[:, : _WORD.itemsize]).view(_WORD).ravel()
