"""Which protocol a new task uses: the one named, or the best whose reports are short, and that no device can spoil."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from shuffledp.cli.domains import choose_domain
from shuffledp.cli.rounds import BEST
from shuffledp.collection.task.task import Task
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning import Count, Histogram, Question, Sum, plan
from shuffledp.protocols.registry import find

__all__ = ["chosen_task", "question_of"]

_ONLY_FRAGILE = (
    "Only split-and-mix meets this target, with which one device can move the sum anywhere; "
    "where every device is yours, name it with --protocol."
)


def question_of(
    kind: str,
    users: int,
    *,
    domain: str | None,
    domain_file: Path | None,
    size: int | None,
    bounds: tuple[float | None, float | None, bool],
) -> Question:
    """The question with its public domain; options that belong to another question are refused."""
    lower, upper, whole = bounds
    named = [domain, domain_file, size]
    if kind != "histogram" and any(each is not None for each in named):
        raise ParameterError(f"--domain, --domain-file and --domain-size belong to a histogram, not to a {kind}.")
    if kind != "sum" and (lower is not None or upper is not None or whole):
        raise ParameterError(f"--lower, --upper and --whole belong to a sum, not to a {kind}.")
    if kind == "count":
        return Count(users)
    if kind == "sum":
        if lower is None or upper is None:
            raise ParameterError("A sum needs its bounds: give --lower and --upper.")
        return Sum(users, lower, upper, whole)
    if sum(each is not None for each in named) != 1:
        raise ParameterError(
            "A histogram needs its domain once: --domain a,b,c, --domain-file FILE or --domain-size D."
        )
    if size is not None:
        return Histogram(users, size)
    no_data = cast("Any", None)
    return Histogram(users, categories=choose_domain(domain, domain_file, False, None, no_data).categories)


def chosen_task(
    question: Question,
    protocol: str,
    *,
    max_messages: int,
    honest_fraction: float,
    epsilon: float,
    delta: float,
    **rest: Any,
) -> Task:
    """The first task, of those that meet the target, whose reports hold at most so many messages."""
    if max_messages < 1:
        raise ParameterError(f"A report has at least one message; --max-messages {max_messages} allows none.")
    shortest: Task | None = None
    reason = ""
    for kind, setting in _ways(question, protocol, epsilon, delta, honest_fraction):
        settings = {**question.settings(), "honest_fraction": honest_fraction, **setting}
        try:
            task = Task.create(kind=kind, settings=settings, epsilon=epsilon, delta=delta, **rest)
        except ParameterError as error:
            if protocol != BEST:
                raise
            reason = reason or str(error)
            continue
        if task.messages_per_report <= max_messages:
            return task
        if shortest is None or task.messages_per_report < shortest.messages_per_report:
            shortest = task
    if shortest is None:
        raise ParameterError(reason or _ONLY_FRAGILE)
    raise InfeasibleError(
        f"A report of {shortest.protocol.name} has {shortest.messages_per_report:,} messages, more than "
        f"{max_messages:,}; allow more with --max-messages"
        + (", and no protocol has fewer." if protocol == BEST else ", or use --protocol best.")
    )


def _ways(
    question: Question, protocol: str, epsilon: float, delta: float, honest_fraction: float
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Protocols with the settings of their calibration, the least error first; none that one device can spoil."""
    if protocol != BEST:
        yield find(question.shelf, protocol), {}
        return
    for each in plan(question, epsilon=epsilon, delta=delta, honest_fraction=honest_fraction).plans:
        if not (each.reference or each.protocol.fragile):
            yield type(each.protocol), {"calibration": each.calibration, **each.setting}
