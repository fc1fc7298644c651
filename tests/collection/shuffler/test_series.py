"""A shuffler and a series: rounds by the clock, missed ones stay missed, cancelled ones end, nothing is forgotten."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shuffledp.collection.server.operator import ask_server
from shuffledp.collection.server.operator_page import view_of
from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.shuffler.tasks import ShufflerTasks
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.collection.task.series import Cancellation, RoundKeys, Series
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.errors import RefusedError
from shuffledp.pages.rendering import render_page

HOUR = 3600.0


@pytest.fixture
def keys(place):
    directory = place.folder / "round-keys"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def clock():
    """A clock that is ahead by a number of seconds."""

    class Ahead:
        seconds = 0.0

        def __call__(self):
            return time.time() + self.seconds

    return Ahead()


@pytest.fixture
def series(place, keys, make_series):
    made, _, hops = make_series(rounds=4, users=3, period=4 * 3600, open_seconds=2 * 3600, shuffler=place.key)
    for hop in hops:
        hop.save(keys / f"{hop.public.id}.key")
    publish(place, "series", made.signed(place.author))
    return made


def publish(place, name, content):
    (place.folder / "tasks" / f"{name}.new").write_bytes(content)
    (place.folder / "tasks" / f"{name}.new").rename(place.folder / "tasks" / f"{name}.json")


def form(series, index):
    return ReportFormat.of(series.task(index))


def report(place, series, index):
    return place.report(form(series, index))


def told(here, series):
    return json.loads(here.get(f"/v2/series/{series.id.hex()}").content)


def test_rounds_come_by_the_clock(place, serve, keys, series, clock, until):
    here = serve(round_keys=keys, clock=clock, grace_seconds=0.0)
    assert told(here, series)["round"] == 0
    assert told(here, series)["task"] == series.task(0).id.hex()
    assert here.post(form(series, 1), report(place, series, 1)).status_code == 404
    first = [report(place, series, 0) for _ in range(4)]
    assert {here.post(form(series, 0), each).status_code for each in first} == {201}
    clock.seconds = 3.5 * HOUR  # half an hour before the second round
    until(lambda: here.post(form(series, 1), report(place, series, 1)).status_code == 403)
    until(lambda: here.shuffler.store.state(series.task(0).id) is RoundState.DELIVERED)
    clock.seconds = 4.5 * HOUR
    until(lambda: told(here, series)["round"] == 1)
    assert here.post(form(series, 1), report(place, series, 1)).status_code == 201
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 410
    clock.seconds = 13 * HOUR  # the third round was missed: nobody was here
    until(lambda: told(here, series)["round"] == 3)
    assert series.task(2).id not in here.shuffler.store.rounds()
    until(lambda: here.shuffler.store.state(series.task(1).id) is RoundState.DESTROYED)
    clock.seconds = 99 * HOUR
    until(lambda: told(here, series)["round"] is None)


def test_a_derived_task_has_no_document_of_its_own(place, serve, keys, series):
    here = serve(round_keys=keys)
    answer = here.get(f"/v2/tasks/{series.task(0).id.hex()}")
    assert answer.status_code == 404
    assert f"GET /v2/series/{series.id.hex()}" in answer.content.decode()
    assert here.get("/v2/series/none").status_code == 404


def test_after_a_restart_open_rounds_go_on(place, serve, keys, series, clock, until):
    """Also one whose time was over meanwhile; and the file of the series may be gone."""
    here = serve(round_keys=keys, clock=clock, grace_seconds=0.0)
    assert {here.post(form(series, 0), report(place, series, 0)).status_code for _ in range(4)} == {201}
    here.close()
    (place.folder / "tasks" / "series.json").unlink()
    clock.seconds = 5 * HOUR
    here = serve(round_keys=keys, clock=clock, grace_seconds=0.0)
    until(lambda: here.shuffler.store.state(series.task(0).id) is RoundState.DELIVERED)
    assert told(here, series)["round"] == 1


def test_a_cancellation_ends_the_open_round(place, serve, keys, series, until):
    here = serve(round_keys=keys)
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 201
    publish(place, "cancel", Cancellation(series.id, 0, "why").signed(place.author))
    until(lambda: here.shuffler.store.state(series.task(0).id) is RoundState.CANCELLED)
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 410
    until(lambda: not list(keys.glob("*.key")))
    assert told(here, series)["round"] is None
    assert told(here, series)["cancellation"]["cancel"]["from_round"] == 0
    here.close()
    for file in (place.folder / "tasks").iterdir():
        file.unlink()
    again = serve(round_keys=keys)  # the copy in the work directory counts
    assert told(again, series)["cancellation"] is not None
    assert again.post(form(series, 1), report(place, series, 1)).status_code == 404


def test_a_key_of_a_cancelled_round_that_cannot_be_destroyed_is_tried_again(
    place, serve, keys, series, until, monkeypatch
):
    """Without a restart; the keys of other rounds and the rounds themselves do not wait for it."""
    here = serve(round_keys=keys)
    stuck = series.keys[1].shufflers[0]
    destroy, attempts = RoundKeyDirectory.destroy, []

    def fail(self, public):
        attempts.append(public)
        if public == stuck:
            raise OSError("the disk is broken")
        destroy(self, public)

    monkeypatch.setattr(RoundKeyDirectory, "destroy", fail)
    publish(place, "cancel", Cancellation(series.id, 1, "why").signed(place.author))
    kept = {f"{series.keys[0].shufflers[0].id}.key", f"{stuck.id}.key"}
    until(lambda: {file.name for file in keys.glob("*.key")} == kept)
    until(lambda: attempts.count(stuck) > 2)
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 201
    until(lambda: here.shuffler.scheduler._failed_snapshots == 0)
    monkeypatch.setattr(RoundKeyDirectory, "destroy", destroy)
    until(lambda: len(list(keys.glob("*.key"))) == 1)


def test_a_lost_cancellation_is_seen(place, serve, keys, series, clock, monkeypatch, until):
    """The planted fault keeps no copies: after a restart without the file, the next round opens."""
    monkeypatch.setattr(ShufflerTasks, "_keep", lambda self, content: None)
    here = serve(round_keys=keys, clock=clock)
    publish(place, "cancel", Cancellation(series.id, 1, "why").signed(place.author))
    until(lambda: told(here, series)["cancellation"])
    here.close()
    (place.folder / "tasks" / "cancel.json").unlink()
    clock.seconds = 4.5 * HOUR
    again = serve(round_keys=keys, clock=clock)
    assert told(again, series)["cancellation"] is None


def test_the_smallest_round_wins(place, serve, keys, series, until):
    here = serve(round_keys=keys)
    for from_round in (3, 1, 2):
        content = Cancellation(series.id, from_round, "why").signed(place.author)
        ask_server(place.folder / "work", "POST", f"/operator/v1/series/{series.id.hex()}/cancel", content)
    assert told(here, series)["cancellation"]["cancel"]["from_round"] == 1


def test_the_operator_puts_documents(place, serve, keys, series, make_series, until):
    """Tasks, series, cancellations and rotations; each is refused with one line if it is not valid."""
    (place.folder / "tasks" / "series.json").unlink()
    here = serve(round_keys=keys)
    work = place.folder / "work"
    done = ask_server(work, "PUT", "/operator/v1/tasks", series.signed(place.author))
    assert done["kind"] == "series"
    listed = ask_server(work, "GET", "/operator/v1/tasks")
    assert [each["series"] for each in listed["series"]] == [series.id.hex()]
    until(lambda: here.post(form(series, 0), report(place, series, 0)).status_code == 201)
    stranger = SigningKey.create()
    for content, words in (
        (series.signed(stranger), "trusted"),
        (Cancellation(series.id, 0, "why").signed(stranger), "trusted"),
        (sign_rotation(stranger, place.author), "trusted"),
        (make_series()[0].signed(place.author), "is for the shuffler's key"),
        (b"{}", "must have the keys|is not"),
        (b"\x00" * 100, "."),
    ):
        with pytest.raises(RefusedError, match=words) as caught:
            ask_server(work, "PUT", "/operator/v1/tasks", content)
        assert "\n" not in str(caught.value)
    other = Cancellation(series.id, 1, "why").signed(place.author)
    with pytest.raises(RefusedError, match="not a cancellation of the series"):
        ask_server(work, "POST", f"/operator/v1/series/{'ab' * 32}/cancel", other)
    assert len(list((work / "documents").iterdir())) == 1
    new = SigningKey.create()
    ask_server(work, "PUT", "/operator/v1/tasks", sign_rotation(place.author, new))
    ask_server(work, "PUT", "/operator/v1/tasks", Cancellation(series.id, 2, "why").signed(new))
    assert told(here, series)["cancellation"]["cancel"]["from_round"] == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 40])
def test_a_damaged_copy_is_told_and_replaced(place, serve, keys, series, damage):
    """Else a cancellation would be forgotten, and the round would open again."""
    cancellation = Cancellation(series.id, 0, "why").signed(place.author)
    work = place.folder / "work"
    here = serve(round_keys=keys)
    ask_server(work, "PUT", "/operator/v1/tasks", cancellation)
    here.close()
    (copy,) = [path for path in (work / "documents").glob("*.json") if b"shuffledp-cancel" in path.read_bytes()]
    copy.write_bytes(damage)
    here = serve(round_keys=keys)
    alerts = [alert for alert in here.shuffler.operator.overview(True)["alerts"] if alert["level"] == "act"]
    assert any(copy.name in alert["message"] and "is damaged" in alert["message"] for alert in alerts)
    ask_server(work, "PUT", "/operator/v1/tasks", cancellation)
    here.close()
    assert copy.read_bytes() == cancellation + b"\n"
    here = serve(round_keys=keys)
    assert here.shuffler.tasks.all_refused == []
    assert told(here, series)["cancellation"] is not None


def test_what_cannot_be_read_is_told_beside_a_series(place, serve, keys, series):
    """A series has all files read twice at the start."""
    (place.folder / "tasks" / "a.json").symlink_to("nothing")
    (place.folder / "tasks" / "b.json").write_text("{")
    here = serve(round_keys=keys)
    assert [refused.path.name for refused in here.shuffler.tasks.all_refused] == ["a.json", "b.json"]


def test_missing_keys_are_an_alert_in_time(place, serve, keys, series, until):
    here = serve(round_keys=keys)
    for index in (1, 3):
        (keys / f"{series.keys[index].shufflers[0].id}.key").unlink()

    def alerts():
        return [alert for alert in here.shuffler.operator.overview(True)["alerts"] if alert["level"] == "act"]

    assert any("2 coming rounds of the series Weekly" in alert["message"] for alert in alerts())
    (shown,) = here.shuffler.operator.overview(True)["series"]
    assert (shown["round"], shown["task"], shown["missing_keys"]) == (0, series.task(0).id.hex(), 2)
    head = {"now": datetime.now(UTC).isoformat(), "role": "shuffler", "version": "", "ready": True}
    rendered = render_page("operator.html", **view_of(head | here.shuffler.operator.overview(True))).decode()
    assert "Round 0 is open now. 4 rounds, numbered from 0" in rendered
    assert "a device takes part in at most 2 rounds" in rendered
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `series\[\]\.(\w+)` \| all", page, re.MULTILINE)) == set(shown)


@pytest.mark.parametrize(("days", "unused"), [(0, 0), (5, 0), (30, 2)])
def test_keys_of_missed_rounds_are_an_alert(place, serve, keys, series, days, unused):
    """Nothing destroys them by itself: with a clock that is wrong by years, that would end the whole series."""
    serve(round_keys=keys).close()  # opens the first round, which is then over and destroyed
    (keys / f"{series.keys[1].shufflers[0].id}.key").unlink()
    left = [hop.id for index, keys_of in enumerate(series.keys) for hop in keys_of.shufflers if index != 1]
    here = serve(round_keys=keys, clock=lambda: time.time() + days * 86_400, grace_seconds=1e9)
    overview = here.shuffler.operator.overview(True)
    (shown,) = overview["series"]
    assert shown["unused_keys"] == unused  # those of rounds 2 and 3
    messages = [alert["message"] for alert in overview["alerts"] if alert["level"] == "watch"]
    assert any("2 rounds of the series Weekly" in message for message in messages) == bool(unused)
    assert all((keys / f"{key}.key").exists() for key in left)


def test_a_clock_that_jumps_does_not_skip_rounds(place, serve, keys, series, until):
    """The clock of rounds ignores a jump; with the system clock itself, the round would be over."""
    ahead = [0.0]
    here = serve(round_keys=keys, clock=RoundClock(wall=lambda: time.time() + ahead[0]))
    ahead[0] = 9 * HOUR
    assert series.round_at(datetime.now(UTC) + timedelta(hours=9)) == 2
    assert told(here, series)["round"] == 0
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 201
    ahead[0] = -9 * HOUR
    assert told(here, series)["round"] == 0
    assert here.post(form(series, 0), report(place, series, 0)).status_code == 201


def test_short_periods_skip_no_round(place, serve, keys, make_series, clock, until):
    """The lead before a round is at most a period."""
    made, _, hops = make_series(rounds=9, users=3, period=600, open_seconds=600, shuffler=place.key)
    for hop in hops:
        hop.save(keys / f"{hop.public.id}.key")
    publish(place, "series", made.signed(place.author))
    here = serve(round_keys=keys, clock=clock, grace_seconds=0.0)
    for index in range(4):
        clock.seconds = 600.0 * index + 30
        until(lambda at=index: told(here, made)["round"] == at)


def test_400_rounds_are_served_one_at_a_time(place, serve, keys, make_series):
    """Only the round that is open is in the store, and a look at all rounds takes no second."""
    made, _, hops = make_series(rounds=400, users=3, period=4 * 3600, shuffler=place.key)
    for hop in hops:
        hop.save(keys / f"{hop.public.id}.key")
    publish(place, "series", made.signed(place.author))
    here = serve(round_keys=keys)
    assert list(here.shuffler.store.rounds()) == [made.task(0).id]
    started = time.process_time()
    here.shuffler.tasks.refresh(lambda _: None)
    assert time.process_time() - started < 5


def test_nobody_else_can_use_the_keys_of_a_series(place, serve, keys, series):
    """Round keys are public: another task or series could have them destroyed with rounds of its own."""
    coming = series.task(3)
    single = replace(
        coming,
        name="Single",
        opens=series.first.opens,
        closes=series.first.closes,
        wire=replace(coming.wire, series=None),
    )
    publish(place, "single", single.signed(place.author).to_bytes())
    publish(place, "z-copied", replace(series, first=replace(series.first, name="Copied")).signed(place.author))
    here = serve(round_keys=keys)
    assert list(here.shuffler.store.rounds()) == [series.task(0).id]
    assert [accepted.series.id for accepted in here.shuffler.tasks.series] == [series.id]
    assert any("of another task or series" in str(refused) for refused in here.shuffler.tasks.refused)


def test_the_second_shuffler_of_a_chain(place, make_series):
    """It derives the same tasks, takes no reports, and expects the batch of the first, also days after the end."""
    first = SigningKey.create()
    single, _, _ = make_series(rounds=3, period=4 * 3600, shuffler=place.key)
    keys = tuple(
        RoundKeys(each.analyzer, (SealingKey.create().public, SealingKey.create().public)) for each in single.keys
    )
    hops = (ShufflerKeys(first.public, keys[0].shufflers[0]), ShufflerKeys(place.key.public, keys[0].shufflers[1]))
    made = Series(replace(single.first, wire=WireVersion2(hops)), 4 * 3600, keys, 2)
    publish(place, "series", made.signed(place.author))
    tasks = ShufflerTasks(place.folder / "tasks", [place.author.public], place.key.public)
    for hours, served in ((0, {0}), (5, {0, 1}), (5 * 24, {0, 1, 2}), (30 * 24, set())):
        tasks = ShufflerTasks(place.folder / "tasks", [place.author.public], place.key.public)
        tasks.clock = lambda ahead=hours: time.time() + 3600 * ahead
        tasks.load()
        expected = {index for index in range(3) if tasks.expected(made.task(index).id) is not None}
        assert expected == served
        assert all(tasks.get(made.task(index).id.hex()) is None for index in range(3))
        assert {tasks.round_key(made.task(index)) for index in range(3)} == {each.shufflers[1] for each in keys}
    other = ShufflerTasks(place.folder / "tasks", [place.author.public], SigningKey.create().public)
    other.load()
    assert "is for the shuffler's key" in str(other.refused[0])
