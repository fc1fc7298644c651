"""Every registered protocol passes the kit, and the kit catches every planted fault in each."""

import json
from dataclasses import replace

import numpy as np
import pytest
import small_counting
import small_histogram_local
import small_histogram_more
import small_histogram_shuffled
import small_quantiles
import small_strings
import small_summing

from shuffledp import BalcerCheuCount, BalcerCheuHistogram, Interval, from_document, to_document
from shuffledp.errors import ParameterError
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.testing import ConformanceError, check_protocol, planted_faults
from shuffledp.testing.conformance import CHECKS
from shuffledp.testing.faults import CAUGHT_BY

GROUPS = (
    small_counting,
    small_histogram_local,
    small_histogram_shuffled,
    small_histogram_more,
    small_summing,
    small_quantiles,
    small_strings,
)


def small_instances() -> dict[str, object]:
    two = BalcerCheuHistogram.with_noise(users=3, absence=0.3, delta=0.5, domain_size=2)
    found = {
        "histogram/balcer-cheu": two,
        "histogram/balcer-cheu of three": BalcerCheuHistogram.with_noise(
            users=2, absence=0.4, delta=0.5, domain_size=3
        ),
        "histogram/balcer-cheu padded": replace(two, padded=True),
    }
    for group in GROUPS:
        found |= group.instances()
    return found


INSTANCES = small_instances()
REGISTERED = sorted(f"{question}/{name}" for question, named in PROTOCOLS.items() for name in named)


def test_every_registered_protocol_is_checked():
    assert set(REGISTERED) <= set(INSTANCES)


FEW, MANY = 8_000, 60_000
DRAWN_ONE_BY_ONE = ("randomize has its distribution", "sample_tally has the distribution of the round")
"""Expensive to draw: few here, of the first instance of each protocol; many of every instance in the slow tests."""

DRAWN_TOGETHER = ("randomize_all has its distribution", "messages have the distribution of the round")

HARDER = (
    "histogram/correlated-noise",
    "histogram/correlated-noise in clusters",
    "histogram/count-min",
    "histogram/sample-and-threshold",
    "quantiles/correlated-noise",
)
"""Nearly all the mass is on few outcomes, or it is spread thin: 1,000 rounds show the fast route's fault too seldom."""

FAULT_SAMPLES = {
    "a probability off by five per cent": MANY,
    "the last value is sent as it is": 4_000,
    "an outcome that never happens": 4_000,
    "one user's randomness for all": FEW,
    "a sign error in the estimator": FEW,
    "a fast route without noise": FEW,
    "a release without noise": FEW,
    "a tally with one too many": FEW,
}
"""Samples with which each fault escapes with a probability below 1e-9, by the pmf that the faulty protocol has."""


def fast_route_samples(name):
    return 20_000 if name in HARDER else FEW


def checks_of(name):
    """All, but for split-and-mix: its theorem begins with 19 users, too many to enumerate."""
    return set(small_summing.ONLY.get(name, CHECKS))


WITHOUT_KERNELS = (
    "count/balcer-cheu",
    "count/correlated-noise",
    "count/randomized-response",
    "histogram/balcer-cheu",
    "histogram/count-min",
    "histogram/discrete-laplace",
    "histogram/hadamard-blanket",
    "histogram/shuffled-k-rr",
    "histogram/unary",
    "sum/discrete-laplace",
    "sum/privacy-blanket",
    "sum/split-and-mix",
)
"""One protocol for each sampler and way to count that the kernels replace."""


ENUMERATED_LATER = (
    "histogram/correlated-noise in clusters",
    "histogram/count-min of three rows",
    "histogram/hadamard-blanket of one vector",
    "histogram/hashed-blanket of three",
    "histogram/sample-and-threshold of three",
    "histogram/solh of three",
    "quantiles/correlated-noise of two levels",
)
"""Second instances with many outcomes; the first one of the protocol is among the fast tests."""


def in_turn(names, slow=lambda name: name.endswith("more than its shares") or name in ENUMERATED_LATER):
    """Those with thousands of outcomes, which differ from others in their size only, are for the slow tests."""
    found = []
    for name in names:
        marks = [pytest.mark.kernels] if name in WITHOUT_KERNELS else []
        found.append(pytest.param(name, marks=[*marks, pytest.mark.slow] if slow(name) else marks))
    return found


