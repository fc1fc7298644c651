"""Plans as a sequence, in notebooks, data frames and figures."""

import copy
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, UnknownNameError
from shuffledp.figures import InlineFigure
from shuffledp.planning import Rejection

QUESTIONS = [
    sdp.Count(users=2_000),
    sdp.Histogram(users=2_000, categories=["a", "b"]),
    sdp.Mean(users=2_000, upper=10),
    sdp.Quantiles(users=2_000, upper=10, bins=8),
]


def plans_for(question=QUESTIONS[1]):
    return sdp.plan(question, epsilon=1.0, delta=1e-6)


def document(shown):
    return ElementTree.fromstring(shown._repr_html_())


def cells(shown):
    return [["".join(cell.itertext()) for cell in row.iter("td")] for row in document(shown).iter("tr")]


def test_plans_are_a_sequence():
    plans = plans_for()
    assert len(plans) == len(plans.plans) > 3
    assert list(plans) == list(plans.plans)
    assert plans[0] is plans.plans[0]
    assert plans[-1] is plans.plans[-1]
    assert plans[1:3] == plans.plans[1:3]
    assert list(reversed(plans)) == list(reversed(plans.plans))
    with pytest.raises(IndexError):
        plans[len(plans)]


def test_plans_are_found_by_the_name_of_their_protocol():
    plans = plans_for()
    for plan in plans:
        name = plan.protocol.name
        assert name in plans
        assert plan in plans
        assert plans[name] is next(each for each in plans if each.protocol.name == name)
    assert plans["balcer-cheu"].calibration == "tight"  # the best of its plans
    assert "nothing" not in plans
    assert 7 not in plans
    with pytest.raises(UnknownNameError, match="There is no plan 'nothing'; choose one of correlated-noise, "):
        plans["nothing"]


def test_the_reason_is_given_for_a_protocol_that_was_rejected():
    plans = replace(plans_for(), rejected=(Rejection("split", "tight", "It needs more users."),))
    with pytest.raises(InfeasibleError, match=r"^split was rejected: It needs more users\.$"):
        plans["split"]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_reprs_are_short(question):
    plans = plans_for(question)
    assert len(repr(plans)) < 200
    assert f"best {plans.best.name} with error {plans[0].expected.rmse:.4g}; {len(plans)} plans" in repr(plans)
    for plan in plans:
        assert len(repr(plan)) < 200
        assert f"/{plan.protocol.name}, {plan.variant}; {plan.protocol.trust}; " in repr(plan)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_notebook_shows_every_plan_by_its_position(question):
    plans = plans_for(question)
    listed = {int(row[0]): row for row in cells(plans) if row and row[0].isdigit()}
    assert set(range(min(len(plans), 20))) <= set(listed)
    for position, row in listed.items():
        assert row[1:3] == [plans[position].protocol.name, plans[position].variant]
        cost = plans[position].cost
        assert f"{cost.messages_per_user + cost.dummies_per_user:,.4g}" in row
    content = "".join(document(plans).itertext())
    assert plans.best.guarantee.statement() in content
    assert f"{question.users:,} users at epsilon = 1, delta = 1e-06" in content
    assert all(rejection.reason in content for rejection in plans.rejected)


def test_a_notebook_shows_one_plan():
    plan = plans_for()["cheu"]
    assert cells(plan)[1][:3] == ["cheu", plan.variant, "shuffled"]
    content = "".join(document(plan).itertext())
    assert plan.why[1:] in content
    assert plan.protocol.guarantee.statement() in content


def test_many_plans_are_cut():
    plans = plans_for()
    many = replace(plans, plans=plans.plans[:1] * 30, rejected=())
    assert len(cells(many)) == 21
    assert "10 more; to_frame() has all." in many._repr_html_()
    assert len(many.to_frame()) == 30


def test_reasons_and_settings_are_escaped():
    plans = plans_for()
    hostile = replace(plans[0], why="<script>", setting={"<img src=x>": "</td>"})
    shown = replace(plans, plans=(hostile,), rejected=(Rejection("<b>", "<i>", "<script>"),))
    assert "<script" not in shown._repr_html_()
    assert "<img" not in shown._repr_html_()
    assert cells(hostile)[1][1] == "tight, <img src=x> </td>"
    assert cells(shown)[-1] == ["<b>", "<i>", "<script>"]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_data_frame_has_one_row_per_plan(question):
    plans = plans_for(question)
    frame = plans.to_frame()
    assert len(frame) == len(plans)
    for plan, row in zip(plans, frame.to_dict("records"), strict=True):
        assert row["protocol"] == plan.protocol.name
        assert row["trust"] == plan.protocol.trust
        assert (row["rmse"], row["max_error"]) == (plan.expected.rmse, plan.expected.max_error)
        assert row["messages_per_user"] == plan.cost.messages_per_user
        assert row["bytes_per_user"] == plan.cost.bytes_per_user
        assert row["reference"] == plan.reference
    assert plans[0].to_frame().to_dict("list") == frame.iloc[:1].to_dict("list")


def test_plans_are_drawn(tmp_path):
    plans = plans_for()
    figure = plans.plot()
    assert isinstance(figure, InlineFigure)
    assert plans.plot(tmp_path / "plans.svg") is None
    assert (tmp_path / "plans.svg").read_text() == figure.svg
    assert all(name in figure.svg for name in ("balcer-cheu", "correlated-noise", "bytes per user"))


def test_plans_are_still_equal_and_hashable():
    plans = plans_for()
    assert copy.copy(plans) == plans
    assert plans != replace(plans, plans=plans.plans[:1])
