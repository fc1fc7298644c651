"""A system clock that jumps closes and destroys no round."""

import logging
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.store.interface import RoundRecord, RoundState, StoreSnapshot

START = 1_700_000_000.0
HOUR = 3600.0


class Machine:
    """Two clocks: one that can be set, and one that cannot."""

    def __init__(self):
        self.seconds, self.error, self.boot = 1000.0, 0.0, "first"

    def wall(self) -> float:
        return START + self.seconds + self.error

    def steady(self) -> float:
        return self.seconds

    def true(self) -> float:
        return START + self.seconds

    def reboot(self) -> None:
        self.boot += "+"

    def clock(self, state=None) -> RoundClock:
        return RoundClock(state, wall=self.wall, steady=self.steady, boot=self.boot)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, "shuffledp.collection")
    return lambda: [(each.msg, each.levelname) for each in caplog.records if each.msg.startswith("clock-")]


def run(machine, clock, seconds: float) -> None:
    """Let time pass, in which the clock is read every second."""
    for _ in range(int(seconds)):
        machine.seconds += 1
        clock()


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 6, -6, 1e12, -1e12])
def test_a_jump_is_not_followed(machine, logged, jump):
    clock = machine.clock()
    machine.error = jump
    machine.seconds += 1
    assert clock() == machine.true()
    assert logged() == [("clock-jumped", "ERROR")]
    run(machine, clock, 4)
    machine.error = 0
    assert clock() == machine.true()
    assert clock.offset == 0
    assert logged() == [("clock-jumped", "ERROR"), ("clock-back", "INFO")]


def test_a_jump_that_stays_is_followed_after_a_quarter_of_an_hour(machine, logged):
    clock = machine.clock()
    machine.error = 2 * HOUR
    run(machine, clock, 899)
    assert clock() == machine.true()
    assert clock.offset == 2 * HOUR
    run(machine, clock, 3)
    assert clock() == machine.wall()
    assert logged() == [("clock-jumped", "ERROR"), ("clock-adopted", "ERROR")]


def test_a_clock_that_jumps_to_and_fro_is_never_followed(machine, logged):
    clock = machine.clock()
    for number in range(300):
        machine.error = HOUR * (number % 2 + 1)
        run(machine, clock, 10)
        assert clock() == machine.true()
    assert len(logged()) <= 300


@given(st.lists(st.floats(-0.0005, 0.0005), min_size=20, max_size=20))
def test_adjustments_without_a_jump_are_followed(rates):
    """As fast as systems slew their clocks, one way or the other."""
    machine = Machine()
    clock = machine.clock()
    for rate in rates:
        for _ in range(100):
            machine.seconds += 10
            machine.error += 10 * rate
            assert clock() == machine.wall()


def test_a_suspended_machine_jumps_nowhere(machine, logged):
    clock = machine.clock()
    machine.seconds += 30 * HOUR
    assert clock() == machine.wall()
    assert logged() == []


def test_a_process_that_is_stopped_between_reading_both(machine, logged):
    clock = machine.clock()
    pauses = [HOUR, HOUR]

    def wall() -> float:
        value = machine.wall()
        machine.seconds += pauses.pop() if pauses else 0
        return value

    clock._wall = wall
    assert clock() == machine.true()
    assert logged() == []