@pytest.mark.parametrize("name", in_turn(INSTANCES))
def test_the_protocol_conforms(name):
    cheap = checks_of(name) - set(DRAWN_ONE_BY_ONE)
    checks = check_protocol(INSTANCES[name], only=cheap, samples=fast_route_samples(name))
    assert all(check.passed for check in checks)
    skipped = set() if INSTANCES[name].exact_error else {"the predicted error is the exact one"}
    assert {check.name for check in checks} >= cheap - skipped - {"estimates are right on average"}


DRAWN_LATER = (
    "histogram/bassily-smith",
    "histogram/cheu",
    "histogram/correlated-noise",
    "histogram/hadamard-blanket",
    "histogram/hashed-blanket",
    "histogram/solh",
    "quantiles/correlated-noise",
    "sum/almost-central",
    "sum/laplace",
    "sum/split-and-mix",
)
"""Expensive, and drawn by the samplers of others, as count/correlated-noise or histogram/local-hashing, or compared by
the fast tests of the protocol itself: for slow tests.
"""


@pytest.mark.parametrize("name", in_turn(REGISTERED, slow=lambda name: name in DRAWN_LATER))
def test_some_draws_conform(name):
    checks = check_protocol(INSTANCES[name], only=DRAWN_ONE_BY_ONE, samples=fast_route_samples(name))
    assert [check.name for check in checks if check.passed] == list(DRAWN_ONE_BY_ONE)


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTANCES)
def test_many_draws_conform(name):
    drawn = (set(DRAWN_ONE_BY_ONE) | set(DRAWN_TOGETHER)) & checks_of(name)
    checks = check_protocol(INSTANCES[name], only=drawn, samples=MANY)
    assert {check.name for check in checks if check.passed} == drawn


FAULTS_FIRST = (
    "count/balcer-cheu",
    "count/cheu",
    "count/discrete-laplace",
    "count/randomized-response",
    "histogram/balcer-cheu",
    "histogram/discrete-laplace",
    "histogram/k-rr",
    "histogram/shuffled-k-rr",
    "histogram/stability",
    "sum/cheu",
    "sum/discrete-laplace",
    "sum/duchi",
)
"""Of every question and model, and every fault in some; those of the others are for the slow tests."""


def test_every_fault_is_planted_in_some_protocol_of_the_fast_tests():
    assert {fault for name in FAULTS_FIRST for fault in planted_faults(INSTANCES[name])} == set(CAUGHT_BY)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAULTS_FIRST else [pytest.mark.slow]) for name in REGISTERED]
)
def test_every_planted_fault_is_caught(name):
    samples = FAULT_SAMPLES | {"a fast route without noise": fast_route_samples(name)}
    for fault, broken in planted_faults(INSTANCES[name]).items():
        with pytest.raises(ConformanceError) as caught:
            check_protocol(broken, only=[CAUGHT_BY[fault]], samples=samples[fault])
        assert [check.name for check in caught.value.checks] == [CAUGHT_BY[fault]], fault


@pytest.mark.parametrize("name", REGISTERED)
def test_a_planned_protocol_survives_its_document_and_its_messages_their_packing(name):
    """At a realistic size, as a device receives it: the same protocol, guarantee and messages."""
    question, short = name.split("/")
    domains = {"histogram": {"domain_size": 7}, "sum": {"domain": Interval(-1.0, 4.0)}}
    domains |= {"quantiles": {"lower": 0, "upper": 1, "bins": 16}, "strings": {"alphabet": "a-z", "max_length": 30}}
    domain = domains.get(question, {})
    protocol = PROTOCOLS[question][short].calibrate(users=2000, epsilon=2, delta=1e-5, **domain)
    copy = from_document(json.loads(json.dumps(to_document(protocol), allow_nan=False)))
    assert copy == protocol
    assert copy.guarantee.to_json() == protocol.guarantee.to_json()
    values = np.array([0.0, 0.25, 1.0] if question == "sum" else [0, 1, 1])
    sent = protocol.randomize_all(values).values
    packed = protocol.message_format.pack(sent)
    assert packed.shape == (len(sent), protocol.message_format.size)
    assert protocol.message_format.bits == protocol.cost.bits_per_message
    assert np.array_equal(copy.message_format.unpack(packed), sent)


