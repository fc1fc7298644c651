"""Both servers killed at random moments of a round: what was acknowledged is counted once, and released once."""

from collections import Counter

import pytest

SERVERS = ("analyzer", "shuffler")
NORMAL, MANY = 2, 204


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_nothing_is_lost_or_counted_twice(new_round, schedules, rounds):
    """Every acknowledged report is counted once, none twice; one release, one entry of the ledger, nothing left."""
    kills: Counter = Counter()
    for _ in range(rounds):
        kills += schedules.play(new_round(), {each: schedules.random_fates(each) for each in SERVERS})
    assert kills.total() >= rounds - 1  # of one alone, all may come too late
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


def test_an_answer_before_it_is_durable_would_be_seen(new_round, schedules):
    """The same check on a shuffler with a fault; who is not killed meanwhile gets away with it."""
    schedules.play(new_round(), {}, fault=f"die_once = lambda: None{schedules.EARLY_ANSWERS}", pause=0.06)
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        schedules.play(new_round(), {}, fault=schedules.EARLY_ANSWERS, pause=0.06)


@pytest.mark.parametrize("moved", [0, 1, 3])
def test_a_report_counted_otherwise_would_be_seen(new_round, moved):
    """A release in which messages of one report are missing and those of another are counted again does not pass."""
    here = new_round()
    counts = [here.times] * here.users + [0] * (len(here.reports) - here.users)
    counts[0] -= moved
    counts[1] += moved
    found = here.counted(here.document(counts))
    assert list(found.values()) == counts
    assert (Counter(found.values()) == {here.times: here.users, 0: len(counts) - here.users}) == (moved == 0)
