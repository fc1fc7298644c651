"""Rules that every store follows: the outcome of each report, and the state transitions of a round."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.shuffler.store.interface import FINISHED, Incoming, ReportOutcome, RoundState, StoreError

_PREDECESSORS = {RoundState.SHUFFLED: RoundState.CLOSED, RoundState.DELIVERED: RoundState.SHUFFLED}


def check_advance(state: RoundState, to: RoundState, old_note: bytes, note: bytes) -> bool:
    """Whether the state has to change; False if it has already changed. StoreError if the transition is not allowed."""
    if to is RoundState.SHUFFLED and not note:
        raise StoreError("A round becomes shuffled only together with its manifest; no manifest was given.")
    if state is to and to in _PREDECESSORS and note in (b"", old_note):
        return False
    if state is to:
        raise StoreError(f"The round is {state.value} already, with another note.")
    if _PREDECESSORS.get(to) is not state:
        raise StoreError(f"A round that is {state.value} cannot become {to.value}.")
    return True


def check_destroy(state: RoundState) -> RoundState:
    """The state after the reports are destroyed; StoreError if the round is collecting."""
    if state is RoundState.COLLECTING:
        raise StoreError("A round that is collecting cannot be destroyed; close it first.")
    return RoundState.DESTROYED if state is RoundState.CLOSED else state


def check_give_up(state: RoundState, to: RoundState) -> bool:
    """Whether the state has to change; False if it has already changed. StoreError if the transition is not allowed."""
    if state is to:
        return False
    if state in FINISHED or to not in (RoundState.CANCELLED, RoundState.ABANDONED):
        raise StoreError(f"A round that is {state.value} cannot become {to.value}.")
    if to is RoundState.CANCELLED and state is RoundState.SHUFFLED:
        raise StoreError("A round that is shuffled cannot be cancelled; its batch can be abandoned.")
    return True


def check_tokens(state: RoundState, before: bool, now: bool) -> None:
    """StoreError if a collecting round would start or stop requiring tokens; after collection it does not matter."""
    if state is RoundState.COLLECTING and before != now:
        kind = "with" if before else "without"
        raise StoreError(f"This round was opened {kind} tokens; this cannot be changed.")


def indices_by_round(batch: Sequence[Incoming]) -> dict[bytes, list[int]]:
    """The indices of each round's reports in the batch; the rounds in the same order in every process."""
    indices: dict[bytes, list[int]] = {}
    for index, report in enumerate(batch):
        indices.setdefault(report.task_id, []).append(index)
    return dict(sorted(indices.items()))  # locks that are always taken in one order cannot deadlock


def decide(
    reports: Sequence[Incoming],
    *,
    stored_bodies: dict[bytes, bytes],
    spent: dict[bytes, bool] | None,
    free_slots: int,
) -> list[ReportOutcome]:
    """The outcomes of reports of one open round, as if they arrived one after the other.

    ``stored_bodies`` has the bodies of stored reports by report id. ``spent`` maps the hash of each token of the round
    to whether it is spent, and is None if the round requires no tokens. Both are updated. ``free_slots`` is the number
    of further reports that the round may accept.
    """
    outcomes = []
    for report in reports:
        outcome = _decide_one(report, stored_bodies, spent, free_slots)
        if outcome is ReportOutcome.NEW:
            stored_bodies[report.report_id] = report.body
            free_slots -= 1
            if spent is not None and report.token_hash is not None:
                spent[report.token_hash] = True
        outcomes.append(outcome)
    return outcomes


def _decide_one(
    report: Incoming, stored_bodies: dict[bytes, bytes], spent: dict[bytes, bool] | None, free_slots: int
) -> ReportOutcome:
    body = stored_bodies.get(report.report_id)
    if body is not None:  # checked before the token, which the first copy has spent
        return ReportOutcome.SAME if body == report.body else ReportOutcome.CONFLICT
    if spent is not None:
        if report.token_hash is None or report.token_hash not in spent:
            return ReportOutcome.TOKEN_UNKNOWN
        if spent[report.token_hash]:
            return ReportOutcome.TOKEN_SPENT
    return ReportOutcome.NEW if free_slots > 0 else ReportOutcome.FULL
