"""Session files: what is read is what was written, recomputed; hostile files are refused in one line."""

import json
from datetime import UTC, datetime

import pytest

import shuffledp as sdp
from shuffledp.errors import BudgetError, DataError, OutputError
from shuffledp.sessions.budget import MAX_RELEASES, Budget, Release
from shuffledp.sessions.saved import MAX_SESSION_BYTES, SessionFile, parse_session, session_content

USERS = 2_000
TARGET = {"users": USERS, "epsilon": 0.5, "delta": 1e-7}


def release(label, statistic, protocol, limit, **options):
    return Release(label, statistic, "x", protocol, limit, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), **options)


@pytest.fixture(scope="module")
def budget():
    """A session of every kind of protocol that has something of its own in its document."""
    histogram = sdp.protocols.UniformBlanketHistogram.calibrate(**TARGET, categories=["bus", "bike"])
    mean = sdp.protocols.SplitAndMixSum.calibrate(**TARGET, lower=0, upper=120).answering("mean")
    budget = Budget(USERS, 2.0, 1e-7, honest_fraction=1.0, announced=7)
    budget = budget.with_release(release("modes", "histogram", histogram, 0.5, share=0.25))
    return budget.with_release(release("mean", "mean", mean, 1.5, finished=True, secure=False))


@pytest.fixture
def document(budget):
    return json.loads(session_content(budget))


def encoded(document):
    return json.dumps(document).encode()


def test_what_is_read_is_what_was_written(budget):
    read = parse_session(session_content(budget), "session.json")
    assert session_content(read) == session_content(budget)
    assert read.spent.epsilon == budget.spent.epsilon
    assert [each.label for each in read.releases] == ["modes", "mean"]
    assert read.releases[1].protocol.expected_error().rmse == budget.releases[1].protocol.expected_error().rmse
    assert (read.releases[1].secure, read.releases[1].finished, read.releases[0].share) == (False, True, 0.25)
    assert read.announced == 7


def test_names_of_categories_are_not_saved(budget):
    assert b"bike" not in session_content(budget)


def with_change(document, change):
    change(document)
    return encoded(document)


CHANGES = {
    "other format": lambda d: d.update(format="other"),
    "later version": lambda d: d.update(version=2),
    "unknown key": lambda d: d.update(more=1),
    "missing key": lambda d: d.pop("delta"),
    "string for a number": lambda d: d.update(epsilon="2"),
    "huge number": lambda d: d.update(epsilon=10**400),
    "delta of 0": lambda d: d.update(delta=0),
    "boolean users": lambda d: d.update(users=True),
    "other users": lambda d: d.update(users=USERS + 1),
    "too many users": lambda d: d.update(users=10**30),
    "number for a boolean": lambda d: d.update(adaptive=1),
    "unknown trust": lambda d: d.update(trust="blind"),
    "other trust": lambda d: d.update(trust="local"),
    "fewer honest users": lambda d: d.update(honest_fraction=0.5),
    "releases announced": lambda d: d.update(announced=-1),
    "releases no list": lambda d: d.update(releases={}),
    "too many releases": lambda d: d.update(releases=d["releases"] * MAX_RELEASES),
    "a label twice": lambda d: d.update(releases=[d["releases"][0]] * 2),
    "release no object": lambda d: d.update(releases=[1]),
    "release unknown key": lambda d: d["releases"][0].update(more=1),
    "label with a line break": lambda d: d["releases"][0].update(label="a\nb"),
    "label with an escape": lambda d: d["releases"][0].update(label="\x1b[31m"),
    "label too long": lambda d: d["releases"][0].update(label="a" * 201),
    "empty label": lambda d: d["releases"][0].update(label=""),
    "subject no string": lambda d: d["releases"][0].update(subject=3),
    "unknown statistic": lambda d: d["releases"][0].update(statistic="mode"),
    "sum of a histogram": lambda d: d["releases"][0].update(statistic="sum"),
    "histogram of a sum": lambda d: d["releases"][1].update(statistic="histogram"),
    "mean of a histogram": lambda d: d["releases"][0].update(statistic="mean"),
    "share above 1": lambda d: d["releases"][0].update(share=1.5),
    "share of 0": lambda d: d["releases"][0].update(share=0),
    "limit above epsilon": lambda d: d["releases"][0].update(limit=3),
    "limit below the last": lambda d: d["releases"][1].update(limit=0.1),
    "negative limit": lambda d: d["releases"][0].update(limit=-1),
    "no time": lambda d: d["releases"][0].update(released_at="yesterday"),
    "time no string": lambda d: d["releases"][0].update(released_at=0),
    "secure no boolean": lambda d: d["releases"][0].update(secure="yes"),
    "finished no boolean": lambda d: d["releases"][0].update(finished=None),
    "protocol no object": lambda d: d["releases"][0].update(protocol=[]),
    "unknown protocol": lambda d: d["releases"][0]["protocol"].update(protocol="histogram/other"),
    "less noise": lambda d: d["releases"][0]["protocol"]["parameters"]["blanket"]["rest"].update(numerator=1),
    "parameters of another": lambda d: d["releases"][0]["protocol"].update(parameters={}),
    "users of the protocol": lambda d: d["releases"][0]["protocol"]["parameters"]["terms"].update(users=10),
}


