"""What becomes of each report, given what a round holds already: the same for every kind of store."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome

__all__ = ["decide", "places_of_rounds"]


def places_of_rounds(batch: Sequence[Incoming]) -> dict[bytes, list[int]]:
    """Where the reports of each round are in the batch, the rounds in one order for all processes."""
    places: dict[bytes, list[int]] = {}
    for place, each in enumerate(batch):
        places.setdefault(each.task_id, []).append(place)
    return dict(sorted(places.items()))  # locks taken in one order never wait for each other in a circle


def decide(
    reports: Sequence[Incoming], *, known: dict[bytes, bytes], spent: dict[bytes, bool] | None, room: int
) -> list[ReportOutcome]:
    """The outcomes of these reports of one open round, as if each came alone, one after the other.

    ``known`` has the bodies of those that are here already, by id; ``spent`` says of each token of the round whether
    it is spent, and is None where no token is wanted. Both are brought up to date.
    """
    outcomes = []
    for each in reports:
        outcome = _decide_one(each, known, spent, room)
        if outcome is ReportOutcome.NEW:
            known[each.report_id] = each.body
            room -= 1
            if spent is not None and each.token_hash is not None:
                spent[each.token_hash] = True
        outcomes.append(outcome)
    return outcomes


def _decide_one(
    report: Incoming, known: dict[bytes, bytes], spent: dict[bytes, bool] | None, room: int
) -> ReportOutcome:
    body = known.get(report.report_id)
    if body is not None:  # before its token, which the first copy has spent
        return ReportOutcome.SAME if body == report.body else ReportOutcome.CONFLICT
    if spent is not None:
        if report.token_hash is None or report.token_hash not in spent:
            return ReportOutcome.TOKEN_UNKNOWN
        if spent[report.token_hash]:
            return ReportOutcome.TOKEN_SPENT
    return ReportOutcome.NEW if room > 0 else ReportOutcome.FULL
