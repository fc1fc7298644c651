"""Parallel composition: the worst of the guarantees of disjoint groups, not their sum."""

from dataclasses import replace

import pytest

import shuffledp as sdp
from shuffledp.privacy.guarantee import REPLACE_ONE, REPLACE_ONE_USER, WITHIN_GROUP
from shuffledp.privacy.parallel import WorstCurve, in_parallel
from shuffledp.privacy.pure import PureCurve


def guarantee(users, epsilon, neighbours=WITHIN_GROUP[REPLACE_ONE]):
    protocol = sdp.BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=1e-6)
    return replace(protocol.guarantee, neighbours=neighbours)


def test_the_worst_of_the_groups():
    first, second = guarantee(500, 1.0), guarantee(2_000, 0.5)
    together = in_parallel([first, second, first])
    assert (together.epsilon, together.delta, together.users) == (1.0, 1e-6, 500)
    for epsilon in (0.0, 0.3, 0.5, 1.0, 2.0):
        assert together.delta_at(epsilon) == max(first.delta_at(epsilon), second.delta_at(epsilon))
    assert together.delta_at(1.0) <= 1e-6
    assert together.neighbours == "replace-one-within-group"
    assert together.theorem.startswith("parallel composition over groups; ")


def test_several_releases_about_the_same_groups():
    """Never below what either group alone has spent, and close to the worse one."""
    first, second = guarantee(500, 1.0), guarantee(2_000, 0.5)
    together = in_parallel([first, second]).after(2)
    assert first.after(2).epsilon <= together.epsilon * (1 + 1e-6)
    assert together.epsilon <= 1.02 * max(first.after(2).epsilon, second.after(2).epsilon)


def test_one_group_keeps_its_guarantee():
    alone = guarantee(500, 1.0)
    assert in_parallel([alone]) == alone


def test_the_sentence_says_what_is_public():
    words = in_parallel([guarantee(500, 1.0)]).sentence()
    assert words.startswith("Changing one person's answer, but not the person's group, changes")
    assert "Who belongs to which group, and the number of users in each, is public." in words
    users = guarantee(500, 1.0, WITHIN_GROUP[REPLACE_ONE_USER]).sentence()
    assert users.startswith("Changing all rows of one person, but not the person's group, changes")


@pytest.mark.parametrize(
    ("guarantees", "words"),
    [
        ([], "at least one group"),
        ([guarantee(500, 1.0), guarantee(500, 0.9, WITHIN_GROUP[REPLACE_ONE_USER])], "agree in their neighbours"),
        ([guarantee(500, 1.0, REPLACE_ONE), guarantee(500, 0.9, REPLACE_ONE)], "within a group, not replace-one"),
    ],
)
def test_what_cannot_be_composed(guarantees, words):
    with pytest.raises(sdp.ParameterError, match=words):
        in_parallel(guarantees)


def test_a_curve_that_is_not_a_number_is_not_hidden():
    class Broken:
        def delta_at(self, epsilon):
            return float("nan")

    worst = WorstCurve((PureCurve(1.0), Broken(), PureCurve(1.0)))
    assert worst.delta_at(0.5) != worst.delta_at(0.5)


def test_unknown_neighbours_are_refused():
    with pytest.raises(sdp.ParameterError, match="no neighbours 'add-one'"):
        guarantee(500, 1.0, "add-one")
