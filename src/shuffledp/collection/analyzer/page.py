"""The HTML page of a release: the numbers and sentences that ``pages`` renders."""

from __future__ import annotations

from shuffledp.collection.analyzer.estimating import Result
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.pages import render_page
from shuffledp.pages.estimates import estimate_chart, estimate_table

_REASONS = {
    "cannot-be-opened": "not sealed to this analyzer and task",
    "malformed": "neither a message nor a dummy",
    "outside-domain": "not a message of the protocol",
    "repeated": "a copy of another message",
    "wrong-size": "of the wrong length",
}


def release_page(result: Result, entry: Entry, confidence: float) -> bytes:
    """The estimate, its accuracy, and its privacy cost, as one HTML page without scripts or external resources."""
    task, estimate = result.task, result.estimate
    table = estimate_table(estimate, confidence)
    return render_page(
        "release.html",
        name=task.name,
        description=task.description,
        cards=_cards(result, entry),
        chart=estimate_chart(estimate, confidence),
        head=table.head,
        rows=table.rows,
        more_rows=table.more_rows,
        withheld=estimate.withheld_sentence(confidence),
        guarantee=estimate.guarantee.sentence(),
        budget=_budget(result, entry),
        made=_made(result),
        caveats=estimate.caveats,
        rejected=[
            [f"{reason}: {_REASONS.get(reason, '')}".rstrip(": "), f"{number:,}"]
            for reason, number in sorted(result.counted.rejected.items())
        ],
        task=task.id.hex(),
    )


def _cards(result: Result, entry: Entry) -> list[tuple[str, str, str]]:
    guarantee, counted = result.estimate.guarantee, result.counted
    messages = counted.total_rejected + counted.messages + counted.dummies
    spent = f"of {entry.budget.epsilon:g} for {result.task.population}, delta {entry.budget.delta:g}"
    return [
        ("Reports", f"{result.reports:,}", f"minimum {result.task.minimum_users:,}"),
        ("Rejected messages", f"{counted.total_rejected:,}", f"of {messages:,}"),
        ("Privacy", f"ε = {guarantee.epsilon:g}", f"delta {guarantee.delta:g}"),
        ("Spent in all", f"ε = {entry.spent_epsilon:.4g}", spent),
    ]


def _budget(result: Result, entry: Entry) -> str:
    releases = "release" if entry.releases == 1 else "releases"
    return (
        f"Each release about the same people adds to what can be learned about each of them. After {entry.releases:,} "
        f"{releases} about {result.task.population}, epsilon = {entry.spent_epsilon:.4g} is spent of "
        f"{entry.budget.epsilon:g}, at delta = {entry.budget.delta:g}. A release beyond that is refused."
    )


def _made(result: Result) -> str:
    task = result.task
    return (
        f"Reports were taken from {task.opens:%Y-%m-%d %H:%M} UTC until {task.closes:%Y-%m-%d %H:%M} UTC at the "
        f"latest. {result.reports:,} devices randomized their values with the protocol {task.protocol.name} and sent "
        f"them sealed. A shuffler that could not read them shuffled all messages; then they were opened and counted."
    )
