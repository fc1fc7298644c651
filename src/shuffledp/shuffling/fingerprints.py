"""Fingerprints of opaque records: equal for equal records, and different for different records except by chance.

A fingerprint is the sum of a record's words times secret random coefficients, so nobody can prepare collisions.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

_WORD = np.dtype("<u4")


def draw_coefficients(record_size: int) -> NDArray[np.uint64]:
    """New coefficients for records of this size."""
    return np.frombuffer(os.urandom(8 * -(-record_size // _WORD.itemsize)), dtype=np.uint64)


def fingerprints(records: NDArray[np.uint8], coefficients: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The fingerprint of each record; a record is a row of bytes. The high bits are the most evenly distributed."""
    count, record_size = records.shape
    padded = np.zeros((count, len(coefficients) * _WORD.itemsize), dtype=np.uint8)
    padded[:, :record_size] = records
    total = np.zeros(count, dtype=np.uint64)
    for words, coefficient in zip(padded.view(_WORD).T, coefficients, strict=True):
        total += words * coefficient
    return total


def sort_distinct(
    records: NDArray[np.uint8], coefficients: NDArray[np.uint64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The distinct records, compared byte by byte and sorted by their fingerprints, and the fingerprints."""
    prints = fingerprints(records, coefficients)
    order = np.argsort(prints, kind="stable")
    prints = prints[order]
    begins = np.append(True, prints[1:] != prints[:-1])[: len(prints)]
    first_of_its_kind = begins.copy()
    if not begins.all():
        seen: set[bytes] = set()
        collides = np.append(~begins[1:], False) | ~begins
        for position in np.flatnonzero(collides).tolist():
            if begins[position]:
                seen.clear()
            record = records[order[position]].tobytes()
            first_of_its_kind[position] = record not in seen
            seen.add(record)
    return records[order[first_of_its_kind]], prints[first_of_its_kind]
