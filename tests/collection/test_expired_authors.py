"""Tasks and series that begin after the expiry of their author's key, as it is pinned, are refused by everybody."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shuffledp.collection.device.client import Client
from shuffledp.collection.device.series import SeriesClient
from shuffledp.collection.task import authentic, series, task
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.task.series import authentic_series
from shuffledp.errors import ParameterError

SECOND = timedelta(seconds=1)


def refused(function, *arguments, **settings) -> bool:
    try:
        function(*arguments, **settings)
    except ParameterError as error:
        return error.values["reason"] == "expired" and "\n" not in str(error)
    return False


@pytest.fixture
def readers(parties, make_series, tmp_path):
    """Whether each reader refuses a document for a pin that expires so long after the last moment that it needs."""
    opened = parties.task()
    signed_task = opened.signed(parties.author)
    weekly, _, _ = make_series(users=1000)
    signed_series, last = weekly.signed(parties.author), weekly.task(len(weekly.keys) - 1).opens

    def run(seconds: int) -> set[bool]:
        for_task, for_series = (
            replace(parties.author.public, expires=moment + seconds * SECOND) for moment in (opened.opens, last)
        )
        return {
            refused(authentic_task, signed_task.to_bytes(), for_task),
            refused(signed_task.verify, for_task),
            refused(Client, signed_task.to_bytes(), author=for_task, state=tmp_path / "device"),
            refused(authentic_series, signed_series, for_series),
            refused(SeriesClient, signed_series, author=for_series, state=tmp_path / "device"),
        }

    return run


@pytest.mark.parametrize(("seconds", "outcome"), [(-1, True), (0, True), (1, False), (10**7, False)])
def test_what_begins_after_the_expiry_is_refused(readers, seconds, outcome):
    assert readers(seconds) == {outcome}


@pytest.mark.parametrize("module", [authentic, series, task])
def test_a_reader_that_ignores_the_expiry_is_seen(readers, monkeypatch, module):
    monkeypatch.setattr(module, "check_author", lambda *_: None)
    assert False in readers(0)
