"""One damaged round harms no other, and an operator can close, cancel and abandon rounds."""

import logging
import os
import sqlite3
from contextlib import closing

import pytest

from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, RoundState, StoreError
from shuffledp.collection.shuffler.store.sqlite import SqliteStore


@pytest.fixture
def logged(caplog):
    """The fields of the events of one name so far."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    return lambda name: [each.fields for each in caplog.records if each.msg == name]


def fill(place, form, count: int) -> list[bytes]:
    reports = [place.report(form) for _ in range(count)]
    store = SqliteStore(place.folder / "store")
    store.open_round(form.task_id, maximum=10**6, tokens=False)
    store.accept([Incoming(form.task_id, form.report_id(each), each) for each in reports])
    store.close()
    return reports


def file_of(place, form):
    return place.folder / "store" / f"round-{form.task_id.hex()}.db"


def status(here, form):
    (found,) = [each for each in here.shuffler.operator.rounds() if each.task == form.task_id.hex()]
    return found


def empty(file):
    file.write_bytes(b"")


def delete(file):
    file.unlink()


def overwrite(file):
    file.write_bytes(b"junk" * 4096)


def cut(file):
    os.truncate(file, file.stat().st_size // 2 // 4096 * 4096)


def forget(file):
    """A database in perfect order, of the right layout, in which the reports are missing."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM reports")
        connection.commit()


def replace(file):
    other = SqliteStore(file.parent / "other")
    other.open_round(bytes(32), maximum=1, tokens=False)
    other.close()
    (file.parent / "other" / f"round-{bytes(32).hex()}.db").replace(file)


@pytest.mark.parametrize("harm", [empty, delete, overwrite, cut, forget, replace])
@pytest.mark.parametrize("closed", [False, True], ids=["collecting", "closed"])
def test_a_damaged_round_harms_no_other(place, serve, until, logged, harm, closed):
    bad, good = place.task(users=3, name="bad"), place.task(users=3, maximum=10, name="good")
    fill(place, bad, 200)
    if closed:
        store = SqliteStore(place.folder / "store")
        store.close_round(bad.task_id)
        store.close()
    harm(file_of(place, bad))
    content = file_of(place, bad).read_bytes() if file_of(place, bad).exists() else None
    here = serve()
    reports = [place.report(good) for _ in range(10)]
    assert {here.post(good, each).status_code for each in reports} == {201}
    until(lambda: here.shuffler.store.state(good.task_id) is RoundState.DELIVERED)
    assert here.post(bad, place.report(bad)).status_code == (410 if closed else 503)
    (told,) = until(lambda: logged("round-damaged"))
    for words in (told["reason"], until(lambda: status(here, bad).error)):
        assert str(file_of(place, bad)) in words
        assert bad.task_id.hex() in words
    assert "shuffledp_shuffler_damaged_rounds 1.0" in here.get("/metrics").text
    assert here.get("/readyz").status_code == 200
    assert status(here, bad).reports == 200
    assert bad.task_id.hex() not in place.analyzer.manifests
    if harm in (empty, delete):
        assert (file_of(place, bad).read_bytes() if file_of(place, bad).exists() else None) == content
    here.shuffler.operator.abandon(bad.task_id.hex())
    until(lambda: "shuffledp_shuffler_damaged_rounds 0.0" in here.get("/metrics").text)
    assert not file_of(place, bad).exists()
    assert here.post(bad, place.report(bad)).status_code == 410


def test_it_is_known_again_after_a_restart(place, serve):
    form = place.task(users=3)
    fill(place, form, 5)
    empty(file_of(place, form))
    here = serve()
    here.shuffler.operator.abandon(form.task_id.hex())
    here.close()
    here.close = lambda: None
    again = serve()
    assert status(again, form).state == "abandoned"
    assert status(again, form).reports == 5
    assert status(again, form).error is None


