"""A protocol as a document: exactly the same protocol comes back, and nothing else is accepted."""

import copy
import json
import math
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.count.cheu import CheuCount
from shuffledp.protocols.count.correlated_noise import CorrelatedNoiseCount
from shuffledp.protocols.count.discrete_laplace import DiscreteLaplaceCount
from shuffledp.protocols.count.pure_sum import PureSumCount
from shuffledp.protocols.count.randomized_response import RandomizedResponse
from shuffledp.protocols.documents import from_document, public_parameters, to_document
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.histogram.k_rr import KRandomizedResponse
from shuffledp.protocols.sum.duchi import DuchiSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

TARGET = {"users": 200, "epsilon": 1.0, "delta": 1e-3}
PROTOCOLS = [
    RandomizedResponse.calibrate(**TARGET),
    CheuCount.calibrate(**TARGET, honest_fraction=0.75),
    CorrelatedNoiseCount.calibrate(**TARGET, encoding="unary", split=0.6, calibration="paper"),
    PureSumCount.calibrate(**TARGET),
    DiscreteLaplaceCount.calibrate(**TARGET),
    KRandomizedResponse.calibrate(**TARGET, categories=["a", "é", "c"]),
    KRandomizedResponse.calibrate(**TARGET, domain_size=5),
    DuchiSum.calibrate(**TARGET, domain=Interval(-1, 0.1)),
    DuchiSum.calibrate(**TARGET, domain=Interval(-1, 7, whole=True)),
    CorrelatedNoiseCount.calibrate(**TARGET, split=0.6),
    CorrelatedNoiseHistogram.calibrate(**TARGET, domain_size=3, split=0.6, weighted=True),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: f"{each.question}/{each.name}")
def test_a_document_brings_the_same_protocol_back(protocol):
    written = json.dumps(to_document(protocol), allow_nan=False)
    back = from_document(json.loads(written))
    assert back == protocol
    assert type(back) is type(protocol)
    assert back.guarantee.to_json() == protocol.guarantee.to_json()
    assert to_document(back) == json.loads(written)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: f"{each.question}/{each.name}")
def test_parameters_for_people(protocol):
    shown = public_parameters(protocol)
    json.dumps(shown, allow_nan=False)
    assert not {"epsilon", "delta", "calibration", "categories", "terms"} & set(shown)
    assert shown["users"] == 200


def test_probabilities_are_exact():
    blanket = Dyadic.at_least(Fraction(1, 3))
    protocol = RandomizedResponse(Target(10, 2.0, 0.0), blanket)
    parameters = to_document(protocol)["parameters"]
    assert parameters["blanket"] == {"numerator": blanket.numerator, "bits": 64}
    assert public_parameters(protocol)["blanket"]["value"] == pytest.approx(1 / 3)
    assert from_document(to_document(protocol)).blanket.fraction == blanket.fraction


def correlated() -> dict:
    return copy.deepcopy(to_document(PROTOCOLS[2]))


def pure() -> dict:
    return copy.deepcopy(to_document(PROTOCOLS[3]))


@pytest.mark.parametrize(
    "document", [None, [], "x", 3, {}, {"version": 1}, correlated() | {"more": 1}, {"version": 1, "protocol": "x"}]
)
def test_documents_without_their_keys(document):
    with pytest.raises(ParameterError):
        from_document(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 2),
        ("version", "1"),
        ("version", None),
        ("protocol", "count/nothing"),
        ("protocol", "nothing"),
        ("protocol", "cheu"),
        ("protocol", None),
        ("parameters", None),
        ("parameters", []),
        ("parameters", {}),
    ],
)
def test_documents_of_something_else(key, value):
    with pytest.raises(ShuffledpError):
        from_document(correlated() | {key: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flood_shape", "1/0"),
        ("flood_shape", "a/b"),
        ("flood_shape", 2),
        ("flood_shape", None),
        ("ratio", 0.5),
        ("ratio", {"numerator": 1}),
        ("ratio", {"numerator": 3, "bits": 1}),
        ("ratio", {"numerator": -1, "bits": 4}),
        ("ratio", {"numerator": 1, "bits": -4}),
        ("ratio", {"numerator": 1.0, "bits": 4}),
        ("ratio", {"numerator": True, "bits": 4}),
        ("ratio", {"numerator": 1, "bits": 4, "more": 0}),
        ("encoding", "binary"),
        ("encoding", 1),
        ("encoding", None),
        ("terms", None),
        ("terms", {"users": 10}),
    ],
)
def test_parameters_that_cannot_be(name, value):
    document = correlated()
    document["parameters"][name] = value
    with pytest.raises(ShuffledpError):
        from_document(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("users", 0),
        ("users", 10.0),
        ("users", True),
        ("users", "10"),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("epsilon", -1),
        ("epsilon", True),
        ("delta", 1.0),
        ("delta", -1e-9),
        ("honest_fraction", 0.0),
        ("honest_fraction", 2),
        ("calibration", 5),
    ],
)
def test_terms_that_cannot_be(name, value):
    document = correlated()
    document["parameters"]["terms"][name] = value
    with pytest.raises(ShuffledpError):
        from_document(document)


