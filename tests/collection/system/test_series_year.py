"""A year of a series: kills, a cancelled round, a rotated key, a device over its budget; all totals agree."""

import json
import random
import time
from datetime import timedelta

import pytest

from shuffledp.collection.analyzer.ledger import reservations_in, spent_in
from shuffledp.collection.device.spending import Spending, usage
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.errors import PolicyError

WAIT_SECONDS = 120.0


def until(condition, what):
    end = time.monotonic() + WAIT_SECONDS
    while not (result := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return result


def play(year, *, kills: dict[int, str], cancelled_from: int) -> list[int]:
    """All rounds up to the cancellation; the number of reports of each device."""
    series, devices = year.series, len(year.names)
    reports, drawn = [0] * devices, [year.device(each).participation.rounds for each in range(devices)]
    year.publish("series", year.signed)
    for role in ("analyzer", "shuffler"):
        year.start(role)
    path = f"/v2/series/{series.id.hex()}"
    for index in range(cancelled_from):
        task = series.task(index)
        moment = task.opens + timedelta(seconds=0.9 * series.open_seconds)
        year.at(moment)
        until(lambda at=index: year.reaches(0, path, lambda s, c: year.current_round(s, c) == at), f"round {index}")
        members = [each for each in range(devices) if index in drawn[each]]
        for position, each in enumerate(members):
            if position == len(members) // 2 and index in kills:
                year.kill(kills[index])
                year.start(kills[index])
            device = year.device(each)  # it starts anew for every report
            assert device.participation.rounds == drawn[each]
            try:
                assert device.report(random.randrange(3), now=moment) == index
            except PolicyError as error:
                year.refusals.append(error.values["reason"])
                continue
            year.send(device, index)
            reports[each] += 1
        year.at(task.closes + timedelta(seconds=1))
        released = f"/v1/releases/{task.id.hex()}"
        expected = len(members) >= task.minimum_users
        if expected:
            until(lambda where=released: year.reaches(1, where, lambda s, _: s == 200), f"release {index}")
            document = json.loads(year.get(1, released)[1])
            assert document["series"] == {"id": series.id.hex(), "round": index}
    return reports


def check_cancellation(year, cancelled_from: int, moment) -> None:
    """The successor of the author's key cancels the rest: nobody serves or accepts the rounds from then on."""
    year.publish("a-rotation", sign_rotation(year.author, year.successor))
    year.publish("cancel", year.cancel(cancelled_from, year.successor))
    path = f"/v2/series/{year.series.id.hex()}"
    until(
        lambda: year.reaches(0, path, lambda s, c: s == 200 and json.loads(c)["cancellation"] is not None), "cancelled"
    )
    year.at(moment)
    task = year.series.task(cancelled_from)
    assert year.get(0, f"/v2/tasks/{task.id.hex()}")[0] == 404
    keys = year.folder / "shuffler-keys"
    until(lambda: not list(keys.glob("*.key")), "the keys of cancelled rounds")


def check_totals(year, reports: list[int], counted_rounds: int) -> None:
    """The ledger has the reservation alone; every device has its own reports alone."""
    delta, composed_epsilon = year.population_delta, year.composed_epsilon
    exact = composed_epsilon(1.0, counted_rounds, delta)
    _, spent = spent_in(year.folder / "analyzer" / "ledger.db", "people", delta)
    assert exact * (1 - 1e-9) <= spent <= exact * 1.001 + 1e-6
    for index, count in enumerate(reports):
        device = year.device(index)
        assert count <= len(device.participation.rounds) == year.series.rounds_per_device
        spending = Spending(year.names[index], device.client(device.participation.rounds[0])._spending.budget)
        used = usage(spending.read(), spending.budget, now=device.series.first.opens)
        exact = composed_epsilon(1.0, count, spending.budget.delta)
        assert used.releases == count
        assert exact * (1 - 1e-9) <= used.epsilon <= 1.02 * exact + 1e-6


def play_and_check(series_year, folder, *, rounds, per_device, devices, users, kills, cancelled_from) -> None:
    year = series_year.Year(folder, rounds=rounds, per_device=per_device, devices=devices, users=users)
    try:
        reports = play(year, kills=kills, cancelled_from=cancelled_from)
        (reservation,) = reservations_in(folder / "analyzer" / "ledger.db")
        assert (reservation.counted_rounds, reservation.cancelled_from) == (per_device, None)
        check_cancellation(year, cancelled_from, year.series.task(cancelled_from).opens + timedelta(days=1))
        until(
            lambda: reservations_in(folder / "analyzer" / "ledger.db")[0].cancelled_from == cancelled_from,
            "the ledger's cancellation",
        )
        counted = min(per_device, cancelled_from)
        check_totals(year, reports, counted)
        for role in ("analyzer", "shuffler"):  # a restart with the documents lost from the directory
            year.kill(role)
        for file in (folder / "tasks").iterdir():
            file.unlink()
        for role in ("analyzer", "shuffler"):
            year.start(role)
        path = f"/v2/series/{year.series.id.hex()}"
        until(lambda: year.reaches(0, path, lambda s, c: s == 200 and json.loads(c)["cancellation"]), "restarted")
        assert year.get(0, f"/v2/tasks/{year.series.task(cancelled_from).id.hex()}")[0] == 404
        check_totals(year, reports, counted)
        assert reports[0] <= 1
        assert set(year.refusals) <= {"budget"}
        assert len(year.refusals) == sum(r < cancelled_from for r in year.device(0).participation.rounds) - reports[0]
    finally:
        year.stop()


def test_some_rounds(series_year, tmp_path):
    """The short form: four rounds of which one is cancelled, two kills."""
    play_and_check(
        series_year,
        tmp_path,
        rounds=4,
        per_device=2,
        devices=12,
        users=2,
        kills={0: "shuffler", 1: "analyzer"},
        cancelled_from=3,
    )


@pytest.mark.slow
def test_a_year(series_year, tmp_path):
    """52 rounds, 500 devices of which each takes part in 4, eight kills, the last four rounds cancelled."""
    kills = {index: ("shuffler", "analyzer")[index % 2] for index in (3, 8, 14, 21, 27, 33, 40, 45)}
    play_and_check(
        series_year, tmp_path, rounds=52, per_device=4, devices=500, users=15, kills=kills, cancelled_from=48
    )
