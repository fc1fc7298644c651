"""Signed parameters are hostile: a document is refused, or what it claims holds for every data set of a small round.

Every protocol gets random and extreme documents. Reading one and computing its guarantee either raises a
ShuffledpError, or gives a delta that is at least the exact one by enumeration. Both happen in bounded processor time.
The documents are drawn without a fixed seed: the property holds for all of them, so that no run may fail.
"""

import copy
import json
import math
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
from test_conformance import INSTANCES, REGISTERED

from shuffledp import from_document, to_document
from shuffledp.collection.task.task import MAX_DRAWS_PER_REPORT
from shuffledp.collection.wire.padding import capped_guarantee
from shuffledp.errors import ShuffledpError
from shuffledp.privacy import binomial, binomial_noise
from shuffledp.protocols import documents
from shuffledp.testing import ConformanceError, check_protocol

SECONDS = 20.0
"""Of processor time, for reading one document, its guarantee and one report; the slowest seen took 6."""
ENUMERATION_SECONDS = 1.0
"""What takes longer to enumerate is not compared."""
GUARANTEE = "the guarantee holds exactly"
LARGEST_COMPARED = 9.0
"""Tables leave out tails of 1e-13, which would count for e^epsilon times as much."""

EPSILONS = (0.0, 1e-12, 0.1, 1.0, 5.0, 9.0, 700.0)
DELTAS = (0.0, 1e-300, 1e-9, 0.5, 0.9999, 1 - 2.0**-53)
FLOATS = (0.0, 5e-324, 1e-300, 1e-12, 1e-3, 0.5, 1 - 2.0**-53, 1.0, 1.5, 710.0, 1e6, 1e300, math.nan, math.inf, -1.0)
INTEGERS = (0, 1, 2, 3, 4, 7, 19, 64, 1000, 10**6, 10**9, 10**12, 10**15, 2**53, 2**63, 2**64, 2**128, 10**60, -1)
BITS = (0, 1, 2, 3, 8, 40, 53, 64, 100, 127, 128, 129, 300, 1100, 64_000)
SHAPES = (
    "1/1",
    "2/1",
    "1/1000",
    f"1/{10**30}",
    f"{10**15}/1",
    f"{10**38}/{10**38 - 1}",
    f"1/{10**300}",
    f"{10**300}/1",
)
KEPT = ("calibration", "encoding", "form", "categories", "padded", "whole")


def _printed_generator() -> random.Random:
    """A generator whose seed is in the output of a test that fails, so that its documents can be made again."""
    seed = random.SystemRandom().getrandbits(64)
    print(f"seed {seed}")
    return random.Random(seed)