@pytest.mark.parametrize("weights", [5, "12", None, [1.5, 2], [[1], [2]], {"a": 1}])
def test_lists_that_cannot_be(weights):
    document = pure()
    document["parameters"]["weights"] = weights
    with pytest.raises(ShuffledpError):
        from_document(document)


def test_missing_and_unknown_parameters_are_named():
    document = correlated()
    del document["parameters"]["ratio"]
    document["parameters"]["rate"] = 1
    with pytest.raises(ParameterError, match="rate, ratio"):
        from_document(document)


def test_a_document_that_claims_too_much_has_no_guarantee():
    document = copy.deepcopy(to_document(PROTOCOLS[0]))
    document["parameters"]["terms"]["epsilon"] = 0.9
    with pytest.raises(ParameterError, match="more than the claimed"):
        from_document(document).guarantee  # noqa: B018


def test_an_interval_is_checked_again():
    document = copy.deepcopy(to_document(PROTOCOLS[7]))
    document["parameters"]["domain"]["lower"] = 5
    with pytest.raises(ShuffledpError):
        from_document(document)


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_value_in_place_of_a_shape(value):
    document = correlated()
    document["parameters"]["flood_shape"] = value
    try:
        back = from_document(document)
    except ShuffledpError:
        return
    assert isinstance(back.flood.flood_shape, Fraction)


def clustered() -> dict:
    return copy.deepcopy(to_document(PROTOCOLS[-1]))


def test_versions_of_the_parameters():
    """Clusters are version 2, negative binomial pairs version 1; neither is read as the other, or with keys of both."""
    assert correlated()["version"] == 1
    assert clustered()["version"] == 2
    for document in (correlated(), clustered()):
        for version in (3 - document["version"], 3, "2", True, 2.5, None):
            with pytest.raises(ParameterError, match="version"):
                from_document(document | {"version": version})
    mixed = clustered()
    mixed["parameters"]["flood_shape"] = "1/1"
    less = clustered()
    del less["parameters"]["singles"]
    nested = clustered()
    nested["parameters"]["flood"] = {}
    for document in (mixed, less, nested):
        with pytest.raises(ParameterError, match="correlated noise need"):
            from_document(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster_rate", "0/1"),
        ("cluster_rate", "-3/1"),
        ("cluster_rate", "701/1"),
        ("cluster_rate", f"1/{2**65}"),
        ("cluster_rate", "1e9"),
        ("cluster_rate", math.nan),
        ("cluster_rate", 16),
        ("cluster_rate", None),
        ("singles", "-1/2"),
        ("singles", f"{10**38}/1"),
        ("singles", "1/0"),
        ("clusters", []),
        ("clusters", None),
        ("clusters", [[3, 5]]),
        ("clusters", [[3, 5, 1, 1]]),
        ("clusters", [[0, 5, 1]]),
        ("clusters", [[-2, 5, 1]]),
        ("clusters", [[5, 3, 1]]),
        ("clusters", [[3, 5, 0]]),
        ("clusters", [[3, 5, -1]]),
        ("clusters", [[3, 5, 2**33]]),
        ("clusters", [[3, 5, 1.0]]),
        ("clusters", [[3, 5, True]]),
        ("clusters", [[3, 5, math.nan]]),
        ("clusters", [[3, 2**14 + 1, 1]]),
        ("clusters", [["0x3", 5, 1], [4, 6, 1]]),
        ("clusters", [[6, 8, 1], [3, 5, 1]]),
        ("clusters", [[3, 5, 1], [5, 6, 1]]),
        ("clusters", [[size, size, 1] for size in range(1, 66)]),
        ("clusters", [[1, 1, 1]] * 100_000),
        ("clusters", "3-5"),
    ],
)
def test_hostile_clusters(name, value):
    document = clustered()
    document["parameters"][name] = value
    with pytest.raises(ParameterError) as refusal:
        from_document(document)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 100_000


