"""Exact secure bits against the usual insecure, inexact way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.finding import Finding, at_least, report
from benchmarks.measuring import side_by_side

__all__ = ["measure"]

_BITS = 10_000_000
_PROBABILITIES = (0.5, 0.02, 0.003)
_BLOCK = 1 << 16


def measure(quick: bool) -> Iterator[Finding]:
    """Bits per second as a multiple of ``rng.random(n) < p``, and of the same in a reused buffer."""
    from shuffledp.randomness import Dyadic, bernoulli

    generator = np.random.Generator(np.random.PCG64())
    ratios, ratios_of_blocks, each = [], [], []
    for probability in _PROBABILITIES:
        times = side_by_side(
            {
                "exact": partial(bernoulli, Dyadic.at_least(probability), _BITS),
                "usual": lambda p=probability: generator.random(_BITS) < p,  # type: ignore[misc]
                "in blocks": partial(_threshold_in_blocks, generator, probability),
            },
            repetitions=5 if quick else 15,
        )
        ratios.append(times.ratio("usual", "exact"))
        ratios_of_blocks.append(times.ratio("in blocks", "exact"))
        each.append(f"p={probability:g}: {times.seconds('exact') / _BITS * 1e9:.2f} ns, {ratios[-1]:.1f}x")
    yield at_least("exact secure bits against rng.random(n) < p, least over p", min(ratios), 5, "; ".join(each))
    yield report(
        "the same against rng.random in a reused buffer",
        f"{min(ratios_of_blocks):.2f}x",
        "spares the peer the cost of fresh memory",
    )


def _threshold_in_blocks(generator: np.random.Generator, probability: float) -> None:
    out = np.empty(_BITS, dtype=np.bool_)
    uniform = np.empty(_BLOCK)
    for start in range(0, _BITS, _BLOCK):
        piece = out[start : start + _BLOCK]
        generator.random(out=uniform)
        np.less(uniform[: len(piece)], probability, out=piece)
