"""The message column of the two protocols of [13] in Table 1: formulas with constants, and faults that are noticed."""

from dataclasses import replace

import pytest

from shuffledp.lab.studies.table1.messages import message_checks, message_quantile, message_row
from shuffledp.lab.studies.table1.rows import BETA, calibrated
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import SYSTEM, Dyadic


def broken(protocol, users, size):
    return [check.claim for check in message_checks(protocol, users, size, SYSTEM) if not check.holds]


@pytest.mark.parametrize(
    ("name", "calibration", "users", "size"),
    [
        ("hadamard-blanket", "paper", 10_000, 1000),
        ("hadamard-blanket", "tight", 10_000, 10),
        ("count-min", "paper", 10_000_000, 10),
        ("count-min", "tight", 10_000, 10),
    ],
)
def test_messages_are_as_the_table_says_and_more_are_noticed(name, calibration, users, size):
    protocol = calibrated(name, users, size, calibration)
    row = message_row(protocol, size)
    assert protocol.cost.messages_per_user <= row["messages_formula"]
    assert row["messages_rate_constant_1"] < row["messages_formula"]
    assert broken(protocol, users, size) == []


def test_a_blanket_with_one_more_message_is_noticed():
    protocol = calibrated("hadamard-blanket", 10_000, 10, "paper")
    more = replace(protocol, blanket=Slots(protocol.blanket.whole + 1, Dyadic(0)))
    assert any("as the construction says" in claim for claim in broken(more, 10_000, 10))
    assert any("formula" in claim for claim in broken(replace(protocol, blanket=Slots(2000, Dyadic(0))), 10_000, 10))


def test_a_sketch_that_sends_twice_as_much_is_noticed():
    protocol = calibrated("count-min", 10_000_000, 10, "paper")
    more = replace(protocol, gamma=Dyadic.at_least(2 * float(protocol.gamma)))
    assert any("as the construction says" in claim for claim in broken(more, 10_000_000, 10))


def test_the_quantile_of_the_sketch_is_that_of_a_binomial_number():
    protocol = calibrated("count-min", 10_000, 10, "tight")
    extra = Binomial(protocol.rows * protocol.buckets, protocol.gamma)
    most = int(message_quantile(protocol)) - protocol.rows
    assert float(extra.upper_tail(most + 1)) <= 1e-6 < float(extra.upper_tail(most))
    assert BETA == 0.05
    assert message_quantile(calibrated("hadamard-blanket", 10_000, 10, "tight")) is None
