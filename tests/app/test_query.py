"""The state of the planner's page: read from a URL, and written as a URL, command lines and Python."""

import json

import pytest

from shuffledp.app.query import Query, plan_id
from shuffledp.errors import DomainError, ParameterError
from shuffledp.planning import plan

QUERIES = [
    {},
    {"question": "count", "users": "500", "delta": "1e-6"},
    {"question": "sum", "users": "1000", "lower": "-1.5", "upper": "4", "epsilon": "0.3", "max_messages": "10"},
    {"question": "mean", "users": "1000", "whole": "on", "honest_fraction": "0.9"},
    {"question": "quantiles", "users": "3,000", "bins": "16", "trust": "local", "max_local_epsilon": "3"},
    {"question": "histogram", "domain_size": "5", "max_bytes": "4", "choice": "k-rr (tight)", "shape": "even"},
]


@pytest.mark.parametrize("parameters", QUERIES, ids=str)
def test_a_url_is_read_back(parameters):
    query = Query.parse(parameters)
    assert Query.parse(query.to_parameters()) == query


def test_what_does_not_concern_the_question_is_left_out_and_shares_the_cache():
    one, other = Query(question="count", bins=7, domain_size=3), Query(question="count", max_bytes=3.0, shape="even")
    assert one.calibrated == other.calibrated
    assert one.to_parameters() == {"question": "count"}
    assert Query(epsilon=0.5).calibrated != Query().calibrated
    assert Query(trust="local").calibrated != Query().calibrated


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"colour": "red"}, "There is no parameter 'colour' here."),
        ({"question": "<script>"}, "question must be one of count, histogram, sum, mean, quantiles, not '<script>'."),
        ({"users": "many"}, "users must be an integer, not 'many'."),
        ({"users": "1.5"}, "users must be an integer, not '1.5'."),
        ({"users": "1e400"}, "users must be an integer, not '1e400'."),
        ({"users": "9" * 60}, "users must be an integer, not '9999999999999999999999999999999999999999'."),
        ({"users": "2000000000"}, "users is at most 1,000,000,000 on this page, not 2,000,000,000"),
        ({"domain_size": "1000001"}, "domain_size is at most 1,000,000 on this page"),
        ({"question": "quantiles", "bins": "4096"}, "bins is at most 2,048 on this page"),
        ({"epsilon": "nan"}, "epsilon must be a finite number, not 'nan'."),
        ({"epsilon": "inf"}, "epsilon must be a finite number, not 'inf'."),
        ({"max_bytes": "-1"}, "A limit must be above 0"),
        ({"trust": "nobody"}, "There is no trust 'nobody'"),
        ({"shape": "round"}, "shape must be one of"),
        ({"choice": "x" * 9999}, "choice has at most 200 characters, not 9,999."),
        ({"releases": "0"}, "The number of releases must be an integer"),
        ({"honest_fraction": "0"}, "The honest fraction must be above 0"),
        ({"question": "sum", "lower": "3", "upper": "3"}, ""),
        ({"delta": "2"}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_gets_one_line(parameters, complaint):
    with pytest.raises((ParameterError, DomainError)) as caught:
        Query.parse(parameters)
    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "parameters",
    [
        {"question": "count", "users": "500", "delta": "1e-6", "max_messages": "3"},
        {"question": "mean", "users": "1000", "delta": "1e-6", "whole": "on", "max_messages": "1", "trust": "local"},
        {"question": "quantiles", "users": "3000", "bins": "16", "delta": "1e-6", "honest_fraction": "0.5"},
    ],
    ids=lambda each: each["question"],
)
def test_command_and_python_make_the_same_plans(parameters, shuffledp_json):
    query = Query.parse(parameters)
    limits = {name: getattr(query, name) for name in ("trust", "honest_fraction", "max_messages", "max_bytes")}
    plans = plan(query.asked, epsilon=query.epsilon, delta=query.delta, **limits)
    assert shuffledp_json(query.plan_command()) == json.loads(json.dumps(plans.to_json()))
    for wanted in plans:
        names = {}
        exec(query.python(plans, wanted), names)
        assert names["protocol"] == wanted.protocol, plan_id(wanted)


@pytest.fixture
def shuffledp_json(capsys):
    import shlex

    from shuffledp.cli import main

    def run(line):
        assert main._run([*shlex.split(line)[1:], "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run
