"""Lists of plans: as named columns, as HTML for notebooks, and as a figure of error against communication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shuffledp.display import percent
from shuffledp.notebook import MAX_ROWS, Html, card, folded, note, table
from shuffledp.planning.several_releases import MONTHS
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import with_article
from shuffledp.protocols.strings.protocol import StringsProtocol

if TYPE_CHECKING:
    from shuffledp.planning.planner import Plan, Plans

_HEADER = ["protocol", "noise", "trust", "error", "maximum error", "messages", "bytes", "year"]
_WORDS = range(3)
_SHORT, _LONG = 5, 10  # lengths of strings


def columns_of(plans: Sequence[Plan]) -> dict[str, list[Any]]:
    """The plans as named columns, one row per plan; an unbounded number of messages is infinite."""
    rows = [_entry(plan) for plan in plans]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _entry(plan: Plan) -> dict[str, Any]:
    cost, guarantee = plan.cost, plan.protocol.guarantee
    bound = cost.max_messages_per_user
    return {
        "protocol": plan.protocol.name,
        "calibration": plan.calibration,
        "setting": ", ".join(f"{name} {value}" for name, value in plan.setting.items()),
        "trust": plan.protocol.trust,
        "reference": plan.reference,
        "rmse": plan.expected.rmse,
        "max_error": plan.expected.max_error,
        "confidence": plan.expected.confidence,
        "messages_per_user": cost.messages_per_user,
        "max_messages_per_user": math.inf if bound is None else float(bound),
        "bytes_per_user": cost.bytes_per_user,
        "dummies_per_user": cost.dummies_per_user,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "local_epsilon": guarantee.local_epsilon,
        "releases": plan.releases,
        "epsilon_after_a_year": plan.after_a_year.epsilon,
        "why": plan.why,
    }


def found_sentence(protocol: Protocol) -> str:
    """How many users must hold a string of some lengths for it to be found; empty for other questions."""
    if not isinstance(protocol, StringsProtocol):
        return ""
    longest = protocol.domain.max_length
    lengths = sorted({min(length, longest) for length in (_SHORT, _LONG, longest)})
    counts = {length: protocol.expected_found_from(length) for length in lengths}
    symbol = "bytes" if protocol.domain.symbols is None else "symbols"
    if len(set(counts.values())) == 1:
        (count,) = set(counts.values())
        return "" if count is None else f"A string is found with probability 95% if {math.ceil(count):,} users hold it."
    parts = [f"{math.ceil(count):,} for {length} {symbol}" for length, count in counts.items() if count is not None]
    return f"A string is found with probability 95% if enough users hold it: {', '.join(parts)}."


def html_of_plan(plan: Plan) -> str:
    """One plan as notebooks show it."""
    guarantee = plan.protocol.guarantee
    return card(
        f"Plan: {plan.protocol.question}/{plan.protocol.name} ({plan.variant})",
        table(_HEADER, [_row(plan)], words=_WORDS),
        note(units_of("", plan)),
        note(f"{plan.why[:1].upper()}{plan.why[1:]}." if plan.why else ""),
        note(guarantee.statement()),
        warnings=guarantee.warnings,
    )


def html_of_plans(plans: Plans) -> str:
    """All plans as notebooks show them, with their positions; rejected protocols are folded."""
    feasible = [(position, plan) for position, plan in enumerate(plans) if not plan.reference]
    references = [(position, plan) for position, plan in enumerate(plans) if plan.reference]
    question, best = plans.question, plans[0]
    rejected = [[rejection.protocol, rejection.calibration, rejection.reason] for rejection in plans.rejected]
    return card(
        f"Plans for {with_article(question.name)} of {question.users:,} users at epsilon = {plans.epsilon:.4g}, "
        f"delta = {plans.delta:g}{together(plans)}",
        _numbered(feasible),
        note(units_of(question.unit, best)),
        note(f"Best: {best.protocol.name} ({best.variant}), {best.why}."),
        *([folded(f"{len(references)} with other trust, for comparison", _numbered(references))] if references else []),
        *(
            [folded(f"{len(rejected)} rejected", table(["protocol", "noise", "reason"], rejected, words=_WORDS))]
            if rejected
            else []
        ),
        note(best.composed.statement()),
        warnings=dict.fromkeys([*plans.warnings, *best.protocol.guarantee.warnings]),
    )


def together(plans: Plans) -> str:
    """The number of releases that share the target, as the end of a sentence; empty for one release."""
    return f" for {plans.releases:,} releases together" if plans.releases > 1 else ""


def _numbered(plans: Sequence[tuple[int, Plan]]) -> Html:
    """The plans with their positions; the first ones if there are many."""
    rows = [[str(position), *_row(plan)] for position, plan in plans[:MAX_ROWS]]
    more = f"{len(plans) - len(rows):,} more; to_frame() has all." if len(plans) > len(rows) else ""
    return Html(table(["", *_HEADER], rows, words=[column + 1 for column in _WORDS]) + note(more))


def _row(plan: Plan) -> list[str]:
    return [plan.protocol.name, plan.variant, trust_of(plan.protocol), *amounts_of(plan)]


def amounts_of(plan: Plan) -> list[str]:
    """The errors, the messages, the bytes and the epsilon of a year of monthly releases, formatted for people."""
    return [
        error_of(plan.expected.rmse),
        error_of(plan.expected.max_error),
        f"{plan.cost.messages_per_user + plan.cost.dummies_per_user:,.4g}",
        f"{plan.cost.bytes_per_user:,.4g}",
        _epsilon_of_a_year(plan),
    ]


def _epsilon_of_a_year(plan: Plan) -> str:
    epsilon = plan.after_a_year.epsilon
    return f"{epsilon:.3g}" if math.isfinite(epsilon) else "none"


def units_of(unit: str, plan: Plan) -> str:
    """What the columns of a table of plans mean, in sentences."""
    subject = f"Errors are in {unit}:" if unit else "Errors are"
    return (
        f"{subject} typical, and the maximum with {percent(plan.expected.confidence)} confidence. "
        f"Messages{_with_dummies(plan)} and bytes are per user. Year: epsilon of {MONTHS} monthly releases about the "
        "same users at the same delta, or none if no epsilon holds."
    )


def _with_dummies(plan: Plan) -> str:
    return " (with the dummies of the shuffler)" if plan.cost.dummies_per_user else ""


def trust_of(protocol: Protocol) -> str:
    """Who must be trusted, in a table."""
    return "counting shuffler" if protocol.trusts_shuffler else str(protocol.trust)


def error_of(error: float) -> str:
    """An error in a table."""
    return f"{error:,.1f}" if error >= 1 else f"{error:.3g}"


def figure_of(plans: Plans, suffix: str) -> bytes:
    """Error against communication, with the Pareto frontier, as the content of a file with this suffix."""
    from shuffledp.figures import frontier

    question = plans.question
    return frontier(
        suffix,
        points=[
            (
                plan.protocol.name,
                trust_of(plan.protocol),
                plan.calibration,
                plan.cost.bytes_per_user,
                plan.expected.rmse,
            )
            for plan in plans
        ],
        edge=[(plan.cost.bytes_per_user, plan.expected.rmse) for plan in plans.frontier],
        title=f"Error and communication of {with_article(question.name)}",
        x_title="bytes per user",
        y_title=f"typical error ({question.unit})",
        caption=[
            f"{question.users:,} users, epsilon = {plans.epsilon:.4g}, delta = {plans.delta:g}{together(plans)}. "
            "Lower and further left is better.",
            f"The line joins the plans on the frontier; best: {plans[0].protocol.name}.",
        ],
    )
