"""Servers killed at random moments while devices with tokens report: each token pays for one report, and for one only.

Every device has two reports for its token and sends both at the same time, so that a token which is spent twice, or
spent for nothing, is seen in the answers and in the release.
"""

import random
from collections import Counter

import pytest

NORMAL, MANY = 1, 108
SPENT_FIRST = """
from shuffledp.collection.shuffler.store import sqlite_round
store, stored = sqlite_round._store, 0

def store_in_two_steps(connection, reports, tokens):
    global stored
    hashes = [each.token_hash for each in reports]
    if connection.execute(sqlite_round._SPEND_TOKENS, sqlite_round._joined(hashes)).rowcount != len(reports):
        raise sqlite_round.sqlite3.IntegrityError
    connection.execute("COMMIT")
    stored += len(reports)
    if stored > 50:
        die_once()
    connection.execute("BEGIN IMMEDIATE")
    store(connection, reports, False)

sqlite_round._store = store_in_two_steps
"""
NEVER_SPENT = """
from shuffledp.collection.shuffler.store import sqlite_round
sqlite_round._SPEND_TOKENS = sqlite_round._SPEND_TOKENS.replace("SET spent = 1", "SET spent = 0")
"""


def play(here, schedules, *, killed: bool = True, fault: str = "") -> Counter:
    """A whole round, in two parts: most devices, who ask again; then the others, and the release."""

    def fates(*servers: str) -> dict:
        return {each: schedules.random_fates(each) for each in servers} if killed else {}

    devices = random.sample(range(len(here.reports) // here.copies), len(here.reports) // here.copies)
    first, others = devices[: here.users - 10], devices[here.users - 10 :]
    pause = random.choice([0.0, 0.01, 0.02])
    with schedules.kept(here, fates("shuffler"), fault=fault) as keepers:
        schedules.report(here, keepers, here.reports_of(first), pause=pause)
        schedules.report(here, keepers, here.reports_of(random.sample(first, len(first))), pause=0.0)
    kills = schedules.kills_of(keepers)
    for device in first:
        answers = sorted(here.answers[place] for place in here.reports_of([device]))
        assert answers in ([["200", "200"], ["token-spent"] * 2], [["201", "200"], ["token-spent"] * 2]), answers
    assert here.spent() == (len(first), len(first))
    with schedules.kept(here, fates("analyzer", "shuffler"), fault=fault) as keepers:
        schedules.report(here, keepers, here.reports_of(others), pause=0.02)
        document = schedules.release(here, keepers)
    schedules.check(here, document)
    counted = here.counted(document)
    owners = [place % len(devices) for place, number in counted.items() if number]
    assert len(set(owners)) == len(owners) == here.users  # so many tokens were spent, each for one report
    refused = {place % len(devices) for place, answers in here.answers.items() if "token-spent" in answers}
    assert refused <= set(owners)  # none for nothing
    return kills + schedules.kills_of(keepers)


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_every_token_is_spent_once_and_for_a_report(new_enrolled_round, schedules, rounds):
    """Of the two reports of a token one is accepted, whoever is killed; asked again, the answers stay the same."""
    kills: Counter = Counter()
    for _ in range(rounds):
        kills += play(new_enrolled_round(), schedules)
    assert kills.total() >= rounds - 1  # of one alone, all may come too late
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


@pytest.mark.parametrize("fault", [SPENT_FIRST, NEVER_SPENT], ids=["spent-first", "never-spent"])
def test_a_token_spent_otherwise_would_be_seen(new_enrolled_round, schedules, fault):
    """Shufflers that spend tokens before they store reports and are killed in between, or do not spend them."""
    with pytest.raises(AssertionError, match="token-spent"):
        play(new_enrolled_round(), schedules, killed=False, fault=fault)


def test_spending_in_two_steps_is_harmless_without_a_kill(new_enrolled_round, schedules):
    play(new_enrolled_round(), schedules, killed=False, fault=f"die_once = lambda: None{SPENT_FIRST}")
