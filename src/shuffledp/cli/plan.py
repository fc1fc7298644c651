"""``shuffledp plan``: what a target costs, before anybody sends anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import (
    ConfidenceOption,
    DeltaOption,
    DomainSizeOption,
    HonestFractionOption,
    JsonOption,
    LowerOption,
    UpperOption,
    WholeOption,
    number,
    whole_number,
)
from shuffledp.cli.screen import note, note_warnings, print_json, print_table, say, waiting
from shuffledp.display import percent
from shuffledp.errors import ParameterError
from shuffledp.figures import check_figure_path, frontier
from shuffledp.output import write_whole
from shuffledp.planning import (
    Count,
    Histogram,
    Mean,
    Plan,
    Plans,
    Question,
    Sum,
    fewest_users_for,
    least_epsilon_for,
    plan,
)
from shuffledp.planning.planner import trust_asked

__all__ = ["plan_app"]

_UNKNOWN_USERS = 2

UsersOption = Annotated[
    int | None,
    typer.Option(
        "--users", parser=whole_number, metavar="N", help="Number of users; with --accuracy it may be left to find."
    ),
]
EpsilonOption = Annotated[
    float | None,
    typer.Option("--epsilon", parser=number, metavar="E", help="Privacy loss; with --accuracy it may be left to find."),
]
AccuracyOption = Annotated[
    float | None,
    typer.Option(
        "--accuracy",
        parser=number,
        metavar="A",
        help="A wanted error: finds the least epsilon for --users, or the fewest users for --epsilon.",
    ),
]
TrustOption = Annotated[str, typer.Option("--trust", help="Who is trusted: shuffled, local or central.")]
MaxMessagesOption = Annotated[
    float | None, typer.Option("--max-messages", parser=number, metavar="M", help="At most so many messages per user.")
]
MaxBytesOption = Annotated[
    float | None, typer.Option("--max-bytes", parser=number, metavar="B", help="At most so many bytes per user.")
]
MaxLocalEpsilonOption = Annotated[
    float | None,
    typer.Option(
        "--max-local-epsilon",
        parser=number,
        metavar="E",
        help="What must be left if shuffler and analyzer work together.",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw error against bytes of all candidates: .png, .svg or .html."),
]


def plan_count(
    delta: DeltaOption,
    users: UsersOption = None,
    epsilon: EpsilonOption = None,
    accuracy: AccuracyOption = None,
    trust: TrustOption = "shuffled",
    honest_fraction: HonestFractionOption = 1.0,
    max_messages: MaxMessagesOption = None,
    max_bytes: MaxBytesOption = None,
    max_local_epsilon: MaxLocalEpsilonOption = None,
    confidence: ConfidenceOption = 0.95,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a private count.

    Example: shuffledp plan count --users 20000 --epsilon 1 --delta 1e-8
    """
    limits = _limits(trust, honest_fraction, max_messages, max_bytes, max_local_epsilon, confidence)
    question = Count(users if users is not None else _UNKNOWN_USERS)
    _plan(question, users, epsilon, delta, accuracy, limits, plot, as_json)


