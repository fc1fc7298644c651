"""Two shufflers on one database, all of them killed at random moments: together they lose and repeat nothing."""

import random
from collections import Counter

import pytest

NORMAL, MANY = 1, 108
NOT_DURABLE = """
from shuffledp.collection.shuffler.store import postgres
configure = postgres._configure

def configure_otherwise(connection):
    configure(connection)
    connection.execute("SET synchronous_commit = off")
    connection.commit()

postgres._configure = configure_otherwise
"""


def random_schedule(schedules, database) -> dict:
    """How each server ends, often; sometimes both shufflers at once, sometimes the database."""
    names = ("analyzer", "shuffler-1", "shuffler-2")
    fates = {each: schedules.random_fates(each, most_kills=3) for each in names}
    if random.random() < 0.3:  # both begin at once
        fates["shuffler-1"][0] = fates["shuffler-2"][0] = {"seconds": random.uniform(0.2, schedules.LONGEST_LIFE)}
    crashes = ()
    if random.random() < 0.5:
        ways = random.choices(database.ways, k=random.randint(1, 2))
        each = [{"after": random.uniform(0.0, 2.0), "way": way, "pause": random.uniform(0.0, 0.5)} for way in ways]
        crashes = (database, each)
    return {"fates": fates, "crashes": crashes}


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_nothing_is_lost_or_counted_twice(new_shared_round, schedules, database, rounds):
    """Devices go to one shuffler and the other by turns, and to the other if one does not answer."""
    kills: Counter = Counter()
    for _ in range(rounds):
        kills += schedules.play(new_shared_round(), **random_schedule(schedules, database))
    assert kills.total() >= rounds - 1  # of one alone, all may come too late
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


def test_an_answer_before_it_is_durable_would_be_seen(new_shared_round, schedules):
    """The same check on shufflers with a fault."""
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        schedules.play(new_shared_round(), {}, fault=schedules.EARLY_ANSWERS, pause=0.06)


@pytest.mark.parametrize(
    ("way", "fault"),
    [
        pytest.param("postmaster", "", id="real-postmaster"),
        pytest.param("immediate", "", id="real-immediate", marks=pytest.mark.slow),
        pytest.param("backend", "", id="real-backend"),
        pytest.param("postmaster", NOT_DURABLE, id="not-durable-postmaster", marks=pytest.mark.slow),
        pytest.param("immediate", NOT_DURABLE, id="not-durable-immediate"),
        pytest.param("backend", NOT_DURABLE, id="not-durable-backend", marks=pytest.mark.slow),
    ],
)
def test_the_database_crashes_right_after_an_answer(new_shared_round, schedules, database, way, fault):
    """What was answered is there, so both say 200 to it; commits that may be put off would be lost, and seen to be."""
    here = new_shared_round()
    with schedules.kept(here, {}, fault=fault) as keepers:
        schedules.report(here, keepers, range(100), pause=0.0)
        database.crash(way, 0.0)
        assert len(here.acknowledged) == 100
        schedules.report(here, keepers, range(100), pause=0.0)
    again = Counter(here.answers[place][-1] for place in range(100))
    assert (again == {"200": 100}) == (not fault)
