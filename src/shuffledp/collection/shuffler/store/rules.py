"""Rules of every store: the outcome of each report, and the steps that a round may take."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.shuffler.store.interface import FINISHED, Incoming, ReportOutcome, RoundState, StoreError

_BEFORE = {RoundState.SHUFFLED: RoundState.CLOSED, RoundState.DELIVERED: RoundState.SHUFFLED}


def check_advance(state: RoundState, to: RoundState, old_note: bytes, note: bytes) -> bool:
    """Whether there is a step to take; False if it was taken already just so. Any other step is refused."""
    if to is RoundState.SHUFFLED and not note:
        raise StoreError("A round becomes shuffled together with its manifest; none was given.")
    if state is to and to in _BEFORE and note in (b"", old_note):
        return False
    if state is to:
        raise StoreError(f"The round is {state.value} already, with another note.")
    if _BEFORE.get(to) is not state:
        raise StoreError(f"A round that is {state.value} cannot become {to.value}.")
    return True


def check_destroy(state: RoundState) -> RoundState:
    """The state after the reports are destroyed; those of a round that collects are refused."""
    if state is RoundState.COLLECTING:
        raise StoreError("A round that is collecting cannot be destroyed; close it first.")
    return RoundState.DESTROYED if state is RoundState.CLOSED else state


def check_give_up(state: RoundState, to: RoundState) -> bool:
    """Whether the round has to be ended; False if it was ended this way already. Any other step is refused."""
    if state is to:
        return False
    if state in FINISHED or to not in (RoundState.CANCELLED, RoundState.ABANDONED):
        raise StoreError(f"A round that is {state.value} cannot become {to.value}.")
    if to is RoundState.CANCELLED and state is RoundState.SHUFFLED:
        raise StoreError("A round that is shuffled cannot be cancelled; its batch can be abandoned.")
    return True


def check_tokens(state: RoundState, before: bool, now: bool) -> None:
    """Refuse to collect for a round once with and once without tokens; for one that collects no more it is the same."""
    if state is RoundState.COLLECTING and before != now:
        kind = "with" if before else "without"
        raise StoreError(f"This round was opened {kind} tokens; that cannot change.")


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