@pytest.mark.parametrize("name", CHANGES)
def test_hostile_content_is_refused_in_one_line(name, document):
    content = with_change(document, CHANGES[name])
    with pytest.raises(DataError, match=r"^session\.json is not a valid session file: ") as refused:
        parse_session(content, "session.json")
    message = str(refused.value)
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": "shuffledp-session", "format": "shuffledp-session"}',
        b'{"epsilon": NaN}',
        b'{"epsilon": 1e999}',
        b'{"users": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(9),
)
def test_content_that_is_no_session_is_refused_in_one_line(content):
    with pytest.raises(DataError, match=r"^s\.json is not a valid session file: ") as refused:
        parse_session(content, "s.json")
    assert str(refused.value).isprintable()


def test_a_nan_never_becomes_a_number(document):
    for key in ("epsilon", "delta", "honest_fraction"):
        content = encoded(document).replace(f'"{key}": '.encode(), f'"{key}": NaN, "was": '.encode(), 1)
        with pytest.raises(DataError, match="NaN is not valid JSON"):
            parse_session(content, "session.json")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path):
    path = tmp_path / "session.json"
    path.write_bytes(b" " * (MAX_SESSION_BYTES + 1))
    with pytest.raises(DataError, match="too large for a session"):
        SessionFile(path).read()


def test_a_file_that_records_another_session_is_not_overwritten(budget, tmp_path):
    path = tmp_path / "session.json"
    path.write_text("something else")
    with pytest.raises(OutputError, match=r"exists already: continue that session with Session\.load"):
        SessionFile(path).create(budget)
    assert path.read_text() == "something else"


def test_what_cannot_be_written_or_read_is_one_line(budget, tmp_path):
    with pytest.raises(OutputError, match="there is no directory"):
        SessionFile(tmp_path / "none" / "session.json").create(budget)
    with pytest.raises(DataError, match="Cannot read the session"):
        SessionFile(tmp_path / "none.json").read()
    (tmp_path / "s.json.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="Cannot lock"):
        SessionFile(tmp_path / "s.json").create(budget)


def test_a_file_is_private_to_its_owner(budget, tmp_path):
    path = tmp_path / "session.json"
    SessionFile(path).create(budget)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_another_process_recorded_is_taken_over(budget, tmp_path):
    path = tmp_path / "session.json"
    ours, theirs = SessionFile(path), SessionFile(path)
    ours.create(budget)
    assert ours.updated(budget) is budget
    theirs.write(budget.finished(0))
    assert ours.updated(budget).releases[0].finished


def test_a_file_with_more_than_its_budget_is_read_and_nothing_more_is_released(document):
    """What was spent is known, whatever the budget says now; a further release is refused."""
    document["epsilon"] = 0.8
    document["releases"][1]["limit"] = 0.8
    read = parse_session(encoded(document), "session.json")
    assert read.spent.epsilon > 0.8
    assert read.left.epsilon == 0
    protocol = sdp.BalcerCheuCount.calibrate(**TARGET)
    with pytest.raises(BudgetError, match="would be spent"):
        read.with_release(release("more", "count", protocol, 0.8))


def test_a_session_that_does_not_exist_leaves_no_lock(tmp_path):
    with pytest.raises(DataError, match="Cannot read the session"):
        sdp.Session.load(tmp_path / "session.json")
    assert not list(tmp_path.iterdir())


def test_a_symbolic_link_leads_to_the_same_budget(budget, tmp_path):
    path, link = tmp_path / "session.json", tmp_path / "link.json"
    SessionFile(path).create(budget)
    link.symlink_to(path)
    SessionFile(link).write(budget.finished(0))
    assert link.is_symlink()
    assert SessionFile(path).read().releases[0].finished


def test_a_file_with_several_hard_links_is_refused(budget, tmp_path):
    """A write would replace one of them, and the other would still have the whole budget."""
    path = tmp_path / "session.json"
    file = SessionFile(path)
    file.create(budget)
    (tmp_path / "other.json").hardlink_to(path)
    for opened in (file, SessionFile(tmp_path / "other.json")):
        with pytest.raises(DataError, match="2 hard links"):
            opened.read()


def without_releases(document):
    document["releases"] = []


@pytest.mark.parametrize("change", [without_releases, lambda d: d.update(epsilon=50.0)], ids=["restored", "replaced"])
def test_a_file_that_forgets_what_was_spent_is_refused(change, budget, document, tmp_path):
    path = tmp_path / "session.json"
    file = SessionFile(path)
    file.create(budget)
    change(document)
    path.write_bytes(encoded(document))
    with pytest.raises(DataError, match=r"restored or replaced\. Nothing was released"):
        file.updated(budget)
