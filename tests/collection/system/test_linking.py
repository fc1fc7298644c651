"""Who sees the batch cannot tell which messages came together, nor in which order the reports came."""

import json

import numpy as np
import pytest

from shuffledp.testing.statistics import ALPHA, p_value

NEAR = 12  # places
NEVER_RELEASE = """
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
ReleaseScheduler._release_complete = lambda self: None  # so that the batch stays to be looked at
"""
AS_THEY_CAME = """
def as_they_came(blocks, size, out, **_):
    content = b"".join(blocks)
    out.write_bytes(content)
    return len(content) // size
shuffling.permute_file = as_they_came
"""
REPORTS_ONLY = """
import random
def reports_only(blocks, size, out, **_):
    content = b"".join(blocks)
    reports = [content[at : at + 4 * size] for at in range(0, len(content), 4 * size)]
    random.shuffle(reports)
    out.write_bytes(b"".join(reports))
    return len(content) // size
shuffling.permute_file = reports_only
"""


def delivered(here, until, fault: str) -> np.ndarray:
    """Where the analyzer finds the messages of the reports, a row for each, in the order in which they came."""
    analyzer, shuffler = here.start("analyzer", fault=NEVER_RELEASE), here.start("shuffler", fault=fault)
    try:
        here.send(range(here.users))
        assert len(here.acknowledged) == here.users
        until(lambda: here.look() == "opening" and not here.left_over(), what="delivery")
    finally:
        for each in (shuffler, analyzer):
            each.terminate()
            each.join(60)
    folder = here.directory / "analyzer" / "batches" / here.name
    chunks = len(json.loads((folder / "manifest").read_bytes())["batch"]["chunks"])
    assert chunks > 1
    content = b"".join((folder / f"{place}.chunk").read_bytes() for place in range(chunks))
    size = here.form.sealed_size
    places = {content[at : at + size]: at // size for at in range(0, len(content), size)}
    assert len(places) == here.users * here.form.messages
    return np.array([[places[message] for message in here.sealed[report]] for report in range(here.users)])


def linked(places: np.ndarray, ids: list[bytes]) -> float:
    """The least p-value of the ways to link messages, times their number."""
    reports, each = places.shape
    total = places.size
    distances = np.diff(places, axis=1).ravel() % total  # around the end, so that all are equally likely
    edges = np.array([1, NEAR + 1, *np.linspace(0, total, 17)[1:-1].astype(int), total - NEAR, total])
    near = p_value(np.histogram(distances, edges)[0], np.diff(edges) / (total - 1))
    parts = (places * 8) // total
    by_id = np.argsort(np.argsort(np.array(ids)))
    orders = []
    for rank in (np.arange(reports), by_id):
        table = np.zeros((8, 8))
        np.add.at(table, (np.repeat(rank * 8 // reports, each), parts.ravel()), 1)
        orders.append(p_value(table, np.full((8, 8), 1 / 64)))
    first = p_value(np.bincount(places.argmin(axis=1), minlength=each), np.full(each, 1 / each))
    return 4 * min(near, *orders, first)


@pytest.mark.parametrize(
    ("fault", "links"),
    [("", False), (AS_THEY_CAME, True), (REPORTS_ONLY, True)],
    ids=["real", "as-sent", "reports-only"],
)
def test_messages_of_a_report_cannot_be_linked_by_position(new_round, until, fault, links):
    """Distances within reports, the order of arrival, of ids and within reports: all as chance has it.

    A shuffler that passes reports on as they came, or mixes reports without mixing their messages, is found out.
    """
    here = new_round()
    places = delivered(here, until, fault)
    ids = [here.form.report_id(report).hex() for report in here.reports[: here.users]]
    assert (linked(places, ids) < ALPHA) == links


def test_mixing_in_small_groups_would_be_seen():
    """Messages of each thirty reports are mixed well, but arrive together."""
    random = np.random.default_rng()
    groups = [random.permutation(np.arange(at, min(at + 120, 800))) for at in range(0, 800, 120)]
    ids = [random.bytes(16).hex() for _ in range(200)]
    assert linked(np.concatenate(groups).reshape(200, 4), ids) < ALPHA
    assert linked(random.permutation(800).reshape(200, 4), ids) >= ALPHA
