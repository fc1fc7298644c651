"""Benchmark of secure random words against numpy's insecure generator, and against the cipher alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.finding import Finding, at_least, report
from benchmarks.measuring import side_by_side

_WORDS = 1_000_000
_LEAST_OVER_PCG64 = 1.6
_SMALL_REQUESTS = (100, 1_000, 10_000)
_AT_ONCE = 200


def measure(quick: bool) -> Iterator[Finding]:
    """Words per second as a multiple of PCG64's; the share of the cipher's own speed; small requests."""
    from shuffledp.randomness import SYSTEM, draw_bytes, draw_words

    generator = np.random.Generator(np.random.PCG64())
    out = np.empty(8 * _WORDS, dtype=np.uint8)
    times = side_by_side(
        {
            "ours": partial(draw_words, _WORDS, np.uint64, SYSTEM),
            "pcg64": partial(generator.integers, 2**64, size=_WORDS, dtype=np.uint64),
            "filled": partial(SYSTEM.fill, out),
            "cipher": partial(_cipher, out),
        },
        repetitions=15 if quick else 45,
    )
    each = {name: times.seconds(name) / _WORDS * 1e9 for name in ("ours", "pcg64")}
    yield at_least(
        "secure uint64 in bulk against PCG64",
        times.ratio("pcg64", "ours"),
        _LEAST_OVER_PCG64,
        f"{each['ours']:.2f} ns against {each['pcg64']:.2f} ns a word",
    )
    yield report("of the speed of AES-256-CTR alone", f"{times.ratio('cipher', 'filled'):.2f}x", "into warm memory")
    for size in _SMALL_REQUESTS:
        times = side_by_side(
            {"ours": partial(_repeat, draw_bytes, size, SYSTEM), "system": partial(_repeat, os.urandom, size)},
            repetitions=5 if quick else 15,
        )
        yield report(
            f"requests of {size:,} bytes against os.urandom",
            f"{times.ratio('system', 'ours'):.2f}x",
            f"{times.seconds('ours') / _AT_ONCE * 1e6:.2f} us each",
        )


def _cipher(out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, view = memoryview(bytes(1 << 16)), out.data
    for start in range(0, len(view), len(zeros)):
        piece = view[start : start + len(zeros)]
        cipher.update_into(zeros[: len(piece)], piece)


def _repeat(draw: object, *arguments: object) -> None:
    for _ in range(_AT_ONCE):
        draw(*arguments)  # type: ignore[operator]
