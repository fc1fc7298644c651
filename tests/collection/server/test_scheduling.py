"""Retries and periodic steps: pauses grow, reasons are logged once, errors end nothing, shutdown ends it."""

import asyncio

import pytest

from shuffledp.collection.server.scheduling import Retries, ShutdownError, repeat
from shuffledp.collection.transport.connection import backoff_seconds


@pytest.mark.parametrize(("failures", "limit"), [(0, 0.25), (1, 0.5), (4, 4.0), (5, 5.0), (10_000, 5.0)])
def test_pauses_double_up_to_the_longest_and_are_not_the_same(failures, limit):
    pauses = {backoff_seconds(failures, first=0.25, longest=5.0) for _ in range(50)}
    assert all(limit / 2 <= pause <= limit for pause in pauses)
    assert len(pauses) > 1


def test_a_reason_is_new_once():
    retries = Retries()
    assert [retries.fail(reason) for reason in ("a", "a", "b", "a")] == [True, False, True, True]
    assert (retries.failures, retries.last_error) == (4, "a")
    assert not retries.note("a")
    assert retries.failures == 4
    assert retries.pause_seconds(first=1.0, longest=100.0) >= 8.0
    retries.succeed()
    assert (retries.failures, retries.last_error) == (0, "")
    assert retries.fail("a")


def test_a_step_is_repeated_when_woken_and_whatever_it_raises_until_shutdown():
    calls, errors = [], []

    async def run():
        wake = asyncio.Event()

        async def step():
            calls.append(len(calls))
            wake.set()  # otherwise the next step would come in an hour
            if len(calls) == 2:
                raise ZeroDivisionError
            if len(calls) == 5:
                raise ShutdownError

        await asyncio.wait_for(repeat(step, seconds=3600, wake=wake, failed=errors.append), 60)

    asyncio.run(run())
    assert calls == [0, 1, 2, 3, 4]
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_a_step_comes_without_being_woken():
    calls = []

    async def run():
        async def step():
            calls.append(1)
            if len(calls) == 3:
                raise ShutdownError

        await asyncio.wait_for(repeat(step, seconds=0.001, wake=asyncio.Event(), failed=pytest.fail), 60)

    asyncio.run(run())
    assert len(calls) == 3
