"""Solve a problem with a private histogram: draw an instance and samples, run one round, read off the answer."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.lab.problems.identification import Identifier, Method
from shuffledp.lab.problems.problem import Instance, Problem, domain_words
from shuffledp.lab.problems.sample_size import SUCCESS, direct_sample_size
from shuffledp.privacy.calibration import check_users
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.randomness import SYSTEM, RandomSource, uniform_counts


@dataclass(frozen=True)
class Solution:
    """What was found, whether it is right, and what it rests on."""

    problem: Problem
    method: Method
    route: str
    users: int
    success_at_least: float
    """Proven before the round: at least this probability of identifying what is needed."""
    reported: tuple[Any, ...]
    """The items that the round reported."""
    answer: Any
    """What follows from them; None if nothing does."""
    truth: Any
    identified: bool
    """Everything that the answer needs was reported, and nothing that nobody holds."""
    guarantee: Guarantee
    secure: bool
    """False if a seed was used: then there is no privacy."""
    seconds: float

    @property
    def success(self) -> bool:
        """Whether the answer is right; a guess can be, without the support having been identified."""
        return self.answer is not None and bool(self.answer == self.truth)

    def guarantee_sentence(self) -> str:
        """The guarantee in plain words, or that there is none because the noise came from a seed."""
        if not self.secure:
            return "NOT PRIVATE: the noise came from a fixed seed."
        return self.guarantee.sentence()

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        log10 = self.problem.log_domain_size / math.log(10)
        return {
            "problem": self.problem.name,
            "parameters": self.problem.parameters(),
            "support_size": self.problem.support_size,
            "domain": {
                "size": self.problem.domain_size,
                "log10_size": log10 if math.isfinite(log10) else None,
                "words": domain_words(self.problem),
            },
            "protocol": self.method.protocol,
            "model": self.method.model,
            "calibration": self.method.calibration,
            "rule": self.method.rule,
            "route": self.route,
            "users": self.users,
            "success_at_least": self.success_at_least,
            "reported": len(self.reported),
            "identified": self.identified,
            "answer": _plain(self.answer),
            "truth": _plain(self.truth),
            "success": self.success,
            "guarantee": self.guarantee.to_json() if self.secure else None,
            "secure": self.secure,
            "seconds": round(self.seconds, 4),
        }


def solve(
    problem: Problem,
    *,
    protocol: str = "balcer-cheu",
    epsilon: float,
    delta: float,
    users: int | None = None,
    calibration: str = "tight",
    rule: str = "",
    anyway: bool = False,
    instance: Instance | None = None,
    source: RandomSource = SYSTEM,
) -> Solution:
    """One private round over samples of a random instance, or of a given one, and the answer that it gives.

    Without ``users`` as many take part as the theory asks for. With fewer it is refused, as success is then not
    proven to have probability 99/100; ``anyway`` runs it all the same, and the solution says what is proven.
    """
    method = Method(epsilon=epsilon, delta=delta, protocol=protocol, calibration=calibration, rule=rule)
    return solve_with(method, problem, users=users, anyway=anyway, instance=instance, source=source)


def solve_with(
    method: Method,
    problem: Problem,
    *,
    users: int | None = None,
    anyway: bool = False,
    instance: Instance | None = None,
    source: RandomSource = SYSTEM,
) -> Solution:
    """The same with a method that is made already."""
    started = time.perf_counter()
    if instance is not None and instance.problem != problem:
        raise ParameterError(f"The instance is one of {instance.problem.words()}, not of {problem.words()}.")
    if users is None:
        users = direct_sample_size(problem, method)
    check_users(users, 1.0)
    identifier = method.identifier(problem, users)
    proven = identifier.success_at_least
    if not anyway and proven < SUCCESS:
        _refuse(problem, method, users, proven)
    drawn = problem.instance(source) if instance is None else instance
    return _round(identifier, method, drawn, proven, source, started)


def _round(
    identifier: Identifier, method: Method, instance: Instance, proven: float, source: RandomSource, started: float
) -> Solution:
    problem, protocol = instance.problem, identifier.protocol
    counts = uniform_counts(protocol.users, problem.support_size, source)  # the samples: who holds what
    reported = identifier.identify(instance, counts, source)
    return Solution(
        problem=problem,
        method=method,
        route=identifier.route,
        users=protocol.users,
        success_at_least=proven,
        reported=reported,
        answer=instance.answer_from(reported),
        truth=instance.answer,
        identified=set(instance.support[: problem.needed]) <= set(reported) <= set(instance.support),
        guarantee=protocol.guarantee,
        secure=source.secure,
        seconds=time.perf_counter() - started,
    )


def _refuse(problem: Problem, method: Method, users: int, proven: float) -> None:
    needed = direct_sample_size(problem, method)
    raise InfeasibleError(
        f"{users:,} samples are too few: {problem.words()} is solved with probability 99/100 by {method.protocol} "
        f"(calibration {method.calibration}) from {needed:,} on, and for {users:,} "
        f"{f'only {proven:.2g}' if proven > 0 else 'nothing'} is proven. Take more, or run it anyway (`anyway=True`).",
        users=users,
        needed=needed,
        success_at_least=proven,
    )


def _plain(answer: Any) -> Any:
    """Tuples become lists."""
    return list(answer) if isinstance(answer, tuple) else answer
