"""Failures of tasks and executors: exactly one report of every user, or a failed job; never two draws of one report."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import shuffledp as sdp

FAULTS = Path(__file__).parent / "faults.py"


def run(scenario: str, directory: Path, **settings) -> dict:
    """A scenario in a process and with a Spark of its own, and what it found."""
    command = [sys.executable, str(FAULTS), scenario, str(directory), json.dumps(settings)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1700)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    assert lines, finished.stderr[-3000:]
    return json.loads(lines[-1])


@pytest.fixture(scope="module")
def protocol():
    return sdp.find("histogram", "uniform-blanket").calibrate(
        users=100, epsilon=2.0, delta=1e-3, categories=["a", "b", "c"]
    )


def flaky(protocol, marks: Path, attempts: int):
    """A protocol that fails after randomizing, at most so many times in all partitions together."""
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Flaky(type(protocol)):
        def randomize_all(self, values, **options):
            messages = super().randomize_all(values, **options)
            for number in range(attempts):
                try:
                    os.close(os.open(marks / str(number), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                raise RuntimeError("planted failure after randomizing")
            return messages

    return Flaky(**{field.name: getattr(protocol, field.name) for field in dataclasses.fields(protocol) if field.init})


@pytest.mark.parametrize("adaptive", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_attempts_that_fail_after_randomizing_leave_one_report_per_user(spark, protocol, tmp_path, adaptive):
    """The planted fault: messages that a task writes itself, so that those of failed attempts stay."""
    frame = spark.createDataFrame([(each,) for each in "abc" * 200], "value string").repartition(3)
    (tmp_path / "marks").mkdir()
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        written = sdp.spark.randomize(frame, "value", flaky(protocol, tmp_path / "marks", 2), out=tmp_path / "messages")
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(list((tmp_path / "marks").iterdir())) == 2
    table = pq.read_table(tmp_path / "messages")
    assert written.users == sum(table.column("users").to_pylist()) == 600
    assert len(set(table.column("run").to_pylist())) == 1

    side, marks = tmp_path / "side", tmp_path / "more-marks"
    side.mkdir()
    marks.mkdir()
    failing = flaky(protocol, marks, 2)

    def written_by_the_task(batches):
        import secrets

        for batch in batches:
            values = np.zeros(batch.num_rows, dtype=np.int64)
            (side / secrets.token_hex(8)).write_text(str(len(values)))
            failing.randomize_all(values)
            yield batch

    frame.mapInArrow(written_by_the_task, "value string").count()
    assert sum(int(file.read_text()) for file in side.iterdir()) > 600


@pytest.mark.slow
@pytest.mark.parametrize("route", ["mixed", "partial"])
def test_speculative_copies_leave_one_report_per_user(tmp_path, route):
    """A slow attempt gets a copy; both randomize. The planted fault: files that every attempt writes itself."""
    found = run("speculation", tmp_path, route=route)
    assert found["attempts"] > found["partitions"]
    assert found["users"] == found["committed_users"] == found["expected"]
    assert found["runs"] == 1
    assert found["written_by_tasks"] > found["expected"]


def test_an_executor_that_is_killed_while_records_are_mixed(tmp_path):
    """FetchFailed: some tasks run again after others have read their output; every record arrives exactly once."""
    found = run("killed", tmp_path, fault=False)
    assert found["killed"] == 1
    if found["failed"]:
        assert not found["committed"]
    else:
        assert (found["lost"], found["twice"]) == (0, 0)


@pytest.mark.slow
def test_the_lazy_variant_loses_and_doubles_records(tmp_path):
    """The planted fault of the test above: labels that are drawn afresh whenever a task runs."""
    found = run("killed", tmp_path, fault=True)
    assert found["killed"] == 1
    assert found["failed"] or found["lost"] + found["twice"] > 0


@pytest.mark.slow
def test_an_executor_that_is_killed_after_its_tasks_have_randomized(tmp_path):
    """Route partial: the driver gets one tally per partition. The planted fault: what every attempt writes itself."""
    found = run("killed_partial", tmp_path)
    assert found["killed"] == 1
    assert found["users"] == found["expected"]
    assert found["written_by_tasks"] > found["expected"]


@pytest.mark.slow
def test_an_executor_that_is_killed_while_rows_are_chosen(tmp_path):
    """Blocks of rows are made again, from rows in another order, after other tasks have read them: the same choice."""
    found = run("killed_choice", tmp_path, fault=False)
    assert found["killed"] == 1
    assert found["failed"] or found["counts"] == found["expected"]


@pytest.mark.slow
def test_users_who_are_divided_afresh_count_twice(tmp_path):
    """The planted fault of the test above: tasks that send the rows of a user elsewhere when they run again."""
    found = run("killed_choice", tmp_path, fault=True)
    assert found["killed"] == 1
    assert found["failed"] or found["counts"] != found["expected"]


@pytest.mark.slow
def test_an_executor_that_is_killed_while_users_are_counted(tmp_path):
    """Rows are chosen again, from rows in another order, after other tasks have counted: the same ones are chosen."""
    found = run("killed_users", tmp_path, fault=False)
    assert found["killed"] == 1
    assert found["failed"] or found["counts"] == found["expected"]


@pytest.mark.slow
def test_choices_that_are_drawn_again_count_users_twice(tmp_path):
    """The planted fault of the test above: a random number per row instead of a hash."""
    found = run("killed_users", tmp_path, fault=True)
    assert found["killed"] == 1
    assert found["failed"] or found["counts"] != found["expected"]


@pytest.mark.slow
def test_lost_executors_are_one_line(tmp_path):
    error = run("lost", tmp_path)["error"]
    assert error.startswith("Spark lost executors (")
    assert "Nothing was released. Give executors more memory" in error
    assert "\n" not in error
