"""Plans for a session: the protocols, errors and guarantees that a session with the same questions then has."""

import json

import pytest

import shuffledp as sdp
from shuffledp.errors import BudgetError, ParameterError

USERS = 5000
TARGET = {"epsilon": 1.0, "delta": 1e-6}
QUESTIONS = [
    sdp.Histogram(users=USERS, categories=["a", "b"]),
    sdp.Mean(users=USERS, lower=0, upper=10, whole=True),
    sdp.Count(users=USERS),
]


@pytest.fixture(scope="module")
def planned():
    return sdp.plan_session(QUESTIONS, **TARGET, shares=[0.5, 0.3, 0.2])


def asked(session, shares):
    """The releases of a session that asks the same questions."""
    options = [{} if share is None else {"share": share} for share in shares]
    session.histogram(["a", "b"] * (USERS // 2), categories=["a", "b"], **options[0])
    session.mean([3, 5] * (USERS // 2), lower=0, upper=10, whole=True, **options[1])
    session.count([True, False] * (USERS // 2), **options[2])
    return session


def test_a_session_with_the_same_shares_chooses_the_same_protocols(planned):
    session = asked(sdp.Session(users=USERS, **TARGET), [0.5, 0.3, 0.2])
    assert [answer.protocol for answer in planned] == [release.protocol for release in session.releases]
    assert planned.composed.epsilon == session.spent.epsilon
    assert [answer.share for answer in planned] == [0.5, 0.3, 0.2]


def test_without_shares_the_budget_is_divided_equally():
    planned = sdp.plan_session(QUESTIONS, **TARGET)
    session = asked(sdp.Session(users=USERS, **TARGET, releases=3), [None] * 3)
    assert [answer.protocol for answer in planned] == [release.protocol for release in session.releases]
    assert 0.99 < planned.composed.epsilon <= 1.0


def test_the_composed_guarantee_is_within_one_per_cent_of_the_target(planned):
    assert 0.99 < planned.composed.epsilon <= 1.0
    assert planned.composed.delta == 1e-6
    assert planned.composed.releases == len(planned) == 3
    together = sdp.compose_all(answer.guarantee.curve for answer in planned)
    assert together.delta_at(1.0) <= 1e-6 < together.delta_at(0.98)


def test_errors_and_labels(planned):
    assert [answer.label for answer in planned] == ["histogram", "mean", "count"]
    for answer in planned:
        assert answer.expected == answer.protocol.expected_error()
    assert planned[0].guarantee.epsilon == pytest.approx(0.5, rel=0.01)


def test_shown_and_written(planned):
    assert repr(planned).startswith("SessionPlan(5,000 users; histogram by ")
    assert "mean: sum/" in repr(planned[1])
    page = planned._repr_html_()
    assert "3 questions about 5,000 users" in page
    assert all(answer.protocol.name in page for answer in planned)
    document = json.loads(json.dumps(planned.to_json(), allow_nan=False))
    assert set(document) == {"target", "users", "warnings", "answers", "composed"}
    assert [answer["protocol"] for answer in document["answers"]] == [answer.protocol.name for answer in planned]
    frame = planned.to_frame()
    assert list(frame["label"]) == ["histogram", "mean", "count"]
    assert list(frame["rmse"]) == [answer.expected.rmse for answer in planned]
    with pytest.raises(AttributeError):
        planned.epsilon = 2.0


def test_two_questions_of_one_kind_have_different_labels():
    planned = sdp.plan_session([QUESTIONS[2]] * 2, **TARGET, trust="central")
    assert [answer.label for answer in planned] == ["count", "count (2)"]
    assert {answer.protocol.trust for answer in planned} == {"central"}


@pytest.mark.parametrize(
    ("questions", "options", "error", "message"),
    [
        ([], {}, ParameterError, "1 to 256 questions, not 0"),
        ([QUESTIONS[0], sdp.Count(users=10)], {}, ParameterError, "about 10 and 5,000 users"),
        ([QUESTIONS[2]], {"shares": [1.5]}, ParameterError, "share must be above 0 and at most 1"),
        ([QUESTIONS[2]], {"shares": [float("nan")]}, ParameterError, "share"),
        ([QUESTIONS[2]] * 2, {"shares": [1.0]}, ParameterError, "one share per question"),
        ([QUESTIONS[2]] * 2, {"shares": [0.7, 0.7], "trust": "central"}, BudgetError, "exceeds what is left"),
        (QUESTIONS[2], {}, ParameterError, "as a list"),
        (["count"], {}, ParameterError, "not 'count'"),
        ([QUESTIONS[2]], {"trust": "none"}, ParameterError, "no trust"),
        ([QUESTIONS[2]], {"confidence": 1.0}, ParameterError, "confidence"),
    ],
)
def test_bad_input_is_one_line(questions, options, error, message):
    with pytest.raises(error, match=message) as failure:
        sdp.plan_session(questions, **TARGET, **options)
    assert "\n" not in str(failure.value)
