"""The HTML page of a session: every answer with its chart and table, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shuffledp.estimate import Estimate, QuantileEstimate
from shuffledp.pages import render_page
from shuffledp.pages.estimates import EstimateTable, estimate_chart, estimate_table
from shuffledp.sessions.budget import Release
from shuffledp.sessions.report import NOT_PRIVATE
from shuffledp.sessions.session import Session


def session_page(title: str, session: Session, answers: Sequence[tuple[Release, Estimate]], confidence: float) -> bytes:
    """All answers of a session as one HTML page without scripts or external resources."""
    spent = session.spent
    shared = set.intersection(*(set(estimate.caveats) for _, estimate in answers)) if len(answers) > 1 else set()
    return render_page(
        "session.html",
        title=title,
        not_private="" if session.secure else NOT_PRIVATE,
        cards=[
            ("Users", f"{session.users:,}", "in every answer"),
            ("Answers", f"{len(answers):,}", f"of {len(session.releases):,} releases"),
            ("Spent", f"ε = {spent.epsilon:.4g}", f"of {session.epsilon:g}, delta {session.delta:g}"),
        ],
        answers=[_answer(release, estimate, confidence, shared) for release, estimate in answers],
        shared_caveats=[caveat for caveat in answers[0][1].caveats if caveat in shared] if answers else [],
        report=session.report(),
    )


def _answer(release: Release, estimate: Estimate, confidence: float, shared: set[str]) -> dict[str, Any]:
    """What the page shows of one answer; caveats that all answers share are shown once."""
    default_label = f"{release.statistic} of {release.subject}"
    has_default = release.label == default_label
    label = _capitalized(default_label) if has_default else release.label
    return {
        "label": label,
        "what": f"{'' if has_default else _capitalized(default_label) + '. '}Protocol: {estimate.protocol}.",
        "chart": estimate_chart(estimate, confidence),
        "table": _table(release, estimate, confidence),
        "withheld": estimate.withheld_sentence(confidence),
        "caveats": [caveat for caveat in estimate.caveats if caveat not in shared],
    }


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(release: Release, estimate: Estimate, confidence: float) -> EstimateTable:
    table = estimate_table(estimate, confidence)
    if release.statistic != "variance" or not isinstance(estimate, QuantileEstimate):
        return table
    number = estimate.variance(confidence)
    row = ["variance", f"{number.value:.5g}", f"{number.low:.5g} to {number.high:.5g}"]
    return EstimateTable(table.head, [row, *table.rows], table.more_rows)
