"""Benchmark of exact secure Bernoulli sampling against numpy's insecure and inexact sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.finding import Finding, at_least, report
from benchmarks.measuring import SideBySide, side_by_side

if TYPE_CHECKING:
    from shuffledp.randomness import Dyadic

_BITS = 10_000_000
_PROBABILITIES = (0.5, 0.3, 0.1, 0.02, 0.003)
_IRRATIONAL_DIGITS = 1000
_LEAST_BITS = 10
_LEAST_FLAGS = 5
_LEAST_PLACES = {0.02: 20, 0.001: 250}
_BLOCK = 1 << 16
_AT_ONCE = 10


def measure(quick: bool) -> Iterator[Finding]:
    """Bits per second as a multiple of ``rng.random(n) < p``: as a bitmap, as flags, and as the indices of the ones.

    Without the compiled kernels only the flags are judged.
    """
    from shuffledp.native import ACTIVE
    from shuffledp.randomness import Dyadic, bernoulli_indices

    repetitions = 5 if quick else 15
    probabilities: dict[str, Dyadic] = {f"{p:g}": Dyadic.at_least(p) for p in _PROBABILITIES}
    root = Dyadic(_root_of_half(_IRRATIONAL_DIGITS), _IRRATIONAL_DIGITS)
    probabilities[f"{float(root):.3f}... ({_IRRATIONAL_DIGITS} digits)"] = root
    times = {name: _time(probability, repetitions) for name, probability in probabilities.items()}
    for form, bound in (("bitmap", _LEAST_BITS if ACTIVE else None), ("flags", _LEAST_FLAGS)):
        ratios = {name: each.ratio("usual", form) for name, each in times.items()}
        detail = "; ".join(
            f"p={name}: {each.seconds(form) / _BITS * 1e9:.3f} ns, {ratios[name]:.1f}x" for name, each in times.items()
        )
        yield _finding(
            f"exact secure bits as {form} against rng.random(n) < p, least over p", min(ratios.values()), bound, detail
        )
    in_blocks = min(each.ratio("in blocks", "flags") for each in times.values())
    yield report(
        "flags against rng.random in a reused buffer", f"{in_blocks:.2f}x", "spares the peer the cost of fresh memory"
    )
    for rate, bound in _LEAST_PLACES.items():
        listed = side_by_side(
            {
                "indices": partial(_several, partial(bernoulli_indices, Dyadic.at_least(rate), _BITS)),
                "usual": partial(_usual, np.random.Generator(np.random.PCG64()), rate),
            },
            repetitions=repetitions,
        )
        yield _finding(
            f"indices of the ones, q = {rate:g}, against rng.random(n) < q",
            listed.ratio("usual", "indices") * _AT_ONCE,
            bound if ACTIVE else None,
            f"{listed.seconds('indices') / _AT_ONCE / _BITS * 1e9:.4f} ns a coin",
        )


def _finding(what: str, ratio: float, bound: float | None, detail: str) -> Finding:
    return report(what, f"{ratio:.2f}x", detail) if bound is None else at_least(what, ratio, bound, detail)


def _time(probability: Dyadic, repetitions: int) -> SideBySide:
    from shuffledp.randomness import bernoulli, bernoulli_bits

    generator = np.random.Generator(np.random.PCG64())
    rate = float(probability)
    return side_by_side(
        {
            "bitmap": partial(bernoulli_bits, probability, _BITS),
            "flags": partial(bernoulli, probability, _BITS),
            "usual": partial(_usual, generator, rate),
            "in blocks": partial(_usual_in_blocks, generator, rate),
        },
        repetitions=repetitions,
    )


def _several(call: Callable[[], object]) -> None:
    """Repeat a call that is too short to time."""
    for _ in range(_AT_ONCE):
        call()


def _root_of_half(digits: int) -> int:
    """The first binary digits of the square root of 1/2."""
    return isqrt(1 << 2 * digits - 1)


def _usual(generator: np.random.Generator, rate: float) -> object:
    return generator.random(_BITS) < rate


def _usual_in_blocks(generator: np.random.Generator, rate: float) -> None:
    out = np.empty(_BITS, dtype=np.bool_)
    uniform = np.empty(_BLOCK)
    for start in range(0, _BITS, _BLOCK):
        piece = out[start : start + _BLOCK]
        generator.random(out=uniform)
        np.less(uniform[: len(piece)], rate, out=piece)
