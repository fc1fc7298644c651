"""A shuffler and its database lose each other: nobody knows what became of a commit, or it takes long."""

import threading
import time
from contextlib import closing, suppress

import psycopg
import pytest

from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store import Incoming, RoundState, StoreError, open_store
from shuffledp.collection.shuffler.tasks import load_task
from shuffledp.collection.wire.keys import SigningKey

ADVANCE = "UPDATE shuffledp.rounds SET state = %s, note = %b WHERE task_id = %s"


def closed_round(here, store) -> tuple:
    """A full round in the store, and what releases it."""
    key = SigningKey.load(here.directory / "shuffler.key")
    known = load_task(here.directory / "tasks" / "task.json", [here.author], key.public)
    store.open_round(known.id, maximum=here.users, tokens=False)
    store.accept([Incoming(known.id, known.format.report_id(each), each) for each in here.reports[: here.users]])
    assert store.close_round(known.id) == here.users
    return known, RoundShuffler(store, key, here.works[0], 1 << 24)


@pytest.mark.parametrize("comes", [True, False], ids=["commits", "fails"])
def test_a_batch_stays_while_its_commit_is_under_way(new_shared_round, monkeypatch, comes):
    """The connection breaks at the commit, which waits in the server, as for a standby: it may still come."""
    here = new_shared_round()
    with closing(open_store(here.address)) as store, psycopg.connect(here.address) as broken:
        known, round_shuffler = closed_round(here, store)

        def lose_the_answer(task_id: bytes, to: RoundState, note: bytes) -> None:
            broken.execute(ADVANCE, (to.value, note, task_id))
            raise StoreError("The PostgreSQL server cannot be used.")

        with monkeypatch.context() as patch:
            patch.setattr(store, "advance", lose_the_answer)
            with pytest.raises(StoreError):
                round_shuffler.shuffle(known)
        assert store.state(known.id) is RoundState.CLOSED
        later = threading.Timer(0.5, broken.commit if comes else broken.rollback)
        later.start()
        with suppress(StoreError):
            round_shuffler.shuffle(known)  # the next attempt
        later.join()
        round_shuffler.shuffle(known)
        assert store.state(known.id) is RoundState.SHUFFLED
        assert round_shuffler.batch(known) is not None, "the batch that the store knows is gone"


@pytest.mark.slow
def test_a_database_that_was_away_for_long_is_soon_used_again(new_shared_round, database):
    """However long it was away, reports are taken again a few seconds after it is back."""
    here = new_shared_round()
    with closing(open_store(here.address)) as store:
        outage = threading.Thread(target=database.crash, args=("immediate", 18.0))
        outage.start()
        time.sleep(0.5)
        while outage.is_alive():  # as a server does that is asked all the time
            with suppress(StoreError):
                store.check()
        back = time.monotonic()
        while True:
            with suppress(StoreError):
                store.check()
                break
        assert time.monotonic() - back < 7
