"""Which steps a round may take: forward, one at a time, and each once."""

from __future__ import annotations

from shuffledp.collection.shuffler.store.interface import FINISHED, RoundState, StoreError

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
