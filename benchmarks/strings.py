"""Benchmark of the search for strings of up to 24 letters: the compiled kernel against its numpy twin, and memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.finding import Finding, at_least, at_most, report, seconds
from benchmarks.measuring import in_fresh_process, side_by_side

_USERS = 1_000_000
_STRINGS = 100_000
_MAX_LENGTH = 24
_EXPONENT = 1.05
"""Of Zipf's law for the number of users per string."""
_LEAST_RATIO = 3.0
_MAX_MEGABYTES = 400


def measure(quick: bool) -> Iterator[Finding]:
    """Time to decode one tally of a million users, and the peak memory of a process that does only that."""
    from shuffledp.native import ACTIVE
    from shuffledp.protocols.strings.decoder import Decoder

    protocol, counts = _round()
    alternatives = {
        name: partial(Decoder(protocol.tree, counts, _USERS, native=native).decode)
        for name, native in (("kernel", True), ("numpy", False))
        if ACTIVE or not native
    }
    times = side_by_side(alternatives, repetitions=1 if quick else 3)
    what = f"find strings of up to {_MAX_LENGTH} letters of {_USERS:,} users"
    detail = ", ".join(
        f"{name} {seconds(times.processor_seconds(name))} of one core ({seconds(times.seconds(name))})"
        for name in alternatives
    )
    if ACTIVE:
        yield at_least(f"{what}, numpy over kernel", times.processor_ratio("numpy", "kernel"), _LEAST_RATIO, detail)
    else:
        yield report(what, seconds(times.seconds("numpy")), detail)
    run = in_fresh_process(decode_once)
    peak = run.peak_bytes / 1e6
    yield at_most(f"{what}, peak memory", peak, _MAX_MEGABYTES, "MB", f"{run.returned:,} strings found")


def decode_once() -> int:
    """Draw a tally and decode it; the number of strings found."""
    protocol, counts = _round()
    from shuffledp.protocols.strings.decoder import Decoder

    return len(Decoder(protocol.tree, counts, _USERS).decode().found)


def _round() -> tuple[Any, Any]:
    """A protocol and the tally of random strings, whose lengths are spread like those of English words."""
    from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings
    from shuffledp.randomness import InsecureSeededRandomness

    protocol = TreeBlanketStrings.calibrate(
        users=_USERS, epsilon=1.0, delta=1e-6, alphabet="a-z", max_length=_MAX_LENGTH
    )
    generator = np.random.default_rng(1)
    lengths = np.clip(generator.normal(9.0, 2.7, _STRINGS).round().astype(int), 3, _MAX_LENGTH)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    texts = ["".join(letters[generator.integers(0, 26, length)]) for length in lengths.tolist()]
    shares = np.arange(1, _STRINGS + 1) ** -_EXPONENT
    held = generator.multinomial(_USERS, shares / shares.sum())
    totals: dict[int, int] = {}
    for text, count in zip(texts, held.tolist(), strict=True):
        if count:
            index = protocol.domain.encode(text)
            totals[index] = totals.get(index, 0) + count
    rows = np.empty((len(totals), 2), dtype=protocol.domain.index_type)
    rows[:, 0], rows[:, 1] = list(totals), list(totals.values())
    tally = protocol.sample_tally(rows, source=InsecureSeededRandomness(1))
    return protocol, tally.counts.reshape(protocol.levels, protocol.buckets)
