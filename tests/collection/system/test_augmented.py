"""Rounds of an augmented shuffler: whenever it is killed, exactly one draw of dummies is in the batch, once."""

import json
from collections import Counter

import numpy as np
import pytest

SERVERS = ("analyzer", "shuffler")
NORMAL, MANY = 2, 204
KILLED_AFTER_MIXING = """
permute = shuffling.RoundShuffler._permute

def die_after(self, served):
    batch = permute(self, served)
    die_once()  # before the batch is recorded
    return batch

shuffling.RoundShuffler._permute = die_after
"""
DRAW_KEPT_OVER_A_KILL = """
from pathlib import Path
kept = Path(folder, "kept-draw")
from shuffledp.collection.shuffler import mixtures
seal = mixtures.sealed_dummies

def seal_and_keep(task, hop):
    if kept.exists():
        yield kept.read_bytes()
    content = b"".join(seal(task, hop))
    kept.write_bytes(content)
    yield content

mixtures.sealed_dummies = seal_and_keep
"""
"""A fault: the dummies of a killed process are added to those of the next."""
NO_BOUND = """
from shuffledp.protocols.histogram.shuffler_laplace import ShufflerLaplaceHistogram as bounded
bounded.most_dummies = 1_000_000
"""
"""Servers that take any number of dummies; others refuse a batch with so many."""


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_one_draw_is_in_the_batch_once(new_augmented_round, schedules, rounds):
    """As for other rounds; and of all draws, those of killed processes included, one was added, once."""
    kills: Counter = Counter()
    draws = 0
    for _ in range(rounds):
        here = new_augmented_round()
        fates = {each: schedules.random_fates(each) for each in SERVERS}
        kills += schedules.play(here, fates, fault=here.record_draws)
        draws += len(here.draws())
    assert kills.total() >= rounds - 1  # of one alone, all may come too late
    print(f"{rounds} schedules, {kills.total()} kills, {draws} draws: {dict(kills)}")


def test_a_mix_that_was_killed_draws_anew(new_augmented_round, schedules):
    """Killed when the batch is complete and not yet recorded: the second draw is delivered, of the first nothing."""
    here = new_augmented_round()
    schedules.play(here, {}, fault=here.record_draws + KILLED_AFTER_MIXING)
    first, second = here.draws()
    assert not np.array_equal(first, second)
    (released,) = map(json.loads, here.documents)
    assert here.counted(released) == dict(enumerate((here.tally(released) - second).tolist()))


def test_a_draw_that_is_kept_over_a_kill_would_be_seen(new_augmented_round, schedules):
    """The same check on a shuffler with a fault; who is not killed meanwhile gets away with it."""
    here = new_augmented_round()
    schedules.play(here, {}, fault=here.record_draws + DRAW_KEPT_OVER_A_KILL)
    here = new_augmented_round()
    with pytest.raises(AssertionError, match="0 of 2 draws are in the batch"):
        schedules.play(here, {}, fault=here.record_draws + NO_BOUND + DRAW_KEPT_OVER_A_KILL + KILLED_AFTER_MIXING)


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id="0")] + [pytest.param(8, id=f"many-{i}", marks=pytest.mark.slow) for i in range(6)],
)
def test_one_draw_of_each_shuffler_of_a_chain_is_in_the_batch(new_augmented_chain_round, schedules, rounds):
    """Both add all dummies, once each, whenever they are killed."""
    for _ in range(rounds):
        here = new_augmented_chain_round()
        fates = {each: schedules.random_fates(each.partition("-")[0]) for each in here.environments}
        schedules.play(here, fates, fault=here.record_draws)


def test_noise_of_a_later_shuffler_that_is_drawn_twice_after_a_kill_would_be_seen(new_augmented_chain_round, schedules):
    second_only = "if log.endswith('shuffler-2.log'):\n    exec(planted)\n"
    planted = f"planted = {DRAW_KEPT_OVER_A_KILL + KILLED_AFTER_MIXING!r}\n{second_only}"
    here = new_augmented_chain_round()
    with pytest.raises(AssertionError, match="0 of 2 draws are in the batch"):
        schedules.play(here, {}, fault=here.record_draws + NO_BOUND + planted)