@pytest.mark.parametrize(
    ("rate", "clusters", "singles", "ratio"),
    [
        ("700/1", [[1, 2**14, 1]], "0/1", (1, 1)),
        ("700/1", [[1, 1, 2**32], [2**14, 2**14, 2**32]], "0/1", (1, 1)),
        ("700/1", [[2**14, 2**14, 1]], "1000000/1", (1, 1)),
        ("3/1", [[1, 3, 1]], "1000000/1", (1, 1)),
        ("3/1", [[1, 3, 1]], "1/1", (2**40 - 1, 40)),
        ("700/1", [[2, 2, 1], [900, 900, 1]], "500/1", (2**12 - 1, 12)),
        (f"1/{2**64}", [[1, 1, 1]], f"1/{2**64}", (1, 64)),
    ],
)
def test_clusters_that_take_long_are_refused_soon(rate, clusters, singles, ratio):
    """Within ten seconds even on a busy machine: refused, or too little noise."""
    document = clustered()
    numerator, bits = ratio
    document["parameters"] |= {"cluster_rate": rate, "clusters": clusters, "singles": singles}
    document["parameters"]["ratio"] = {"numerator": numerator, "bits": bits}
    start = time.process_time()
    with pytest.raises(ShuffledpError) as refusal:
        from_document(document).guarantee  # noqa: B018
    assert "\n" not in str(refusal.value)
    assert time.process_time() - start < 10


def test_a_probability_over_a_huge_power_is_refused():
    document = correlated()
    document["parameters"]["ratio"] = {"numerator": 0, "bits": 10**13}
    with pytest.raises(ShuffledpError):
        from_document(document)


def test_a_pair_has_two_parts():
    document = to_document(CountMinHistogram.calibrate(users=20_000, epsilon=1.0, delta=1e-6, domain_size=50))
    document["parameters"]["hashes"] = [[1, 2, 3], *document["parameters"]["hashes"][1:]]
    with pytest.raises(ShuffledpError):
        from_document(document)


def tokens() -> dict:
    return to_document(BalcerCheuCount.calibrate(users=100, epsilon=1, delta=1e-6))


def test_the_target_of_tokens_stands_with_their_noise():
    document = tokens()
    assert list(document["parameters"]) == ["noise", "padded"]
    assert list(document["parameters"]["noise"]) == [
        "users",
        "absence",
        "epsilon",
        "delta",
        "honest_fraction",
        "calibration",
    ]
    assert from_document(document) == BalcerCheuCount.calibrate(users=100, epsilon=1, delta=1e-6)


def test_there_is_one_form_only():
    """The same parameters in another place are not the same document."""
    flat, split, doubled, bare = tokens(), tokens(), tokens(), tokens()
    noise = flat["parameters"].pop("noise")
    flat["parameters"] |= {"absence": noise.pop("absence"), "terms": noise}
    split["parameters"]["absence"] = split["parameters"]["noise"].pop("absence")
    doubled["parameters"]["absence"] = doubled["parameters"]["noise"]["absence"]
    bare["parameters"]["noise"] = [1, 2]
    for wrong in (flat, split, doubled, bare):
        with pytest.raises(ParameterError, match="under noise"):
            from_document(wrong)
    plain = correlated()
    plain["parameters"]["target"] = plain["parameters"].pop("terms")
    with pytest.raises(ParameterError, match="missing or unknown: target, terms"):
        from_document(plain)
