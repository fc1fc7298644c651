"""Estimates when some do not follow the protocol: a broken report never stops what would be released without it."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.analyzer.estimating import NotReleasedError, estimate_round
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.domain import Bins, Interval, Strings
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.registry import PROTOCOLS

NAMES = [
    f"{question}/{name}"
    for question, shelf in PROTOCOLS.items()
    for name, kind in shelf.items()
    if kind.trust in ("shuffled", "local") and not kind.trusts_shuffler and name != "almost-central"
]
ALL_NEEDED = "sum/split-and-mix"
USERS, MORE = 2000, 25


def task_of(collection, name, **changes):
    domains = {"sum": Interval(0.0, 1.0), "quantiles": Bins(0.0, 1.0, 16), "strings": Strings("ab", 2)}
    question = name.split("/")[0]
    settings = {"domain": domains[question]} if question in domains else {}
    return collection.task(name, users=USERS, settings=settings | changes, publish=False)


@pytest.fixture(scope="module", params=NAMES)
def scene(request, shared_collection):
    return request.param, task_of(shared_collection, request.param)


def honest(task, users):
    protocol = task.protocol
    if protocol.question == "sum":
        values = np.random.default_rng().random(users)
    else:
        values = np.random.default_rng().integers(getattr(protocol, "domain_size", 2), size=users)
    return protocol.randomize_all(values).values


def arbitrary(task, messages):
    """Valid messages that nobody honest may have sent."""
    form = task.protocol.message_format
    random = np.random.default_rng()
    rows = np.empty((messages, form.columns), dtype=form.dtype)
    for column, bound in enumerate((*form.bounds, *[2] * form.flags)):
        rows[:, column] = random.integers(bound, size=messages, dtype=np.uint64)
    return rows[:, 0] if form.columns == 1 else rows


def counted_of(task, values, *, reports, rejected=0):
    tally = task.protocol.tally(Messages(values, 0))
    dummies = reports * task.messages_per_report - len(values) - rejected
    assert dummies >= 0
    return Counted(tally, len(values), dummies, Counter({"cannot-be-opened": rejected} if rejected else {}))


def test_the_honest_alone_get_the_protocols_own_estimate(scene):
    _, task = scene
    values = honest(task, USERS + MORE)
    result = estimate_round(task, counted_of(task, values, reports=USERS + MORE), USERS + MORE)
    tally = task.protocol.tally(Messages(values, 0))
    expected = task.protocol.estimate(Tally(tally.counts, USERS + MORE)).to_json()
    found = result.estimate.to_json()
    assert {key: found[key] for key in found if key != "guarantee"} == {
        key: expected[key] for key in expected if key != "guarantee"
    }
    assert result.estimate.guarantee is task.guarantee
    assert result.users == USERS + MORE
    assert not result.estimate.caveats


@pytest.mark.parametrize("kind", ["dummies", "garbage", "some of each", "arbitrary messages", "one category"])
def test_a_broken_report_stops_nothing(scene, kind):
    name, task = scene
    each, random = task.messages_per_report, np.random.default_rng()
    for broken in (1, 2, MORE, USERS):
        values = honest(task, USERS)
        rejected = 0
        if kind == "garbage":
            rejected = broken * each
        elif kind == "some of each":
            valid = int(random.integers(0, broken * each + 1))
            rejected = int(random.integers(0, broken * each - valid + 1))
            values = np.concatenate((values, arbitrary(task, valid)))
        elif kind == "arbitrary messages":
            values = np.concatenate((values, arbitrary(task, broken * each)))
        elif kind == "one category":
            values = np.concatenate((values, np.repeat(values[:1], broken * each, axis=0)))
        reports = USERS + broken
        counted = counted_of(task, values, reports=reports, rejected=rejected)
        if name == ALL_NEEDED and counted.messages < reports * each:
            with pytest.raises(NotReleasedError, match="has no estimate unless all"):
                estimate_round(task, counted, reports)
            continue
        result = estimate_round(task, counted, reports)
        assert USERS <= result.users <= reports
        assert result.estimate.users == result.users
        assert bool(result.estimate.caveats) == (result.users < reports or rejected > 0)


@pytest.mark.parametrize("branching", [(4, 4), (2, 2, 2, 2)])
def test_all_messages_on_one_level_stop_nothing(shared_collection, branching):
    """Dishonest devices put nothing on some levels and all their messages on another, in one cell."""
    task = task_of(shared_collection, "quantiles/uniform-blanket", branching=branching)
    tree = task.protocol.tree
    for level in range(len(branching)):
        for dishonest in (1, MORE, USERS):
            stuffed = np.full(dishonest * task.messages_per_report, tree.offsets[level], dtype=np.int64)
            values = np.concatenate((honest(task, USERS), stuffed.astype(task.protocol.message_format.dtype)))
            reports = USERS + dishonest
            result = estimate_round(task, counted_of(task, values, reports=reports), reports)
            assert USERS <= result.users <= reports
    tally = task.protocol.tally(Messages(honest(task, USERS), 0))
    excess = replace(tally, users=USERS, counts=tally.counts + 50)
    trimmed = task.protocol.without_excess(excess)
    task.protocol.check_tally(trimmed)
    for before, after in zip(tree.levels_of(excess.counts), tree.levels_of(trimmed.counts), strict=True):
        assert np.ptp(before - after) <= 1  # the same from every cell: differences between cells stay


def test_messages_of_too_few_users_are_not_released(scene):
    _, task = scene
    few = honest(task, USERS // 3)
    reports = USERS
    rejected = reports * task.messages_per_report - len(few)
    with pytest.raises(NotReleasedError):
        estimate_round(task, counted_of(task, few, reports=reports, rejected=rejected), reports)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sum/")])
def test_sums_within_the_widest_bounds_have_numbers(shared_collection, name):
    for domain in (Interval(0.0, 1e290), Interval(-1e290, 1e290)):
        task = task_of(shared_collection, name, domain=domain)
        values = honest(task, USERS)
        result = estimate_round(task, counted_of(task, values, reports=USERS), USERS).at(0.95)
        json.dumps(result.estimate.to_json(0.95), allow_nan=False)


@pytest.mark.parametrize("name", ["sum/duchi", "count/balcer-cheu", "histogram/k-rr"])
@pytest.mark.parametrize("what", ["value", "standard_error", "intervals"])
def test_what_is_no_number_is_not_released(shared_collection, name, what):
    task = task_of(shared_collection, name)
    result = estimate_round(task, counted_of(task, honest(task, USERS), reports=USERS), USERS)
    assert result.at(0.9).estimate.to_json(0.9) == result.estimate.to_json(0.9)
    fields = {"value": "counts", "standard_error": "standard_errors"} if name.startswith("histogram") else {}
    wrong = np.full((4, 2) if what == "intervals" else 4, np.inf) if name.startswith("histogram") else np.inf
    change = {fields.get(what, what): (lambda _: np.atleast_2d(wrong)) if what == "intervals" else wrong}
    if what == "intervals" and not name.startswith("histogram"):
        change = {"intervals": lambda _: np.array([[0.0, np.inf]])}
    with pytest.raises(NotReleasedError, match="too large for a floating-point number"):
        replace(result, estimate=replace(result.estimate, **change)).at(0.9)


def test_a_search_for_strings_can_be_interrupted(shared_collection):
    task = task_of(shared_collection, "strings/tree-blanket")
    counted = counted_of(task, honest(task, USERS), reports=USERS)

    def stop():
        raise ShutdownError

    with pytest.raises(ShutdownError):
        estimate_round(task, counted, USERS, proceed=stop)


def test_leaving_out_a_broken_report_does_not_bias_the_others(collection):
    """Half of all reports are garbage: the counts of the rest still add up to how many those are."""
    for name in ("histogram/k-rr", "histogram/uniform-blanket", "histogram/hadamard-response", "histogram/unary"):
        task = task_of(collection, name)
        values = task.protocol.randomize_all(np.zeros(4000, dtype=int)).values
        counted = counted_of(task, values, reports=8000, rejected=4000 * task.messages_per_report)
        result = estimate_round(task, counted, 8000)
        assert 4000 <= result.users < 4001 + 4000 * (name == "histogram/uniform-blanket")
        low, high = result.estimate.interval(1 - 1e-7)[0]
        assert low <= 4000 <= high, name
