"""Benchmark of mixing a round that is larger than the memory limit: messages are permuted through files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import in_fresh_process

_SEALED = 50  # bytes of a sealed message with one byte of content
_MEMORY = 1 << 28  # the shuffler's setting permutation_megabytes
_REPORT_MESSAGES = 20


def measure(quick: bool) -> Iterator[Finding]:
    """The memory, which must not grow with the round, and the time as a multiple of plain copying."""
    few, many = (1_000_000, 10_000_000) if quick else (10_000_000, 100_000_000)
    small, large = (in_fresh_process(mix, messages, _MEMORY) for messages in (few, many))
    start = in_fresh_process(mix, 100, 1 << 20).peak_bytes
    yield at_most(
        f"memory to mix {many:,} messages ({many * _SEALED / 1e9:.1f} GB) against what it was allowed",
        (large.peak_bytes - start) / _MEMORY,
        1.25,
        "x",
        f"{large.peak_bytes / 1e6:,.0f} MB in all; {small.peak_bytes / 1e6:,.0f} MB for {few:,}",
    )
    yield report(
        "time to mix them against writing them and reading them again, twice",
        f"{large.returned['mixing'] / (2 * large.returned['copying']):.1f}x",
        f"{seconds(large.returned['mixing'])}; {seconds(large.returned['copying'])} to write, flush and read once",
    )
    yield report("time for each message", seconds(large.returned["mixing"] / many), f"{many:,} messages")


def mix(messages: int, memory: int) -> dict[str, float]:
    """Permute so many messages, which come as reports, and copy as many bytes plainly; seconds of both."""
    from shuffledp.shuffling.external import permute_file

    with TemporaryDirectory() as name:
        directory = Path(name)
        block = os.urandom(_SEALED * _REPORT_MESSAGES * 1000)
        blocks = -(-messages * _SEALED // len(block))
        start = time.perf_counter()
        permute_file((block for _ in range(blocks)), _SEALED, directory / "out", scratch=directory, memory=memory)
        mixed = time.perf_counter()
        (directory / "out").unlink()
        again = time.perf_counter()
        with (directory / "copy").open("wb") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        with (directory / "copy").open("rb", buffering=0) as file:
            while file.readinto(bytearray(len(block))):
                pass
        return {"mixing": mixed - start, "copying": time.perf_counter() - again}
