"""One ``calibrate`` for all protocols: a target in either form, the domain, and typed options."""

import inspect
from dataclasses import replace

import pytest

import shuffledp as sdp
from shuffledp.errors import DomainError, ParameterError
from shuffledp.protocols import BalcerCheuHistogram, CheuSum, DuchiSum, KRandomizedResponse, RandomizedResponse
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import PROTOCOLS

GIVEN = {"users": 1000, "epsilon": 1.0, "delta": 1e-6}
TARGET = sdp.Target(**GIVEN)
KINDS = [kind for named in PROTOCOLS.values() for kind in named.values()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.question}/{kind.name}")
def test_every_protocol_is_an_ordinary_one(kind):
    """Nothing is abstract, the target comes first, and only the options of ``for_target`` are its own."""
    assert issubclass(kind, Protocol)
    assert not kind.__abstractmethods__
    assert next(iter(inspect.signature(kind).parameters)) == "target"
    assert kind.calibrate.__func__ is Protocol.calibrate.__func__
    assert kind.__doc__
    options = inspect.signature(kind.for_target).parameters.values()
    domain = [] if kind.question == "count" else ["domain"]
    assert [each.name for each in options if each.kind is each.POSITIONAL_OR_KEYWORD] == ["target", *domain]
    assert all(each.annotation is not each.empty for each in options)
    assert all(each.default is not each.empty for each in options if each.kind is each.KEYWORD_ONLY)


def test_a_target_in_either_form():
    assert RandomizedResponse.calibrate(target=TARGET) == RandomizedResponse.calibrate(**GIVEN)
    half = replace(TARGET, honest_fraction=0.5, calibration="paper")
    with_half = KRandomizedResponse.calibrate(target=half, domain_size=3)
    assert with_half.target == replace(half, delta=0.0)
    assert KRandomizedResponse.calibrate(target=half, domain_size=3, calibration="tight").target.calibration == "tight"
    with pytest.raises(ParameterError, match="At least 2 users"):
        RandomizedResponse.calibrate(target=sdp.Target(1, 1.0, 1e-6))


def test_the_domain_of_a_histogram():
    names = sdp.Categories.of(["bus", "bike"])
    by_names = BalcerCheuHistogram.calibrate(**GIVEN, categories=["bus", "bike"])
    assert BalcerCheuHistogram.calibrate(**GIVEN, domain=names) == by_names
    assert by_names.domain == names
    numbered = BalcerCheuHistogram.calibrate(**GIVEN, domain_size=2)
    assert BalcerCheuHistogram.calibrate(**GIVEN, domain=sdp.Numbered(2)) == numbered
    for wrong in ({}, {"domain": names, "domain_size": 2}, {"categories": names, "domain_size": 3}, {"domain_size": 0}):
        with pytest.raises(DomainError):
            BalcerCheuHistogram.calibrate(**GIVEN, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"domain": ["bus", "bike"]},  # was numbered, and its names were lost
        {"domain": sdp.Interval(0, 1)},
        {"domain": 3},
        {"domain_size": "3"},
        {"domain_size": 2.5},
        {"domain_size": True},
        {"categories": "bus"},  # was three letters
    ],
    ids=str,
)
def test_what_is_no_domain_of_a_histogram(wrong):
    with pytest.raises(DomainError):
        BalcerCheuHistogram.calibrate(**GIVEN, **wrong)


def test_what_is_no_domain_of_a_sum():
    for wrong in ([0, 1], sdp.Categories.of(["a"]), 3):
        with pytest.raises(DomainError, match="is an Interval, not"):
            CheuSum.calibrate(**GIVEN, domain=wrong)


def test_the_bounds_of_a_sum():
    unit = DuchiSum.calibrate(**GIVEN, lower=0, upper=10)
    assert unit == DuchiSum.calibrate(**GIVEN, domain=sdp.Interval(0.0, 10.0))
    assert CheuSum.calibrate(**GIVEN, lower=0, upper=10, whole=True).domain == sdp.Interval(0.0, 10.0, True)
    for wrong in ({}, {"lower": 0}, {"domain": sdp.Interval(0, 1), "upper": 1}):
        with pytest.raises(DomainError):
            DuchiSum.calibrate(**GIVEN, **wrong)


def test_options_of_another_protocol_or_question_are_refused():
    with pytest.raises(ParameterError, match=r"sum/cheu has no option levels; .* its options are bits"):
        CheuSum.calibrate(**GIVEN, lower=0, upper=1, levels=3)
    with pytest.raises(ParameterError, match="has no option domain_size"):
        RandomizedResponse.calibrate(**GIVEN, domain_size=3)
    with pytest.raises(DomainError, match="over the values 0 and 1"):
        RandomizedResponse.calibrate(**GIVEN, domain=sdp.Numbered(2))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.question}/{kind.name}")
def test_facts_that_belong_together(kind):
    if kind.question == "histogram" and kind.independent_categories:
        assert kind.calibrate(**GIVEN, domain_size=3, **kind.independent_options).category_noise is not None
    if kind.trust != "central" and not kind.trusts_shuffler:
        bounds = {"lower": 0, "upper": 1}
        domains = {"histogram": {"domain_size": 8}, "sum": bounds, "quantiles": {**bounds, "bins": 8}}
        domains |= {"strings": {"alphabet": "a-z", "max_length": 8}}
        question = domains.get(kind.question, {})
        protocol = kind.calibrate(users=1000, epsilon=2.0, delta=1e-4, **question)
        assert protocol.min_messages_per_user <= protocol.cost.messages_per_user