def plan_histogram(
    domain_size: DomainSizeOption,
    delta: DeltaOption,
    users: UsersOption = None,
    epsilon: EpsilonOption = None,
    accuracy: AccuracyOption = None,
    trust: TrustOption = "shuffled",
    honest_fraction: HonestFractionOption = 1.0,
    max_messages: MaxMessagesOption = None,
    max_bytes: MaxBytesOption = None,
    max_local_epsilon: MaxLocalEpsilonOption = None,
    confidence: ConfidenceOption = 0.95,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a private histogram.

    Example: shuffledp plan histogram --users 20000 --domain-size 10 --epsilon 1 --delta 1e-8
    """
    limits = _limits(trust, honest_fraction, max_messages, max_bytes, max_local_epsilon, confidence)
    question = Histogram(users if users is not None else _UNKNOWN_USERS, domain_size)
    _plan(question, users, epsilon, delta, accuracy, limits, plot, as_json)


def _command(kind: type[Sum]) -> Callable[..., None]:
    """``plan sum`` and ``plan mean`` take the same options."""

    def command(
        lower: LowerOption,
        upper: UpperOption,
        delta: DeltaOption,
        whole: WholeOption = False,
        users: UsersOption = None,
        epsilon: EpsilonOption = None,
        accuracy: AccuracyOption = None,
        trust: TrustOption = "shuffled",
        honest_fraction: HonestFractionOption = 1.0,
        max_messages: MaxMessagesOption = None,
        max_bytes: MaxBytesOption = None,
        max_local_epsilon: MaxLocalEpsilonOption = None,
        confidence: ConfidenceOption = 0.95,
        plot: PlotOption = None,
        as_json: JsonOption = False,
    ) -> None:
        limits = _limits(trust, honest_fraction, max_messages, max_bytes, max_local_epsilon, confidence)
        question = kind(users if users is not None else _UNKNOWN_USERS, lower, upper, whole)
        _plan(question, users, epsilon, delta, accuracy, limits, plot, as_json)

    command.__doc__ = (
        f"Plan a private {kind.name} of numbers between two bounds.\n\n"
        f"Example: shuffledp plan {kind.name} --users 20000 --lower 0 --upper 100 --epsilon 1 --delta 1e-8"
    )
    return command


plan_sum = _command(Sum)
plan_mean = _command(Mean)


def _limits(
    trust: str,
    honest_fraction: float,
    max_messages: float | None,
    max_bytes: float | None,
    max_local_epsilon: float | None,
    confidence: float,
) -> dict[str, Any]:
    return {
        "trust": trust,
        "honest_fraction": honest_fraction,
        "max_messages": max_messages,
        "max_bytes": max_bytes,
        "max_local_epsilon": max_local_epsilon,
        "confidence": confidence,
    }


def _plan(
    question: Question,
    users: int | None,
    epsilon: float | None,
    delta: float,
    accuracy: float | None,
    limits: dict[str, Any],
    plot: Path | None,
    as_json: bool,
) -> None:
    if plot is not None:
        check_figure_path(plot)
    with waiting("Trying every protocol"):
        plans = _found(question, users, epsilon, delta, accuracy, limits)
    if plot is not None:
        write_whole(plot, _drawn(plans, plot.suffix.lower()))
        note(f"wrote {plot}")
    if as_json:
        print_json(plans.to_json())
        note_warnings(plans.warnings)
    else:
        _show(plans, accuracy, limits["confidence"])


def _found(
    question: Question,
    users: int | None,
    epsilon: float | None,
    delta: float,
    accuracy: float | None,
    limits: dict[str, Any],
) -> Plans:
    if accuracy is None:
        if users is None or epsilon is None:
            raise ParameterError("Give --users and --epsilon, or --accuracy in place of one of them.")
        return plan(question, epsilon=epsilon, delta=delta, **limits)
    if (users is None) == (epsilon is None):
        raise ParameterError(
            "With --accuracy give either --users, to find the least epsilon, or --epsilon, to find the fewest users."
        )
    if epsilon is None:
        return least_epsilon_for(question, accuracy=accuracy, delta=delta, **limits)
    return fewest_users_for(question, accuracy=accuracy, epsilon=epsilon, delta=delta, **limits)


def _show(plans: Plans, accuracy: float | None, confidence: float) -> None:
    question = plans.question
    if accuracy is not None:
        say(
            f"An error of {accuracy:g} {question.unit} is reached with {question.users:,} users "
            f"at epsilon = {plans.epsilon:.4g}."
        )
    chosen = [each for each in plans.plans if not each.reference]
    references = [each for each in plans.plans if each.reference]
    target = f"epsilon = {plans.epsilon:.4g}, delta = {plans.delta:g}"
    _table(chosen, f"{question.name} of {question.users:,} users at {target}")
    say(
        f"Errors are in {question.unit}: typical, and the largest of all with {percent(confidence)} confidence. "
        "Messages and bytes are per user."
    )
    best = chosen[0]
    say(f"Best: {best.protocol.name} ({best.variant}): {best.why}.")
    cheaper = [each for each in plans.frontier if each.cost.bytes_per_user < best.cost.bytes_per_user]
    for each in cheaper[:-4:-1]:
        say(f"Cheaper: {each.protocol.name} ({each.variant}): {each.why}.")
    if references:
        _table(references, "With other trust, to compare:", model=True)
    for each in references:
        if each.protocol.trusts_shuffler:
            say(f"With {each.protocol.name}, {trust_asked(each.protocol)}.")
    for rejection in plans.rejected:
        say(f"Rejected: {rejection.protocol} ({rejection.calibration}): {rejection.reason.rstrip('.')}.")
    say(best.protocol.guarantee.sentence())
    note_warnings(each for each in plans.warnings if each not in best.protocol.guarantee.warnings)


def _table(plans: list[Plan], title: str, *, model: bool = False) -> None:
    print_table(
        ["protocol", "model" if model else "noise", "error", "largest", "messages", "bytes"],
        [
            [
                each.protocol.name,
                each.protocol.model if model else each.variant,
                _amount(each.expected.rmse),
                _amount(each.expected.max_error),
                f"{each.cost.messages_per_user:,.4g}",
                f"{each.cost.bytes_per_user:,.4g}",
            ]
            for each in plans
        ],
        title=title,
        words=1,
    )


def _trust(protocol: Any) -> str:
    return "counting shuffler" if protocol.trusts_shuffler else str(protocol.model)


def _amount(error: float) -> str:
    return f"{error:,.1f}" if error >= 1 else f"{error:.3g}"


def _drawn(plans: Plans, suffix: str) -> bytes:
    question = plans.question
    return frontier(
        suffix,
        points=[
            (
                each.protocol.name,
                _trust(each.protocol),
                each.calibration,
                each.cost.bytes_per_user,
                each.expected.rmse,
            )
            for each in plans.plans
        ],
        edge=[(each.cost.bytes_per_user, each.expected.rmse) for each in plans.frontier],
        title=f"What a {question.name} costs and how well it is known",
        x_title="bytes per user",
        y_title=f"typical error ({question.unit})",
        caption=[
            f"{question.users:,} users, epsilon = {plans.epsilon:.4g}, delta = {plans.delta:g}. "
            "Lower and further left is better.",
            f"The line joins the plans that nothing beats; best: {plans.plans[0].protocol.name}.",
        ],
    )


plan_app = typer.Typer(help="Which protocol, at which cost and error, for a target?", no_args_is_help=True)
plan_app.command("count")(plan_count)
plan_app.command("histogram")(plan_histogram)
plan_app.command("sum")(plan_sum)
plan_app.command("mean")(plan_mean)
