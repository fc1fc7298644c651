"""The content of the planner's page: the form, and tables, charts and sentences about the results so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shuffledp.app.planner import CachedResults, choose
from shuffledp.app.preview import PLOT_WIDTH, Preview
from shuffledp.app.query import QUESTIONS, SHAPES, Query, plan_id, written
from shuffledp.collection.task.costs import CollectionCost as Collected
from shuffledp.pages.charts import Point, frontier_chart, line_chart
from shuffledp.planning.listing import error_of, together, trust_of, units_of
from shuffledp.planning.planner import TRUSTS, Plan, Plans
from shuffledp.protocols.registry import with_article

_PENDING = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Field:
    """A number of the form; with a range, the page adds a slider."""

    name: str
    label: str
    low: float | None = None
    high: float | None = None
    scale: str = "log"
    hint: str = ""


FIELDS = (
    Field("users", "Users", 100, 1e7),
    Field("domain_size", "Categories", 2, 1e5),
    Field("lower", "Lower bound"),
    Field("upper", "Upper bound"),
    Field("bins", "Bins", 2, 1024),
    Field("epsilon", "Epsilon", 0.05, 8),
    Field("delta", "Delta", 1e-12, 1e-4),
    Field("honest_fraction", "Honest fraction", 0.1, 1, "linear", "of the users follow the protocol"),
    Field("releases", "Releases", 1, 100, "log", "about the same users, within the target together"),
)
LIMIT_FIELDS = (
    Field("max_messages", "Messages", hint="per user, at most"),
    Field("max_bytes", "Bytes", hint="per user, at most"),
    Field("max_local_epsilon", "Epsilon under collusion", hint="at most, if shuffler and analyzer collude"),
)


_DEFAULT = asdict(Query())


def form_view(query: Query) -> dict[str, Any]:
    """The values of the form."""

    def field(entry: Field) -> dict[str, Any]:
        value = getattr(query, entry.name)
        return {
            "name": entry.name,
            "label": entry.label,
            "value": "" if value is None else written(value),
            "default": "" if _DEFAULT[entry.name] is None else written(_DEFAULT[entry.name]),
            "low": entry.low,
            "high": entry.high,
            "scale": entry.scale,
            "hint": entry.hint,
            "questions": " ".join(query.questions_of(entry.name)),
            "relevant": query.relevant(entry.name),
        }

    return {
        "questions": QUESTIONS,
        "trusts": TRUSTS,
        "shapes": SHAPES,
        "fields": [field(entry) for entry in FIELDS],
        "limits": [field(entry) for entry in LIMIT_FIELDS],
        "query": query,
        "whole_questions": " ".join(query.questions_of("whole")),
        "link": f"?{query.to_url()}",
    }


def results_view(cached: CachedResults, query: Query, preview: Preview | str | None) -> dict[str, Any]:
    """The results so far."""
    plans = cached.plans
    status = f"{cached.done} of {cached.protocols} protocols calibrated"
    view: dict[str, Any] = {
        "status": f"{status}." if not cached.is_complete else f"All {cached.protocols} protocols were calibrated.",
        "complete": cached.is_complete,
        "error": cached.error if cached.is_complete else "",
        "rejected": [candidate.document for candidate in cached.candidates if "reason" in candidate.document],
        "plans": None,
    }
    if plans is None:
        return view
    chosen = choose(plans, query)
    collected = cached.collected(chosen)
    return view | {
        "plans": plans,
        "heading": _heading(plans),
        "best": f"{'Best' if cached.is_complete else 'Best so far'}: {plan_id(plans[0])}, {plans[0].why}.",
        "warnings": list(plans.warnings),
        "units": units_of(plans.question.unit, plans[0]),
        "feasible": [_row(plan, cached, chosen) for plan in plans if not plan.reference],
        "references": [_row(plan, cached, chosen) for plan in plans if plan.reference],
        "chosen": plan_id(chosen),
        "frontier": _frontier_chart(plans, chosen),
        "preview": preview if isinstance(preview, Preview) else None,
        "no_preview": preview if isinstance(preview, str) else "",
        "statement": cached.candidate(chosen).statement,
        "collection": _collection_sentence(plans, chosen, collected),
        "year": _year(cached.account(chosen), plans),
        "plan_command": query.plan_command(),
        "task_command": query.task_command(chosen, collected.messages) if isinstance(collected, Collected) else "",
        "task_note": _task_note(query, chosen),
        "python": query.python(plans, chosen),
    }


def _heading(plans: Plans) -> str:
    question = plans.question
    return (
        f"{with_article(question.name).capitalize()} of {question.users:,} users at epsilon = {plans.epsilon:.4g}, "
        f"delta = {plans.delta:g}{together(plans)}"
    )


def _row(plan: Plan, cached: CachedResults, chosen: Plan) -> dict[str, Any]:
    candidate = cached.candidate(plan)
    local = candidate.document["guarantee"]["local_epsilon"]
    collected = cached.collected(plan)
    if isinstance(collected, Collected):
        moved = "anything" if math.isinf(collected.moved) else error_of(collected.moved)
        collection = [f"{collected.messages:,}", f"{collected.report_bytes:,}", moved]
    else:
        collection = [_PENDING if collected is None and not plan.protocol.needs_trusted_party else "none"] * 3
    return {
        "id": plan_id(plan),
        "protocol": plan.protocol.name,
        "noise": plan.variant,
        "trust": trust_of(plan.protocol),
        "amounts": candidate.amounts,
        "collusion": "nothing" if local is None else f"{local:.3g}",
        "collection": collection,
        "reason": collected if isinstance(collected, str) else "",
        "why": plan.why,
        "chosen": plan == chosen,
    }


def _frontier_chart(plans: Plans, chosen: Plan) -> str:
    def kind(plan: Plan) -> str:
        if plan == chosen:
            return "chosen"
        return "other" if plan.reference else "usual"

    return frontier_chart(
        [Point(_point_name(plan, chosen), plan.cost.bytes_per_user, plan.expected.rmse, kind(plan)) for plan in plans],
        [(plan.cost.bytes_per_user, plan.expected.rmse) for plan in plans.frontier],
        title="Error against communication",
        axis_titles=("bytes per user", f"typical error ({plans.question.unit})"),
        notes=("Ring: chosen. Hollow: other trust. Line: the frontier.",),
        description="The typical error of every plan against its bytes per user; the table has the numbers.",
        plot_width=PLOT_WIDTH,
    )


def _point_name(plan: Plan, chosen: Plan) -> str:
    """The name of a point: short for the chosen one, which has a label; complete for others, which have a tooltip."""
    return plan.protocol.name if plan == chosen else plan_id(plan)


def _collection_sentence(plans: Plans, plan: Plan, collected: Collected | str | None) -> str:
    name = plan.protocol.name
    if collected is None:
        return "The cost in a collection follows when all protocols are calibrated."
    if isinstance(collected, str):
        return f"{name}: {collected}"
    unit = plans.question.unit
    moved = (
        "change the result arbitrarily: use it only if you control every device"
        if math.isinf(collected.moved)
        else f"move an estimate by {error_of(collected.moved)} {unit}"
    )
    expected = f"{plan.cost.messages_per_user:,.4g}"
    return (
        f"In a collection, every report of {name} has {collected.messages:,} message"
        f"{'' if collected.messages == 1 else 's'} ({expected} expected; dummies hide the number) and "
        f"{collected.report_bytes:,} bytes when sealed. One dishonest device can {moved}."
    )


def _year(account: Sequence[tuple[int, float]] | None, plans: Plans) -> dict[str, Any] | None:
    if account is None:
        return None
    finite = [(float(releases), epsilon) for releases, epsilon in account if math.isfinite(epsilon)]
    last, total = account[-1]
    sentence = (
        f"{last} monthly releases about the same users have epsilon = {total:.3g} at delta = {plans.delta:g}."
        if math.isfinite(total)
        else f"After {last} monthly releases about the same users, no epsilon holds at delta = {plans.delta:g}."
    )
    return {
        "sentence": sentence,
        "rows": [
            (f"{releases}", f"{epsilon:.4g}" if math.isfinite(epsilon) else "none") for releases, epsilon in account
        ],
        "chart": line_chart(
            finite,
            title="A year of releases",
            axis_titles=("releases", "epsilon"),
            description="Epsilon against the number of releases; the table has the numbers.",
            plot_width=PLOT_WIDTH,
        )
        if finite
        else "",
    }


def _task_note(query: Query, plan: Plan) -> str:
    """What the command of a task does not say."""
    notes = []
    if query.question == "mean":
        notes.append("A mean is collected as a sum and divided by the number of reports.")
    if plan.variant != plan.protocol.calibrations[0]:
        notes.append(f"The command calibrates {plan.protocol.name} ({plan.protocol.calibrations[0]}).")
    if query.releases > 1:
        notes.append("The target of the task is that of one release.")
    return " ".join(notes)
