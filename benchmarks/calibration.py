"""Benchmark of the tight calibration for targets from a hundred to 10^12 users."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.finding import Finding, at_most, report, seconds

if TYPE_CHECKING:
    from shuffledp.privacy.binomial import Binomial
    from shuffledp.privacy.guarantee import PrivacyCurve
    from shuffledp.randomness import Dyadic

__all__ = ["measure"]

_USERS = tuple(10**power for power in range(2, 13))
_EPSILONS = (1e-4, 0.1, 1.0, 5.0)
_DELTAS = (1e-6, 1e-12)
_TIMED_AGAIN = 3
_NOISE_EPSILONS, _NOISE_DELTAS = (0.1, 0.3, 0.5, 1.0, 3.0, 10.0), (1e-3, 1e-6, 1e-12, 1e-30, 1e-100)
_NOISE_SPLITS = {"count": (0.6, 0.9, 0.97), "histogram": (0.7, 0.9, 0.98), "weighted": (0.655,)}
"""The splits that the planner tries."""


@dataclass(frozen=True)
class _Target:
    users: int
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"n = {self.users:.0e}, epsilon = {self.epsilon:g}, delta = {self.delta:g}"


@dataclass(frozen=True)
class _Run:
    target: _Target
    duration: float
    processor: float
    absence: Dyadic | None
    """None if there are too few users for the target."""


def measure(quick: bool) -> Iterator[Finding]:
    """The worst time over all targets, as a multiple of one evaluation of the privacy curve."""
    from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram

    repetitions = 1 if quick else 3
    users = _USERS[::2] if quick else _USERS
    yield from _worst("count", BinomialCount, users, 50, "ms", 1e3, repetitions)
    yield from _worst("histogram", BinomialHistogram, users, 2, "s", 1.0, repetitions)
    yield from _worst_correlated_noise(quick)


def _worst_correlated_noise(quick: bool) -> Iterator[Finding]:
    """The worst processor time over targets from epsilon 0.1 on, for counts, histograms and weighted clusters."""
    from shuffledp.privacy.cluster_calibration import least_noise
    from shuffledp.privacy.cluster_weights import LEAST_EPSILON_OF_A_TABLE, fewest_messages

    deltas = _NOISE_DELTAS[::2] if quick else _NOISE_DELTAS
    for form, splits in _NOISE_SPLITS.items():
        worst = (0.0, "")
        for epsilon, delta, split in product(_NOISE_EPSILONS, deltas, splits):
            if form == "weighted" and epsilon < LEAST_EPSILON_OF_A_TABLE:
                continue
            start = time.process_time()
            if form == "weighted":
                fewest_messages(epsilon, delta, split)
            else:
                least_noise(epsilon, delta, split, "signed" if form == "count" else "histogram")
            where = f"epsilon = {epsilon:g}, delta = {delta:g}, split = {split:g}"
            worst = max(worst, (time.process_time() - start, where))
        yield at_most(f"calibration of correlated-noise, {form}, worst target", worst[0], 2, "s", f"at {worst[1]}")


def _worst(
    question: str,
    curve_of: Callable[[Binomial], PrivacyCurve],
    users: tuple[int, ...],
    bound: float,
    unit: str,
    units_per_second: float,
    repetitions: int,
) -> Iterator[Finding]:
    targets = [_Target(*each) for each in product(users, _EPSILONS, _DELTAS)]
    _calibrate(curve_of, targets[-1])  # loads SciPy
    runs = [_timed(curve_of, target, repetitions) for target in targets]
    met = [run for run in runs if run.absence is not None]
    refused = [run for run in runs if run.absence is None]
    # on a busy machine a fast target may be slow once, so the slowest few are timed again
    slowest_few = sorted(met, key=lambda run: run.processor)[-_TIMED_AGAIN:]
    again = (_timed(curve_of, run.target, 2 * repetitions + 1) for run in slowest_few)
    worst = max(again, key=lambda run: run.duration)
    look = _one_look(curve_of, worst)
    yield at_most(
        f"tight calibration of a {question}, worst of {len(met)} targets",
        worst.duration * units_per_second,
        bound,
        unit,
        f"at {worst.target}, processor time {seconds(worst.processor)}; "
        f"median target {seconds(median(run.duration for run in met))}; "
        f"{worst.duration / look:.0f}x one look at the curve ({seconds(look)})",
    )
    if refused:
        slowest = max(refused, key=lambda run: run.duration)
        yield report(
            f"saying how many users a {question} would need, worst of {len(refused)} targets",
            seconds(slowest.duration),
            f"at {slowest.target}",
        )


def _timed(curve_of: Callable[[Binomial], PrivacyCurve], target: _Target, repetitions: int) -> _Run:
    durations, processor = [], []
    for _ in range(repetitions):
        start, start_processor = time.perf_counter(), time.process_time()
        absence = _calibrate(curve_of, target)
        durations.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
        if absence is None:
            break
    return _Run(target, median(durations), median(processor), absence)


def _calibrate(curve_of: Callable[[Binomial], PrivacyCurve], target: _Target) -> Dyadic | None:
    from shuffledp.errors import InfeasibleError
    from shuffledp.privacy.balcer_cheu import tight_noise

    try:
        return tight_noise(target.users, target.epsilon, target.delta, curve_of)
    except InfeasibleError:
        return None


def _one_look(curve_of: Callable[[Binomial], PrivacyCurve], run: _Run) -> float:
    from shuffledp.privacy.binomial import Binomial
    from shuffledp.randomness import Dyadic

    durations = []
    assert run.absence is not None
    for step in range(9):  # never the same distribution twice, since distributions are cached
        curve = curve_of(Binomial(run.target.users, Dyadic.at_least(float(run.absence) * (1 + step * 1e-6))))
        start = time.perf_counter()
        curve.delta_at(run.target.epsilon)
        durations.append(time.perf_counter() - start)
    return median(durations)