class TooSlowError(BaseException):
    """Not an Exception, so that nothing on the way takes it for one of its own."""


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """TooSlowError once this process has computed for so long; waiting for a busy machine does not count."""

    def stop(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name == "gc_callback":  # where an exception would be lost
            signal.setitimer(signal.ITIMER_PROF, 0.01)
        else:
            raise TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def hostile_probability(draw: random.Random) -> dict[str, int]:
    bits = draw.choice(BITS)
    one = 1 << bits
    numerator = draw.choice([0, 1, 1, 1, min(3, one), one // 2, one - 1, one - 1, one, draw.randrange(one + 1)])
    if draw.random() < 0.9 and (excess := numerator.bit_length() - 53) > 0:
        numerator = numerator >> excess << excess
    return {"numerator": numerator, "bits": bits}


def hostile(value: Any, draw: random.Random, share: float) -> Any:
    """The value with a share of its numbers replaced by extreme ones."""
    changed = draw.random() < share
    if isinstance(value, dict) and set(value) == {"numerator", "bits"}:
        return hostile_probability(draw) if changed else value
    if isinstance(value, dict):
        return {key: hostile_field(key, part, draw, share) for key, part in value.items()}
    if isinstance(value, list):
        parts = [hostile(part, draw, share) for part in value]
        return draw.choice([parts, parts, parts[:-1], parts + parts]) if changed else parts
    if not changed or value is None or isinstance(value, bool):
        return value
    return draw.choice(INTEGERS if isinstance(value, int) else FLOATS if isinstance(value, float) else SHAPES)


def hostile_field(key: str, value: Any, draw: random.Random, share: float) -> Any:
    if key in KEPT:
        return value
    if key == "epsilon":
        return draw.choice([value, value, *EPSILONS])
    if key == "delta":  # mostly one that nearly everything meets, so that the computed curve is looked at
        return draw.choice([value, DELTAS[-1], DELTAS[-1], *DELTAS])
    return hostile(value, draw, share)


def document_of(name: str) -> dict[str, Any]:
    return {"version": 1, "protocol": name.split(" ")[0], "parameters": to_document(INSTANCES[name])["parameters"]}


def judged(document: dict[str, Any], draw: random.Random) -> str:
    """``refused``, ``accepted`` or ``compared``; AssertionError if a false guarantee is claimed."""
    try:
        with processor_seconds(SECONDS):
            protocol = from_document(document)
            claims = [protocol.guarantee.delta_at(epsilon) for epsilon in (*EPSILONS, 50.0, math.inf)]
            json.dumps(protocol.guarantee.to_json(), allow_nan=False)
            take_part(protocol, draw)
            small = is_small(protocol)
    except ShuffledpError:
        return "refused"
    assert all(0 <= claim <= 1 for claim in claims), claims
    if not small or protocol.guarantee.epsilon > LARGEST_COMPARED:
        return "accepted"
    try:
        with processor_seconds(ENUMERATION_SECONDS):
            check_protocol(protocol, only=[GUARANTEE])
    except ConformanceError as error:
        raise AssertionError(f"{error} claimed by {json.dumps(document)}") from error
    except (ShuffledpError, TooSlowError, ArithmeticError, TypeError, ValueError, MemoryError, Warning):
        return "accepted"  # not enumerable: too many outcomes, or outcomes beyond 64 bits
    return "compared"


def take_part(protocol: Any, draw: random.Random) -> None:
    """What a device does: the guarantee with a cap, the bound on work, and a report."""
    if protocol.trust == "central" or protocol.trusts_shuffler:
        return
    most, claim = protocol.cost.max_messages_per_user, protocol.guarantee
    cap = draw.choice([1, 2, 64, 1 << 16, 10**9]) if most is None else most
    try:
        capped_guarantee(protocol, cap=cap, users=protocol.users, epsilon=claim.epsilon, delta=claim.delta)
    except ShuffledpError:
        return
    if protocol.draws_per_report <= MAX_DRAWS_PER_REPORT and cap * protocol.message_format.size <= 1 << 20:
        protocol.randomize(0.0 if protocol.question == "sum" else 0)


def is_small(protocol: Any) -> bool:
    numbers = (protocol.draws_per_report / 16, protocol.users, getattr(protocol, "domain_size", 2))
    return max(numbers) <= 3 and getattr(protocol, "levels", getattr(protocol, "bits", 1)) <= 4


def sweep(name: str, documents_each: int) -> list[str]:
    draw = _printed_generator()
    verdicts = []
    for instance in INSTANCES:
        if instance.split(" ")[0] != name:
            continue
        original = document_of(instance)
        for _ in range(documents_each):
            parameters = hostile(copy.deepcopy(original["parameters"]), draw, draw.choice([0.1, 0.25, 0.5]))
            verdicts.append(judged(original | {"parameters": parameters}, draw))
    return verdicts


@pytest.mark.parametrize("name", REGISTERED)
def test_a_hostile_document_is_refused_or_true(name):
    verdicts = sweep(name, 6)
    assert set(verdicts) <= {"refused", "accepted", "compared"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTERED)
def test_many_hostile_documents_are_refused_or_true(name):
    assert "refused" in sweep(name, 150)


TREE_SECONDS = 10.0
"""Of processor time; it takes at most 5."""


def tree_document(branching: list[int], bins: int, users: int, blankets: list[dict[str, Any]]) -> dict[str, Any]:
    document = copy.deepcopy(document_of("quantiles/uniform-blanket"))
    parameters = document["parameters"]
    parameters["terms"] |= {"users": users, "epsilon": 1.0, "delta": DELTAS[-1]}
    parameters["domain"]["bins"] = bins
    return {**document, "parameters": parameters | {"branching": branching, "blankets": blankets}}


def odd_blankets(*wholes: int) -> list[dict[str, Any]]:
    """Different on every level, so that no two levels are computed at once."""
    return [
        {"whole": whole, "rest": {"numerator": (1 << 53) // (level + 3) | 1, "bits": 53}}
        for level, whole in enumerate(wholes)
    ]


@pytest.mark.parametrize(
    ("users", "wholes"),
    [
        pytest.param(10**15, [10**9 - level for level in range(20)], marks=pytest.mark.slow),
        (10**12, [(10**9 - level) * (level % 2) for level in range(20)]),
    ],
)
def test_a_tree_of_many_levels_is_verified_in_bounded_time(users, wholes):
    document = tree_document([2] * 20, 1 << 20, users, odd_blankets(*wholes))
    with processor_seconds(TREE_SECONDS):
        assert 0 < from_document(document).guarantee.delta_at(1.0) < 1


@pytest.mark.parametrize(
    ("ratio", "shape", "flood"),
    [((1, 2), "100/1", (65535, 16)), ((16383, 14), "1/1000", (16383, 14)), ((1, 40), "1/1", (1, 40))],
)
def test_correlated_noise_on_many_levels_is_verified_in_bounded_time(ratio, shape, flood):
    document = copy.deepcopy(document_of("quantiles/correlated-noise"))
    parameters = document["parameters"]
    parameters["terms"] |= {"users": 10**6, "epsilon": 1.0, "delta": DELTAS[-1]}
    parameters["domain"]["bins"] = 1 << 20
    probabilities = {"ratio": ratio, "flood_ratio": flood}
    parameters |= {key: {"numerator": a, "bits": b} for key, (a, b) in probabilities.items()}
    parameters |= {"branching": [2] * 20, "flood_shape": shape}
    with processor_seconds(TREE_SECONDS):
        try:
            claim = from_document(document).guarantee.delta_at(1.0)
        except ShuffledpError:
            return
    assert 0 < claim < 1


@pytest.mark.parametrize(
    ("branching", "bins"),
    [
        ([2] * 10**6, 1 << 20),
        ([2] * 21, 1 << 20),
        ([1 << 20], (1 << 20) + 1),
        ([2**100] * 3, 1 << 20),
        ([2], 10**60),
        ([1 << 52], 8),
        ([1 << 52, 2], 8),
    ],
)
def test_a_tree_that_does_not_fit_is_refused_at_once(branching, bins):
    document = tree_document(branching, bins, 10**6, odd_blankets(*[0] * min(len(branching), 30)))
    with processor_seconds(1.0), pytest.raises(ShuffledpError) as refused:
        from_document(document)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def noiseless(name: str, key: str, bits: int = 1100) -> dict[str, Any]:
    document = copy.deepcopy(document_of(name))
    holder = document["parameters"].get("noise", document["parameters"])
    holder[key] = {"numerator": 1, "bits": bits}
    document["parameters"].get("noise", document["parameters"].get("terms")).update(epsilon=1.0, delta=1e-6)
    return document


NOISELESS = [
    ("count/balcer-cheu", "absence"),
    ("histogram/balcer-cheu", "absence"),
    ("histogram/fake-users", "flip"),
    ("count/cheu", "flip"),
    ("histogram/cheu", "flip"),
    ("histogram/count-min", "gamma"),
    ("histogram/shuffled-k-rr", "blanket"),
    ("histogram/solh", "blanket"),
    ("sum/cheu", "flip"),
    ("sum/privacy-blanket", "blanket"),
    ("count/pure-sum", "mix"),
    ("count/randomized-response", "blanket"),
    ("histogram/k-rr", "blanket"),
    ("histogram/unary", "other_one"),
    ("sum/local-laplace", "ratio"),
    ("sum/piecewise", "outside"),
]


@pytest.mark.parametrize(("name", "key"), NOISELESS)
def test_noise_that_underflows_is_refused(name, key):
    document = noiseless(name, key)
    with pytest.raises(ShuffledpError, match="at most 128"):
        from_document(document)


@pytest.mark.parametrize("name", ["count/balcer-cheu", "histogram/balcer-cheu", "histogram/fake-users"])
def test_the_planted_fault_is_seen(name, monkeypatch):
    """A document of any length, masses of 0/0, and ``max(0, nan)`` as delta: the enumeration finds a false claim."""
    monkeypatch.setattr(documents, "MAX_BITS", 1 << 16)
    monkeypatch.setattr(binomial, "LEAST_PROBABILITY_BITS", 1 << 16)
    monkeypatch.setattr(binomial, "_check_finite", lambda *_: None)
    monkeypatch.setattr(binomial.Binomial, "pmf", lambda _, k: np.full(np.shape(k), np.nan))
    for module in ("binomial_noise", "divergence", "fake_users"):
        monkeypatch.setattr(f"shuffledp.privacy.{module}.as_delta", lambda value: min(1.0, max(0.0, value)))
    monkeypatch.setattr("shuffledp.privacy.divergence.positive_part", lambda values: np.nan_to_num(values).clip(0))
    monkeypatch.setattr("shuffledp.privacy.divergence.check_masses", lambda *_, **__: None)
    monkeypatch.setattr("shuffledp.privacy.divergence._missing", lambda *_: 0.0)
    monkeypatch.setattr(binomial_noise.DiscretePair, "__post_init__", lambda _: None)
    document = noiseless(name, "absence" if "noise" in document_of(name)["parameters"] else "flip")
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=GUARANTEE):
        judged(document, _printed_generator())


@pytest.mark.parametrize("name", ["histogram/solh", "histogram/shuffled-k-rr"])
@pytest.mark.parametrize(("epsilon", "bits", "users"), [(1e-12, 127, 2), (1e-300, 76, 10**15), (1e-300, 124, 1000)])
def test_steps_that_exceed_64_bits_are_bounded(name, epsilon, bits, users):
    """Blankets so small and epsilons so close to 0 that the steps of a grid were converted to integers of 64 bits."""
    document = document_of(name)
    document["parameters"]["terms"] |= {"users": users, "epsilon": epsilon, "delta": 1 - 2**-53, "calibration": "given"}
    document["parameters"]["blanket"] = {"numerator": 3, "bits": bits}
    verdict = judged(document, random.Random(1))
    assert verdict in ("refused", "accepted", "compared")
