"""``shuffledp plan``: what a target costs, before anybody sends anything."""

from __future__ import annotations

from typing import Annotated

import typer

from shuffledp.cli.options import (
    ConfidenceOption,
    DeltaOption,
    DomainSizeOption,
    EpsilonOption,
    HonestFractionOption,
    JsonOption,
    UsersOption,
    number,
)
from shuffledp.cli.screen import print_json, print_table, say
from shuffledp.planning import Count, Histogram, Question, plan

__all__ = ["plan_count", "plan_histogram"]

TrustOption = Annotated[str, typer.Option("--trust", help="Who is trusted: shuffled, local or central.")]
MaxMessagesOption = Annotated[
    float | None, typer.Option("--max-messages", parser=number, metavar="M", help="At most so many messages per user.")
]
MaxBytesOption = Annotated[
    float | None, typer.Option("--max-bytes", parser=number, metavar="B", help="At most so many bytes per user.")
]


def plan_count(
    users: UsersOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    trust: TrustOption = "shuffled",
    honest_fraction: HonestFractionOption = 1.0,
    max_messages: MaxMessagesOption = None,
    max_bytes: MaxBytesOption = None,
    confidence: ConfidenceOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Plan a private count.

    Example: shuffledp plan count --users 20000 --epsilon 1 --delta 1e-8
    """
    _plan(Count(users), epsilon, delta, trust, honest_fraction, max_messages, max_bytes, confidence, as_json)


def plan_histogram(
    users: UsersOption,
    domain_size: DomainSizeOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    trust: TrustOption = "shuffled",
    honest_fraction: HonestFractionOption = 1.0,
    max_messages: MaxMessagesOption = None,
    max_bytes: MaxBytesOption = None,
    confidence: ConfidenceOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Plan a private histogram.

    Example: shuffledp plan histogram --users 20000 --domain-size 10 --epsilon 1 --delta 1e-8
    """
    question = Histogram(users, domain_size)
    _plan(question, epsilon, delta, trust, honest_fraction, max_messages, max_bytes, confidence, as_json)


def _plan(
    question: Question,
    epsilon: float,
    delta: float,
    trust: str,
    honest_fraction: float,
    max_messages: float | None,
    max_bytes: float | None,
    confidence: float,
    as_json: bool,
) -> None:
    plans = plan(
        question,
        epsilon=epsilon,
        delta=delta,
        trust=trust,
        honest_fraction=honest_fraction,
        max_messages=max_messages,
        max_bytes=max_bytes,
        confidence=confidence,
    )
    if as_json:
        print_json(plans.to_json())
        return
    print_table(
        ["protocol", "calibration", "error", "largest", "messages", "bytes"],
        [
            [
                each.protocol.name,
                each.calibration,
                f"{each.expected.rmse:,.1f}",
                f"{each.expected.max_error:,.1f}",
                f"{each.cost.messages_per_user:,.4g}",
                f"{each.cost.bytes_per_user:,.4g}",
            ]
            for each in plans.plans
        ],
        title=f"{question.name} of {question.users:,} users at epsilon = {epsilon:g}, delta = {delta:g}",
    )
    say(
        "Errors are in users: of a number well above the noise, and the largest of all with "
        f"{confidence:.0%} confidence. Messages and bytes are per user."
    )
    say(f"Best: {plans.plans[0].protocol.name} ({plans.plans[0].calibration}): {plans.plans[0].why}.")
    for rejection in plans.rejected:
        say(f"Rejected: {rejection.protocol} ({rejection.calibration}): {rejection.reason}")
    say(plans.plans[0].protocol.guarantee.sentence())
