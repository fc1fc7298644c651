"""A device has its own limits, whatever a task claims."""

import dataclasses
import math

import pytest

from shuffledp.collection.device import Client, Policy
from shuffledp.errors import ParameterError, PolicyError

STRICT = Policy(max_epsilon=1.0, max_delta=1e-6, min_users=1000)


def test_a_task_within_the_limits(parties):
    STRICT.check(parties.task())
    Policy().check(parties.task())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 1.5}, r"epsilon = 1\.5"),
        ({"delta": 1e-4}, "delta = 0.0001"),
        ({"users": 999}, "999 honest users; this device requires 1,000"),
    ],
)
def test_a_task_beyond_a_limit(changes, words, parties):
    with pytest.raises(PolicyError, match=words):
        STRICT.check(parties.task(**changes))


def test_honest_users_count_not_all(parties):
    task = parties.task(users=1000)
    protocol = type(task.protocol).calibrate(users=1000, domain_size=4, epsilon=1, delta=1e-6, honest_fraction=0.5)
    half = dataclasses.replace(task, protocol=protocol)
    with pytest.raises(PolicyError, match="500 honest users"):
        STRICT.check(half)


def test_what_counts_is_what_holds(parties):
    """A task that claims little but holds more is fine, and one that claims too much is refused."""
    task = parties.task(epsilon=0.5)
    STRICT.check(dataclasses.replace(task, epsilon=5.0))
    with pytest.raises(ParameterError, match="more than the claimed"):
        STRICT.check(dataclasses.replace(task, epsilon=0.1))


def test_one_limit_is_not_traded_for_the_other(parties):
    loose = parties.task(epsilon=0.2, delta=1e-3)
    with pytest.raises(PolicyError, match="this device allows"):
        Policy(max_epsilon=0.2, max_delta=1e-6).check(loose)


def test_local_protocols_need_nobody(parties):
    local = parties.task("histogram/k-rr", users=10, epsilon=1.0)
    Policy(min_users=10**6, max_delta=0.0).check(local)
    with pytest.raises(PolicyError, match="this device allows"):
        Policy(max_epsilon=0.5).check(local)


def test_long_reports(parties):
    task = parties.task("count/correlated-noise")
    for policy in (Policy(max_messages=task.messages_per_report - 1), Policy(max_report_bytes=1000)):
        with pytest.raises(PolicyError, match="messages and"):
            policy.check(task)
    Policy(max_messages=task.messages_per_report).check(task)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_epsilon": 0},
        {"max_epsilon": math.nan},
        {"max_delta": 1},
        {"max_delta": -1e-9},
        {"max_delta": math.nan},
        {"min_users": 0},
        {"max_messages": 0},
        {"max_report_bytes": 0},
    ],
)
def test_policies_that_mean_nothing(limits):
    with pytest.raises(ParameterError, match="A policy needs"):
        Policy(**limits)


def test_a_client_has_a_policy_even_if_none_is_given(parties, tmp_path):
    weak = parties.task(epsilon=3.0).signed(parties.author).to_bytes()
    with pytest.raises(PolicyError):
        Client(weak, author=parties.author.public, state=tmp_path / "device")
    assert not (tmp_path / "device").exists()
