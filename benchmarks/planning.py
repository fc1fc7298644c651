"""Benchmark of the planner for different questions, including Python's start-up and in a warm process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import python, side_by_side

_MAX_SECONDS = 3.0


@dataclass(frozen=True)
class _Asked:
    """A call of one of the planner's functions, as it would be written."""

    function: str
    question: str
    target: dict[str, float]

    def __str__(self) -> str:
        target = ", ".join(f"{name}={value:g}" for name, value in self.target.items())
        return f"{self.function}({self.question}, {target})"

    @property
    def program(self) -> str:
        return f"from shuffledp.planning import *\n{self.function}({self.question}, **{self.target!r})"

    def answer(self, delta_factor: float) -> Any:
        """The same call in this process, at a slightly different delta, so that cached results are not used."""
        from shuffledp import planning

        target = {**self.target, "delta": self.target["delta"] * delta_factor}
        return getattr(planning, self.function)(eval(self.question, vars(planning)), **target)


def _plan(question: str, epsilon: float, delta: float) -> _Asked:
    return _Asked("plan", question, {"epsilon": epsilon, "delta": delta})


_ASKED = (
    _plan("Count(100)", 8, 1e-4),
    _plan("Count(10**5)", 1, 1e-6),
    _plan("Count(10**9)", 0.05, 1e-12),
    _plan("Histogram(1000, 2)", 4, 1e-4),
    _plan("Histogram(10**4, 50)", 0.5, 1e-6),
    _plan("Histogram(10**5, 100)", 1, 1e-6),
    _plan("Histogram(10**6, 10**4)", 1, 1e-8),
    _plan("Histogram(10**7, 10**7)", 2, 1e-10),
    _plan("Histogram(10**9, 1000)", 0.05, 1e-12),
    _plan("Sum(100)", 8, 1e-4),
    _plan("Sum(10**5)", 1, 1e-6),
    _plan("Sum(10**9, -1, 1)", 0.05, 1e-12),
    _plan("Mean(10**4, 0, 100, whole=True)", 2, 1e-6),
    _plan("Mean(10**7, 0, 100)", 0.2, 1e-9),
    _plan("Quantiles(10**5)", 0.3, 1e-8),
    _plan("Quantiles(10**6, bins=4096)", 0.05, 1e-10),
    _Asked("least_epsilon_for", "Count(10**5)", {"accuracy": 10, "delta": 1e-6}),
    _Asked("least_epsilon_for", "Histogram(10**5, 100)", {"accuracy": 20, "delta": 1e-6}),
    _Asked("least_epsilon_for", "Mean(10**5)", {"accuracy": 1e-3, "delta": 1e-6}),
    _Asked("fewest_users_for", "Count(1)", {"accuracy": 10, "epsilon": 1, "delta": 1e-6}),
    _Asked("fewest_users_for", "Histogram(1, 100)", {"accuracy": 20, "epsilon": 1, "delta": 1e-6}),
    _Asked("fewest_users_for", "Mean(1)", {"accuracy": 1e-3, "epsilon": 1, "delta": 1e-6}),
)


def measure(quick: bool) -> Iterator[Finding]:
    """Processor time from the start of Python to the plans."""
    repetitions = 1 if quick else 3
    for asked in {asked.question.partition("(")[0]: asked for asked in reversed(_ASKED)}.values():
        python("-c", asked.program)  # writes the bytecode of all modules that the question loads
        asked.answer(0.5)  # loads SciPy
    warm_times = []
    for asked in _ASKED:
        cold = side_by_side({"cold": partial(python, "-c", asked.program)}, repetitions=repetitions, warm_up=False)
        warm, best = _warm(asked, repetitions)
        warm_times.append(warm)
        yield at_most(
            str(asked),
            cold.processor_seconds("cold"),
            _MAX_SECONDS,
            "s",
            f"wall-clock {seconds(cold.seconds('cold'))}, warm {seconds(warm)}; best is {best}",
        )
    yield report("the median of these when warm", seconds(median(warm_times)))


def _warm(asked: _Asked, repetitions: int) -> tuple[float, str]:
    """The median processor time in this process, never of the same target twice, and the best protocol."""
    durations, best = [], ""
    for repetition in range(repetitions):
        start = time.process_time()
        best = asked.answer(1 + 1e-3 * (repetition + 1)).plans[0].protocol.name
        durations.append(time.process_time() - start)
    return median(durations), best
