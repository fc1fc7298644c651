"""Search for the smallest number of users with a success probability of 99/100, by simulation.

Rounds are simulated at different numbers of users. At each number the interval of Clopper and Pearson (1934) for the
success probability is compared with 99/100: below, above, or undecided. The intervals are computed at interim looks;
the i-th look gets the share 6 / (pi i)^2 of the total error probability, so that all are right with the stated
confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shuffledp.checks import check_confidence, check_open_unit
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.lab.problems.identification import Method
from shuffledp.lab.problems.problem import Problem
from shuffledp.lab.problems.sample_size import MAX_SAMPLES, SUCCESS, direct_sample_size
from shuffledp.privacy.audit import proportion_bounds
from shuffledp.randomness import SYSTEM, RandomSource, draw_words

Progress = Callable[[float], None]

_MAX_LOOKS = 60  # a search rarely takes more
_LOOKS = (1 / 16, 1 / 4, 1)  # shares of the trials after which to test: clear cases are decided early
_FIRST_STEP = 1.1
_TYPICAL_TESTS = 16


class Measurement(NamedTuple):
    """The number of successes in a number of trials; 0 trials if no parameters meet the privacy target."""

    users: int
    trials: int
    successes: int


@dataclass(frozen=True)
class MeasuredSampleSize:
    """The number of users at which the success probability reaches 99/100."""

    users: int
    """The estimate: where an increasing curve fitted to all tests reaches 99/100."""
    low: int
    """A number of users with success probability below 99/100, or for which no parameters meet the privacy target."""
    high: int
    """A number of users with success probability at least 99/100."""
    confidence: float
    """The confidence that the statements about ``low`` and ``high`` both hold."""
    trials: int
    """Maximum number of rounds simulated at one number of users."""
    tested: tuple[Measurement, ...]
    """All measurements, in increasing order of users."""

    def sentence(self) -> str:
        """The result as a sentence."""
        return (
            f"The success probability reaches 99/100 at about {self.users:,} users: it is lower with {self.low:,} "
            f"users and at least 99/100 with {self.high:,} ({100 * self.confidence:g}% confidence, up to "
            f"{self.trials:,} rounds at each of {len(self.tested)} numbers of users)."
        )

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "users": self.users,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "trials": self.trials,
            "tested": [measurement._asdict() for measurement in self.tested],
        }


def measure_success(
    problem: Problem, method: Method, users: int, *, trials: int, source: RandomSource = SYSTEM
) -> Measurement:
    """Simulate ``trials`` independent rounds, and count those that identify all needed items."""
    if trials < 1:
        raise ParameterError(f"At least one trial is needed; got {trials}.", trials=trials)
    generator = _generator(source)
    return Measurement(users, trials, method.identifier(problem, users).successes(trials, generator, source))


def measure_sample_size(
    problem: Problem,
    method: Method,
    *,
    trials: int = 10_000,
    confidence: float = 0.95,
    precision: float = 0.01,
    source: RandomSource = SYSTEM,
    progress: Progress = lambda _: None,
) -> MeasuredSampleSize:
    """The smallest number of users with success probability 99/100, between a lower and an upper bound.

    The success probability is assumed to increase with the number of users. The search ends when the next number to
    test lies within the relative ``precision`` of one that was tested already.
    """
    check_confidence(confidence)
    least = math.ceil(math.log(_share_of_risk(1 - confidence, _MAX_LOOKS) / 2) / math.log(SUCCESS))
    if trials < least:  # even trials without a failure would not be significant
        raise ParameterError(
            f"At least {least:,} trials are needed for a confidence of {confidence:g}, not {trials:,}.", trials=trials
        )
    check_open_unit("precision", precision)
    search = _Search(problem, method, trials, 1 - confidence, precision, source, progress)
    search.bracket(direct_sample_size(problem, method))
    search.narrow()
    progress(1.0)
    tested = tuple(sorted(search.tested.values()))
    low, high = search.low, search.high
    return MeasuredSampleSize(
        users=min(max(_crossing(tested), low + 1), high),
        low=low,
        high=high,
        confidence=confidence,
        trials=trials,
        tested=tested,
    )


@dataclass
class _Search:
    problem: Problem
    method: Method
    trials: int
    risk: float
    precision: float
    source: RandomSource
    progress: Progress
    low: int = 1
    high: int = MAX_SAMPLES
    undecided: set[int] = field(default_factory=set)
    tested: dict[int, Measurement] = field(default_factory=dict)
    looks: int = 0

    def bracket(self, start: int) -> None:
        """Find a number of users that is enough and one that is not, in growing steps from the theoretical one."""
        users, step = start, _FIRST_STEP
        while self.high == MAX_SAMPLES:
            if self.test(users) <= 0:
                users, step = math.ceil(users * step), step**1.5
            if users > MAX_SAMPLES // 2:
                raise InfeasibleError(f"More than {MAX_SAMPLES // 2:,} users would be needed.", users=users)
        users, step = min(self.tested), _FIRST_STEP
        while self.low == 1 and users > 2:
            users, step = max(2, math.floor(users / step)), step**1.5
            self.test(users)

    def narrow(self) -> None:
        """Bisect between tested numbers until the precision is reached."""
        while (users := self._next()) is not None:
            self.test(users)

    def _next(self) -> int | None:
        doubtful = sorted(users for users in self.undecided if self.low < users < self.high)
        borders = [(self.low, doubtful[0]), (doubtful[-1], self.high)] if doubtful else [(self.low, self.high)]
        below, above = max(borders, key=lambda border: border[1] - border[0])
        if above - below <= max(1, self.precision * above):
            return None
        return (below + above) // 2

    def test(self, users: int) -> int:
        """1 if the success probability is significantly at least 99/100, -1 if significantly below, 0 if undecided."""
        verdict = self._verdict(users)
        if verdict > 0:
            self.high = min(self.high, users)
        elif verdict < 0:
            self.low = max(self.low, users)
        else:
            self.undecided.add(users)
        self.progress(min(0.95, len(self.tested) / _TYPICAL_TESTS))
        return verdict

    def _verdict(self, users: int) -> int:
        try:
            identifier = self.method.identifier(self.problem, users)
        except (InfeasibleError, ConditionError):
            self.tested[users] = Measurement(users, 0, 0)
            return -1
        generator = _generator(self.source)
        done = successes = 0
        for share in _LOOKS:
            more = math.ceil(share * self.trials) - done
            successes += identifier.successes(more, generator, self.source)
            done += more
            self.tested[users] = Measurement(users, done, successes)
            self.looks += 1
            risk = _share_of_risk(self.risk, self.looks) / 2  # for either side
            at_least, at_most = (float(bound) for bound in proportion_bounds(successes, done, risk))
            if at_least >= SUCCESS or at_most < SUCCESS:
                return 1 if at_least >= SUCCESS else -1
        return 0


def _share_of_risk(risk: float, look: int) -> float:
    """The share of the risk for a look, numbered from 1; the shares of all looks sum to the risk."""
    return risk * 6 / (math.pi * look) ** 2


def _crossing(tested: tuple[Measurement, ...]) -> int:
    """Where the isotonic fit (pool adjacent violators) reaches 99/100, interpolated linearly between tests."""
    blocks: list[list[float]] = []  # users from, to, weight, rate
    for users, trials, successes in tested:
        blocks.append([users, users, max(trials, 1), successes / max(trials, 1)])
        while len(blocks) > 1 and blocks[-2][3] >= blocks[-1][3]:
            _, last, weight, rate = blocks.pop()
            before = blocks[-1]
            total = before[2] + weight
            blocks[-1] = [before[0], last, total, (before[2] * before[3] + weight * rate) / total]
    enough = next((index for index, block in enumerate(blocks) if block[3] >= SUCCESS), None)
    if enough is None:
        return tested[-1].users
    if enough == 0:
        return tested[0].users
    (_, last, _, below), (first, _, _, above) = blocks[enough - 1], blocks[enough]
    return math.ceil(last + (first - last) * (SUCCESS - below) / (above - below))


def _generator(source: RandomSource) -> np.random.Generator:
    """A fast generator for simulations, seeded by the source."""
    return np.random.Generator(np.random.PCG64(draw_words(4, np.uint64, source).tolist()))