class TestRestart:
    def test_with_a_clock_that_was_set_meanwhile(self, machine, tmp_path, logged):
        run(machine, machine.clock(tmp_path / ".clock"), 100)
        machine.seconds += 1000
        machine.error = 2 * HOUR
        clock = machine.clock(tmp_path / ".clock")
        assert clock() == machine.true()
        assert logged() == [("clock-jumped", "ERROR")]
        clock = machine.clock(tmp_path / ".clock")  # once more: it is still known
        assert clock() == machine.true()

    def test_after_days_with_a_clock_that_was_slewed(self, machine, tmp_path, logged):
        machine.clock(tmp_path / ".clock")
        machine.seconds += 72 * HOUR
        machine.error = 72 * HOUR * 0.0004
        assert machine.clock(tmp_path / ".clock")() == machine.wall()
        assert logged() == []

    def test_of_the_machine(self, machine, tmp_path, logged):
        """The clock that cannot be set begins anew: only a clock that is behind is noticed."""
        machine.clock(tmp_path / ".clock")
        machine.reboot()
        machine.error = HOUR
        assert machine.clock(tmp_path / ".clock")() == machine.wall()
        machine.reboot()
        machine.error = -1000 * HOUR
        clock = machine.clock(tmp_path / ".clock")
        assert clock() == machine.true() + HOUR
        assert logged() == [("clock-jumped", "ERROR")]
        run(machine, clock, 902)
        assert clock() == machine.wall()

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"junk",
            b"[]",
            b'{"boot": "first"}',
            b'{"boot": "first", "wall": "x", "steady": null}',
            b'{"boot": "first", "wall": NaN, "steady": 0.0}',
            b'{"boot": "first", "wall": Infinity, "steady": 0.0}',
            b'{"boot": "first", "wall": 1%s, "steady": 0.0}' % (b"0" * 400),
            b'{"boot": "first", "wall": 1e15, "steady": 0.0}',
            b'{"boot": "before", "wall": 1e300, "steady": 0.0}',
            b'{"boot": "first", "wall": -1e15, "steady": 0.0}',
            b'{"boot": "first", "wall": 1700000000.0, "steady": -1e15}',
            b"\xff" * 9000,
        ],
    )
    def test_with_a_file_that_is_no_good(self, machine, tmp_path, content):
        (tmp_path / ".clock").write_bytes(content)
        assert machine.clock(tmp_path / ".clock")() == machine.wall()

    def test_with_a_pipe_in_place_of_the_file(self, machine, tmp_path):
        """Whoever opened it would wait for ever."""
        os.mkfifo(tmp_path / ".clock")
        assert machine.clock(tmp_path / ".clock")() == machine.wall()

    def test_where_nothing_can_be_written(self, machine, tmp_path):
        assert machine.clock(tmp_path / "missing" / ".clock")() == machine.wall()


class TestStoreWithAClock:
    """Several shufflers on one database: the earlier of both clocks counts."""

    def test_this_one_is_ahead(self, machine, logged):
        machine.error = 2 * HOUR
        clock = machine.clock()
        for _ in range(3):
            clock.compare(machine.true())
        assert clock() == machine.true()
        assert clock.offset == 2 * HOUR
        assert logged() == [("clock-disagrees", "ERROR")]
        clock.compare(machine.wall())
        assert clock() == machine.wall()
        assert logged()[1:] == [("clock-agrees-again", "INFO")]

    def test_the_database_is_ahead(self, machine, logged):
        clock = machine.clock()
        clock.compare(machine.true() + 2 * HOUR)
        assert clock() == machine.true()
        assert logged() == [("clock-disagrees", "ERROR")]

    def test_an_answer_that_took_long(self, machine, logged):
        clock = machine.clock()
        clock.compare(machine.true() - 20)
        assert clock() == machine.true()
        assert logged() == []