def test_enrolment_does_not_stop_the_start_for_a_damaged_round(place, serve):
    form = place.task(users=3)
    (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text("ab" * 32 + "\n")
    here = serve(enrolment=place.folder / "enrolment")
    here.close()
    here.close = lambda: None
    empty(file_of(place, form))
    again = serve(enrolment=place.folder / "enrolment")
    assert status(again, form).error is not None


def of_log(harm):
    return lambda file: harm(file.with_name(file.name + "-wal"))


@pytest.mark.parametrize("harm", [delete, replace, empty, of_log(delete), of_log(empty), of_log(cut)])
def test_a_file_that_is_deleted_in_use_is_noticed_at_the_next_report(place, serve, until, logged, harm):
    """A report that went to a deleted file is not acknowledged."""
    bad, good = place.task(users=3), place.task(users=3)
    here = serve(tick=3600)  # no snapshot helps
    assert here.post(bad, place.report(bad)).status_code == 201
    harm(file_of(place, bad))
    assert here.post(bad, place.report(bad)).status_code == 503
    assert here.post(good, place.report(good)).status_code == 201
    assert str(file_of(place, bad)) in status(here, bad).error


def test_what_lies_in_the_place_of_a_new_round_harms_no_other(place, serve, until, logged):
    bad, good = place.task(users=3, name="bad"), place.task(users=3, name="good")
    fill(place, good, 1)
    overwrite(file_of(place, bad))
    here = serve()
    assert here.post(good, place.report(good)).status_code == 201
    assert here.post(bad, place.report(bad)).status_code == 404
    (told,) = logged("task-refused")
    assert str(file_of(place, bad)) in told["reason"]
    file_of(place, bad).unlink()
    until(lambda: here.post(bad, place.report(bad)).status_code == 201)


def test_a_round_that_cannot_be_deleted_harms_no_other(place, serve):
    bad, good = place.task(users=3, name="bad"), place.task(users=3, name="good")
    fill(place, bad, 5)
    delete(file_of(place, bad))
    (file_of(place, bad) / "directory").mkdir(parents=True)
    here = serve()
    with pytest.raises(StoreError, match="Is a directory"):
        here.shuffler.operator.abandon(bad.task_id.hex())
    with pytest.raises(StoreError, match="Is a directory"):  # it is not said to be done
        here.shuffler.operator.abandon(bad.task_id.hex())
    here.close()
    here.close = lambda: None
    again = serve()
    assert again.post(good, place.report(good)).status_code == 201
    record = again.shuffler.store.snapshot().rounds[bad.task_id]
    assert record.state is RoundState.ABANDONED
    assert str(file_of(place, bad)) in record.error
    (file_of(place, bad) / "directory").rmdir()
    file_of(place, bad).rmdir()
    again.shuffler.operator.abandon(bad.task_id.hex())
    assert again.shuffler.store.snapshot().rounds[bad.task_id].error is None


def test_a_long_round_is_not_taken_for_truncated(place):
    """The log is written to the database, and begun anew, many times."""
    store = SqliteStore(place.folder / "store")
    task_id = bytes(32)
    store.open_round(task_id, maximum=10**6, tokens=False)
    store._round(task_id).connection.execute("PRAGMA wal_autocheckpoint = 10")
    for number in range(300):
        (outcome,) = store.accept([Incoming(task_id, number.to_bytes(16, "big"), os.urandom(3000))])
        assert outcome is ReportOutcome.NEW
    assert store.snapshot().rounds[task_id].error is None
    assert store.close_round(task_id) == 300
    store.close()


def test_a_file_that_is_deleted_in_use_is_noticed_without_a_report(place, serve, until, logged):
    form = place.task(users=3)
    here = serve()
    assert here.post(form, place.report(form)).status_code == 201
    file_of(place, form).unlink()
    (told,) = until(lambda: logged("round-damaged"))
    assert str(file_of(place, form)) in told["reason"]
    with pytest.raises(StoreError, match="deleted"):
        here.shuffler.store.close_round(form.task_id)


class TestOperator:
    def test_the_overview(self, place, serve):
        form = place.task(users=3, maximum=50, name="commuting")
        here = serve()
        assert here.post(form, place.report(form)).status_code == 201
        told = status(here, form)
        task = told.served.task
        assert (task.name, told.state, told.reports) == ("commuting", "collecting", 1)
        assert (task.minimum_users, task.maximum_users, task.sealed_size) == (3, 50, form.sealed_size)
        assert (told.failures, told.error) == (0, None)

    def test_closing_early(self, place, serve, until):
        form = place.task(users=3)
        here = serve()
        reports = [place.report(form) for _ in range(3)]
        name = form.task_id.hex()
        assert here.post(form, reports[0]).status_code == 201
        with pytest.raises(StoreError, match=r"has 1 reports; the guarantee requires 3\. Wait for 2 more"):
            here.shuffler.operator.close(name)
        assert {here.post(form, each).status_code for each in reports[1:]} == {201}
        assert here.shuffler.operator.close(name) == 3
        until(lambda: here.shuffler.store.state(form.task_id) is RoundState.DELIVERED)
        assert sorted(place.analyzer.messages(name)) == sorted(place.messages_of(form, reports))
        with pytest.raises(StoreError, match="is delivered"):
            here.shuffler.operator.close(name)

    def test_cancelling(self, place, serve, until, logged):
        form = place.task(users=3)
        here = serve()
        assert {here.post(form, place.report(form)).status_code for _ in range(5)} == {201}
        name = form.task_id.hex()
        with pytest.raises(StoreError, match="and does not fail; cancel it instead"):
            here.shuffler.operator.abandon(name)
        here.shuffler.operator.cancel(name)
        here.shuffler.operator.cancel(name)
        assert here.post(form, place.report(form)).status_code == 410
        assert status(here, form).state == "cancelled"
        assert place.files() == set()
        assert logged("cancelled")[0]["task"] == name
        for step in (here.shuffler.operator.close, here.shuffler.operator.abandon):
            with pytest.raises(StoreError, match="cancelled"):
                step(name)
        assert name not in place.analyzer.manifests

    def test_abandoning_a_batch_that_is_refused_ends_the_alarm(self, place, serve, until):
        form = place.task(users=3, opens=-7200, closes=-1)
        fill(place, form, 10)
        place.analyzer.refuse = {"PUT": 410}
        here = serve()
        until(lambda: "refused_batches 1.0" in here.get("/metrics").text)
        name = form.task_id.hex()
        with pytest.raises(StoreError, match="can be abandoned"):
            here.shuffler.operator.cancel(name)
        here.shuffler.operator.abandon(name)
        until(lambda: "refused_batches 0.0" in here.get("/metrics").text)
        assert place.files() == set()
        assert status(here, form).state == "abandoned"
        assert status(here, form).error is None

    def test_a_round_without_a_task_can_be_cancelled(self, place, serve):
        form = place.task(users=3, file="gone.json")
        fill(place, form, 10)
        (place.folder / "tasks" / "gone.json").unlink()
        here = serve()
        told = status(here, form)
        assert told.served is None
        assert "missing or refused" in told.error
        here.shuffler.operator.cancel(told.task)
        assert place.files() == set()

    @pytest.mark.parametrize("task", ["", "ab" * 32, "no hexadecimal", "ab"])
    def test_what_is_no_round(self, place, serve, task):
        operator = serve().shuffler.operator
        for step in (operator.close, operator.cancel, operator.abandon):
            with pytest.raises(StoreError, match="There is no round"):
                step(task)