@pytest.mark.parametrize("change", [{"version": 2}, {"protocol": "count/nothing"}, {"parameters": {}}, {"more": 1}])
def test_a_strange_document_is_refused(change):
    with pytest.raises(ParameterError):
        from_document(to_document(INSTANCES["count/cheu"]) | change)


def test_no_planted_fault_is_forgotten():
    planted = {fault for instance in INSTANCES.values() for fault in planted_faults(instance)}
    assert planted == set(CAUGHT_BY)


def test_a_report_whose_length_gives_the_value_away_is_caught():
    """Figure 1 without padding: two messages mean a 1."""
    literal = replace(INSTANCES["count/balcer-cheu"], padded=False)
    with pytest.raises(ConformanceError, match="number of messages says nothing of the value") as caught:
        check_protocol(literal)
    assert [check.name for check in caught.value.checks if not check.passed] == [
        "the number of messages says nothing of the value"
    ]


def test_a_guarantee_that_claims_too_much_is_caught():
    """A histogram that is accounted for as if it were a count."""
    from shuffledp.privacy.binomial import Binomial
    from shuffledp.privacy.binomial_noise import BinomialCount

    class Overstated(BalcerCheuHistogram):
        @property
        def guarantee(self):
            curve = BinomialCount(Binomial(self.target.honest_users, self.absence))
            return self.target.guarantee(curve, theorem="none")

    honest = INSTANCES["histogram/balcer-cheu"]
    count = BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.5)
    with pytest.raises(ConformanceError, match="the guarantee holds exactly"):
        check_protocol(
            Overstated(count.target, count.absence, honest.domain_size), only=["the guarantee holds exactly"]
        )


def test_a_tally_that_looks_at_the_order_is_caught():
    class Ordered(BalcerCheuHistogram):
        def tally(self, messages):
            ascents = np.count_nonzero(np.diff(messages.values.astype(np.int64)) > 0)
            counted = super().tally(messages)
            return replace(counted, counts=counted.counts + (ascents > len(messages) // 3))

    ordered = Ordered.with_noise(users=4, absence=0.3, delta=0.9, domain_size=3)
    caught = 0
    for _ in range(40):
        try:
            check_protocol(ordered, only=["tallies add up in any order"])
        except ConformanceError:
            caught += 1
    assert caught


def test_a_wrong_cost_is_caught():
    class Understated(BalcerCheuHistogram):
        @property
        def cost(self):
            from shuffledp.protocols.protocol import Cost

            return Cost(1.0, 1, 1)

    with pytest.raises(ConformanceError, match="the cost is as promised"):
        check_protocol(
            Understated.with_noise(users=3, absence=0.3, delta=0.5, domain_size=2), only=["the cost is as promised"]
        )


@pytest.mark.parametrize("check", ["the cost is as promised", "honest users are counted"])
def test_too_high_a_least_number_of_messages_is_caught(check):
    """With it, a collection would take honest reports for those of fewer users."""

    class Demanding(BalcerCheuHistogram):
        min_messages_per_user = 4

    protocol = Demanding.with_noise(users=3, absence=0.3, delta=0.5, domain_size=2)
    with pytest.raises(ConformanceError, match=check):
        check_protocol(protocol, only=[check])


def test_a_tally_that_loses_honest_messages_is_caught():
    class Losing(BalcerCheuHistogram):
        def without_excess(self, tally):
            return replace(tally, counts=np.minimum(tally.counts, tally.users - 1))

    protocol = Losing.with_noise(users=3, absence=0.3, delta=0.5, domain_size=2)
    with pytest.raises(ConformanceError, match="honest messages"):
        check_protocol(protocol, only=["honest users are counted"])


def test_what_is_too_large_is_refused():
    with pytest.raises(ParameterError, match="too many outcomes"):
        check_protocol(BalcerCheuHistogram.with_noise(users=40, absence=0.3, delta=0.5, domain_size=8))
    with pytest.raises(ParameterError, match="too many outcomes"):
        check_protocol(BalcerCheuHistogram.with_noise(users=3, absence=0.3, delta=0.5, domain_size=20))