class TestRounds:
    """What rounds do about it. The machine's seconds stand still unless they are moved."""

    @pytest.fixture
    def real(self, machine):
        """The machine's time is that of the tasks."""
        start = time.time() - machine.seconds
        machine.wall = lambda: start + machine.seconds + machine.error
        return machine

    def test_two_hours_ahead_for_a_while(self, place, serve, until, real, caplog):
        """The round has too few reports: it would be destroyed for good."""
        caplog.set_level(logging.INFO, "shuffledp.collection")
        small, large = place.task(users=5), place.task(users=2)
        here = serve(clock=real.clock(), grace_seconds=0.0)
        for form in (small, large):
            assert {here.post(form, place.report(form)).status_code for _ in range(3)} == {201}
        real.error = 2 * HOUR
        until(lambda: [each for each in caplog.records if each.msg == "clock-jumped" and each.levelname == "ERROR"])
        assert "clock_offset_seconds 0.0" not in here.get("/metrics").text
        rounds = here.shuffler.scheduler._workers
        assert len(rounds) == 2
        for form in (small, large):
            assert here.post(form, place.report(form)).status_code == 201
        real.error = 0
        until(lambda: "clock_offset_seconds 0.0" in here.get("/metrics").text)
        for form in (small, large):
            assert here.post(form, place.report(form)).status_code == 201
            assert here.shuffler.store.state(form.task_id) is RoundState.COLLECTING
        real.seconds += HOUR + 1
        until(lambda: here.shuffler.store.state(small.task_id) is RoundState.DELIVERED)
        until(lambda: here.shuffler.store.state(large.task_id) is RoundState.DELIVERED)

    def test_a_round_that_is_not_open_yet_stays_so(self, place, serve, real):
        form = place.task(users=5, opens=HOUR, closes=10 * HOUR)
        here = serve(clock=real.clock())
        real.error = 2 * HOUR
        assert here.post(form, place.report(form)).status_code == 403

    def test_too_few_reports_are_an_alarm_then_a_grace_period_then_destroyed(self, place, serve, until, real, caplog):
        caplog.set_level(logging.INFO, "shuffledp.collection")
        form = place.task(users=5)
        here = serve(clock=real.clock(), grace_seconds=600.0)
        assert {here.post(form, place.report(form)).status_code for _ in range(3)} == {201}

        def errors():
            return [each.msg for each in caplog.records if each.levelname == "ERROR"]

        real.seconds += HOUR + 1
        until(lambda: errors() == ["round-below-minimum"])
        assert "shuffledp_shuffler_rounds_below_minimum 1.0" in here.get("/metrics").text
        assert here.post(form, place.report(form)).status_code == 410
        assert here.shuffler.store.state(form.task_id) is RoundState.COLLECTING
        real.seconds += 600
        until(lambda: here.shuffler.store.state(form.task_id) is RoundState.DESTROYED)
        until(lambda: "shuffledp_shuffler_destroyed_rounds_total 1.0" in here.get("/metrics").text)
        until(lambda: "shuffledp_shuffler_rounds_below_minimum 0.0" in here.get("/metrics").text)
        assert errors() == ["round-below-minimum", "destroyed"]

    def test_a_clock_that_is_set_right_in_the_grace_period(self, place, serve, until, real):
        """The machine was started with a wrong clock, which nothing could tell."""
        form = place.task(users=5)
        real.error = 2 * HOUR
        clock = real.clock()
        here = serve(clock=clock)
        until(lambda: "rounds_below_minimum 1.0" in here.get("/metrics").text)
        real.error = 0
        run(real, clock, 910)
        until(lambda: "rounds_below_minimum 0.0" in here.get("/metrics").text)
        assert {here.post(form, place.report(form)).status_code for _ in range(5)} == {201}

    def test_the_clock_of_the_store_is_asked(self, place, serve, until, real, monkeypatch):
        """As that of PostgreSQL, whose snapshot tells the time."""
        form = place.task(users=2)
        real.error = 2 * HOUR
        shuffler_clock = real.clock()
        snapshot = lambda store: StoreSnapshot(  # noqa: E731
            {task: RoundRecord(state, store.count(task)) for task, state in store.rounds().items()},
            real.wall() - real.error,
        )
        monkeypatch.setattr("shuffledp.collection.shuffler.store.sqlite.SqliteStore.snapshot", snapshot)
        here = serve(clock=shuffler_clock, grace_seconds=60.0)
        until(lambda: here.post(form, place.report(form)).status_code == 201)
        assert {here.post(form, place.report(form)).status_code for _ in range(5)} == {201}
        assert here.shuffler.store.state(form.task_id) is RoundState.COLLECTING
