"""Faults planted in strings/tree-blanket, and what catches each: the conformance kit, the audit, or counted strings.

The kit runs at its own alpha; the audit's confidence is 1 - 1e-7, so that an honest randomizer is never exposed.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest

from shuffledp.domain import Strings
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings
from shuffledp.protocols.target import Target
from shuffledp.testing import ConformanceError, check_protocol
from shuffledp.testing.audit import audit

SURE = 1 - 1e-7


def small_tree():
    from fractions import Fraction

    from shuffledp.privacy.amplification import Slots
    from shuffledp.randomness import Dyadic

    blanket = Slots(1, Dyadic.at_least(Fraction(0)))
    return TreeBlanketStrings(Target(2, 0.5, 0.95), Strings("ab", 1), blanket, 2, 2, 0, 16, 3)


def broken(protocol, **methods):
    copied = copy.copy(protocol)
    for name, method in methods.items():
        object.__setattr__(copied, name, method)
    return copied


def with_fewer_uniform_messages(protocol, lost=0.05):
    """Every uniform message is left out with a small probability, in both routes."""

    def randomize_all(values, **options):
        messages = protocol.randomize_all(values, **options)
        kept = np.random.default_rng().random(len(messages.values)) >= lost
        kept[messages.offsets[:-1]] = True  # each user's own message
        offsets = np.concatenate(([0], np.cumsum(kept)))[messages.offsets]
        return replace(messages, values=messages.values[kept], offsets=offsets)

    def sample_tally(data, **options):
        values = np.repeat(data[:, 0].astype(np.int64), data[:, 1].astype(np.int64))
        tally = protocol.tally(randomize_all(values, **options))
        return Tally(tally.counts, tally.users, tally.secure)

    return broken(protocol, randomize_all=randomize_all, sample_tally=sample_tally)


@pytest.mark.parametrize(
    "check", ["randomize_all has its distribution", "sample_tally has the distribution of the round"]
)
def test_five_per_cent_fewer_uniform_messages_are_caught(check):
    protocol = small_tree()
    check_protocol(protocol, only=[check])
    with pytest.raises(ConformanceError):
        check_protocol(with_fewer_uniform_messages(protocol), only=[check])


def on_two_levels(protocol):
    """The bucket of the string on two levels: one more of the cells that only its holder would fill."""
    table = protocol.tree.cells([protocol.tree.word(value) for value in range(protocol.domain_size)])

    def randomize_all(values, **options):
        messages = protocol.randomize_all(values, **options)
        cells = table[values]
        sent, own = messages.values.copy(), messages.offsets[:-1]
        other = (sent[own, 0].astype(np.int64) + 1) % protocol.levels
        sent[own + 1, 0] = other  # instead of a uniform message: their number stays the same
        sent[own + 1, 1] = cells[np.arange(len(values)), other]
        return Messages(sent, len(values), messages.offsets, messages.secure)

    return broken(protocol, randomize_all=randomize_all)


def test_a_message_on_two_levels_is_exposed_by_the_audit():
    """The event is the number of messages in the cells of either string."""
    protocol = TreeBlanketStrings.calibrate(
        users=40, epsilon=1.0, delta=0.01, domain=Strings("ab", 1), levels=2, most_messages=8
    )
    assert not audit(protocol, trials=200, confidence=SURE).exposed
    result = audit(on_two_levels(protocol), trials=1500, confidence=SURE)
    assert result.exposed, result.to_json()
