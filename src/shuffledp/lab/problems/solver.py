"""Solving a problem with a private histogram: draw an instance and samples, run one round, compute the answer."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from shuffledp.checks import check_users
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.lab.problems.identification import Identifier, Method
from shuffledp.lab.problems.problem import Instance, Problem, describe_domain_size
from shuffledp.lab.problems.sample_size import SUCCESS, direct_sample_size
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.randomness import SYSTEM, RandomSource, uniform_counts


@dataclass(frozen=True)
class Solution:
    """The answer of one round, whether it is right, and its privacy guarantee."""

    problem: Problem
    method: Method
    route: str
    simulated_items: int
    """The number of items of the domain whose noise was simulated one by one."""
    users: int
    success_at_least: float
    """A proven lower bound on the probability of identifying all needed items."""
    reported: tuple[Any, ...]
    """The items that the round reported."""
    answer: Any
    """The answer computed from the reported items; None if they do not determine it."""
    truth: Any
    identified: bool
    """Whether all needed items were reported, and no item outside the support."""
    guarantee: Guarantee
    secure: bool
    """False if the randomness came from a seed: then there is no privacy."""
    seconds: float

    @property
    def success(self) -> bool:
        """Whether the answer is right, which can happen by chance even if the support was not identified."""
        return self.answer is not None and bool(self.answer == self.truth)

    def guarantee_sentence(self) -> str:
        """The guarantee as a sentence, or a warning if the noise came from a seed."""
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
                "words": describe_domain_size(self.problem),
            },
            "protocol": self.method.protocol,
            "model": self.method.trust,
            "calibration": self.method.calibration,
            "rule": self.method.rule,
            "route": self.route,
            "simulated_items": self.simulated_items,
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
    route: str = "auto",
    anyway: bool = False,
    instance: Instance | None = None,
    source: RandomSource = SYSTEM,
) -> Solution:
    """Run one private round over samples of a given or random instance, and compute the answer.

    By default ``users`` is the smallest number for which success is proven to have probability 99/100. A smaller number
    is rejected unless ``anyway`` is set; then ``success_at_least`` of the solution is what is proven. The routes
    ``listed`` and ``messages`` simulate all items of a small domain, empty ones included.
    """
    method = Method(epsilon=epsilon, delta=delta, protocol=protocol, calibration=calibration, rule=rule, route=route)
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
    """As ``solve``, with a given method."""
    started = time.perf_counter()
    if instance is not None and instance.problem != problem:
        raise ParameterError(f"The instance is one of {instance.problem.describe()}, not of {problem.describe()}.")
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
    counts = uniform_counts(protocol.users, problem.support_size, source)  # the number of users who hold each item
    reported = identifier.identify(instance, counts, source)
    return Solution(
        problem=problem,
        method=method,
        route=identifier.route,
        simulated_items=identifier.simulated_items,
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


def identified_rounds(identifier: Identifier, instance: Instance, trials: int, source: RandomSource) -> int:
    """The number of rounds, out of ``trials`` with new samples of one instance, that identify all needed items."""
    problem = instance.problem
    needed, support = set(instance.support[: problem.needed]), set(instance.support)
    total = 0
    for _ in range(trials):
        counts = uniform_counts(identifier.protocol.users, problem.support_size, source)
        total += needed <= set(identifier.identify(instance, counts, source)) <= support
    return total


def _refuse(problem: Problem, method: Method, users: int, proven: float) -> None:
    needed = direct_sample_size(problem, method)
    raise InfeasibleError(
        f"{users:,} samples are too few: {method.protocol} (calibration {method.calibration}) needs {needed:,} to "
        f"solve {problem.describe()} with a proven probability of 99/100; with {users:,} the proven probability is "
        f"{f'only {proven:.2g}' if proven > 0 else '0'}. Use more samples, or run it anyway (`anyway=True`).",
        users=users,
        needed=needed,
        success_at_least=proven,
    )


def _plain(answer: Any) -> Any:
    """The answer for JSON: tuples become lists."""
    return list(answer) if isinstance(answer, tuple) else answer
