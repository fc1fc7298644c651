"""Every registered protocol passes the kit, and the kit catches every planted fault."""

import pytest

from shuffledp import BalcerCheuCount, BalcerCheuHistogram
from shuffledp.errors import ParameterError
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.testing import ConformanceError, check_protocol, planted_faults


def small_instances() -> dict[str, object]:
    count = BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.5)
    two = BalcerCheuHistogram.with_noise(users=3, absence=0.3, delta=0.5, domain_size=2)
    three = BalcerCheuHistogram.with_noise(users=2, absence=0.4, delta=0.5, domain_size=3)
    return {
        "count/balcer-cheu": count,
        "histogram/balcer-cheu": two,
        "histogram/balcer-cheu of three": three,
        "histogram/balcer-cheu padded": BalcerCheuHistogram(two.noise, 2, padded=True),
    }


INSTANCES = small_instances()


def test_every_registered_protocol_is_checked():
    registered = {f"{question}/{name}" for question, named in PROTOCOLS.items() for name in named}
    assert registered <= set(INSTANCES)


@pytest.mark.parametrize("name", INSTANCES)
def test_the_protocol_conforms(name):
    checks = check_protocol(INSTANCES[name])
    assert len(checks) == 10
    assert all(check.passed for check in checks)


MUST_FAIL = {
    "a probability off by five per cent": "randomize_all has its law",
    "the last value is sent as it is": "randomize_all has its law",
    "an outcome that never happens": "randomize_all has its law",
    "one user's randomness for all": "messages have the law of the round",
    "a sign error in the estimator": "the predicted error is the exact one",
    "a fast route without noise": "sample_tally has the law of the round",
}


@pytest.mark.parametrize("fault", MUST_FAIL)
@pytest.mark.parametrize("name", ["count/balcer-cheu", "histogram/balcer-cheu"])
def test_every_planted_fault_is_caught(name, fault):
    broken = planted_faults(INSTANCES[name])[fault]
    with pytest.raises(ConformanceError) as caught:
        check_protocol(broken)
    assert MUST_FAIL[fault] in [check.name for check in caught.value.checks if not check.passed]


def test_no_planted_fault_is_forgotten():
    assert set(planted_faults(INSTANCES["count/balcer-cheu"])) == set(MUST_FAIL)


def test_a_report_whose_length_gives_the_value_away_is_caught():
    """Figure 1 without padding: two messages mean a 1."""
    literal = BalcerCheuCount(INSTANCES["count/balcer-cheu"].noise, padded=False)
    with pytest.raises(ConformanceError, match="number of messages says nothing of the value") as caught:
        check_protocol(literal)
    assert [check.name for check in caught.value.checks if not check.passed] == [
        "the number of messages says nothing of the value"
    ]


def test_a_guarantee_that_claims_too_much_is_caught():
    """A histogram that is accounted for as if it were a count."""
    from shuffledp.privacy.binomial_noise import BinomialCount

    class Overstated(BalcerCheuHistogram):
        @property
        def guarantee(self):
            return self.noise.guarantee(BinomialCount, theorem="none")

    honest = INSTANCES["histogram/balcer-cheu"]
    count = BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.5)
    with pytest.raises(ConformanceError, match="the guarantee holds exactly"):
        check_protocol(Overstated(count.noise, honest.domain_size))


def test_what_is_too_large_is_refused():
    with pytest.raises(ParameterError, match="too large to enumerate"):
        check_protocol(BalcerCheuHistogram.with_noise(users=12, absence=0.3, delta=0.5, domain_size=6))
    with pytest.raises(ParameterError, match="too many outcomes"):
        check_protocol(BalcerCheuHistogram.with_noise(users=3, absence=0.3, delta=0.5, domain_size=20))
