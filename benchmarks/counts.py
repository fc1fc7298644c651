"""Benchmark of sampling tallies: a billion users and a million categories, without generating messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from statistics import median

import numpy as np

from benchmarks.finding import Finding, at_least, at_most, report, seconds
from benchmarks.measuring import FreshRun, in_fresh_process, side_by_side

_USERS = 10**9
_CATEGORIES = 10**6
_SIZES = (10**5, 10**6, 2 * 10**6)
_EPSILONS = (1.0, 0.001)  # little noise, and so much that the sampler's table is long
_DELTA = 1e-9
_LINEAR_WITHIN = 1.5
_DRAWS = 10**6
_LEAST_DRAWS = {10**6: 6, 10**9: 3}
_RATES = (0.5, 0.01)


def measure(quick: bool) -> Iterator[Finding]:
    """Seconds of a round, its time as a multiple of numpy's inexact binomial, and the memory per category."""
    for epsilon in _EPSILONS:
        runs = [in_fresh_process(release, _CATEGORIES, epsilon).returned for _ in range(1 if quick else 3)]
        parts = {name: median(run[name] for run in runs) for name in runs[0]}
        yield at_most(
            f"10^9 users, 10^6 categories, epsilon = {epsilon:g}: sample and estimate",
            parts["sample"] + parts["estimate"],
            10,
            "s",
            ", ".join(f"{name} {seconds(value)}" for name, value in parts.items()),
        )
    yield _against_numpy(repetitions=3 if quick else 7)
    yield from _binomial(repetitions=5 if quick else 15)
    yield from _memory([in_fresh_process(release, size, _EPSILONS[0]) for size in _SIZES])


def release(categories: int, epsilon: float) -> dict[str, float]:
    """One round by counts; the seconds of its parts."""
    from shuffledp import BalcerCheuHistogram

    marks = [time.perf_counter()]
    protocol = BalcerCheuHistogram.calibrate(users=_USERS, domain_size=categories, epsilon=epsilon, delta=_DELTA)
    counts = np.full(categories, _USERS // categories, dtype=np.int64)
    counts[0] += _USERS - int(counts.sum())
    marks.append(time.perf_counter())
    tally = protocol.sample_tally(counts)
    marks.append(time.perf_counter())
    protocol.estimate(tally).interval()
    marks.append(time.perf_counter())
    return dict(zip(("calibrate", "sample", "estimate"), np.diff(marks).tolist(), strict=True))


def _against_numpy(*, repetitions: int) -> Finding:
    from shuffledp import BalcerCheuHistogram
    from shuffledp.randomness import binomial

    protocol = BalcerCheuHistogram.calibrate(users=_USERS, domain_size=2, epsilon=1.0, delta=_DELTA)
    generator = np.random.default_rng()
    times = side_by_side(
        {
            "exact": lambda: binomial(_USERS, protocol.absence, _CATEGORIES),
            "numpy": lambda: generator.binomial(_USERS, float(protocol.absence), _CATEGORIES),
        },
        repetitions=repetitions,
    )
    per_draw = times.seconds("exact") / _CATEGORIES * 1e9
    return report(
        "exact secure binomial draws against Generator.binomial",
        f"{times.ratio('numpy', 'exact'):.2f}x",
        f"{per_draw:.1f} ns a draw",
    )


def _binomial(*, repetitions: int) -> Iterator[Finding]:
    """Draws with one precomputed table; there is no bound without the compiled kernels."""
    from shuffledp.native import ACTIVE
    from shuffledp.randomness import Dyadic, binomial

    generator = np.random.default_rng()
    for trials, bound in _LEAST_DRAWS.items():
        ratios, details = [], []
        for rate in _RATES:
            times = side_by_side(
                {
                    "exact": partial(binomial, trials, Dyadic.at_least(rate), _DRAWS),
                    "numpy": partial(generator.binomial, trials, rate, _DRAWS),
                },
                repetitions=repetitions,
            )
            ratios.append(times.ratio("numpy", "exact"))
            details.append(f"p={rate:g}: {times.seconds('exact') / _DRAWS * 1e9:.1f} ns, {ratios[-1]:.1f}x")
        what, detail = f"exact binomial draws of {trials:,} trials, least over p", "; ".join(details)
        yield at_least(what, min(ratios), bound, detail) if ACTIVE else report(what, f"{min(ratios):.2f}x", detail)


def _memory(runs: list[FreshRun]) -> Iterator[Finding]:
    peaks = [run.peak_bytes for run in runs]
    slopes = np.diff(peaks) / np.diff(_SIZES)
    detail = ", ".join(f"{size:,}: {peak / 1e6:.0f} MB" for size, peak in zip(_SIZES, peaks, strict=True))
    yield report("peak memory per category", f"{(peaks[-1] - peaks[0]) / (_SIZES[-1] - _SIZES[0]):.0f} bytes", detail)
    yield at_most(
        "growth of the memory per category from a hundred thousand to two million",
        float(slopes[1] / slopes[0]),
        _LINEAR_WITHIN,
        "x",
        "1 is exactly linear",
    )
