"""Frequent strings of a column of Spark: tallied by the workers, decoded on the driver."""

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import DataError, ParameterError

WORDS = ["bus"] * 900 + ["Cab"] * 700 + ["van"] * 400
ASKED = {"alphabet": "a-z", "max_length": 3, "case_fold": True, "epsilon": 6.0, "delta": 1e-3}


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(word, number) for number, word in enumerate(WORDS)]
    return spark.createDataFrame(rows, "word string, person int").repartition(3).cache()


def test_frequent_strings_are_found(frame):
    estimate = sdp.strings(sdp.spark.table(frame)["word"], **ASKED)
    assert estimate.users == len(WORDS)
    assert {"bus", "cab"} <= set(estimate.strings) <= {"bus", "cab", "van"}


def test_one_string_per_user(frame):
    """Spellings of one string are one value: with pick="value" each of a user's two strings is as likely."""
    rows = frame.unionByName(frame).unionByName(frame.selectExpr("'BUS' as word", "person"))
    column = sdp.spark.table(rows)["word"]
    estimate = sdp.strings(column, user="person", pick="value", **ASKED)
    assert estimate.users == len(WORDS)
    assert estimate.guarantee.neighbours == "replace-one-user"
    counts = dict(zip(estimate.strings, estimate.counts, strict=True))
    assert abs(counts["bus"] - (900 + 1100 / 2)) < 300


def test_a_given_protocol_and_silos(frame, tmp_path):
    domain = sdp.Strings("a-z", 3, case_fold=True)
    protocol = sdp.plan(sdp.FrequentStrings(len(WORDS), domain), epsilon=6.0, delta=1e-3).best
    estimate = sdp.spark.run(frame, "word", protocol)
    assert {"bus", "cab"} <= set(estimate.strings)
    with pytest.raises(ParameterError, match="not a function of counts: use the route partial"):
        sdp.spark.run(frame, "word", protocol, route="counts")
    written = sdp.spark.randomize(frame, "word", protocol, out=tmp_path / "silo")
    mixed = sdp.spark.mix(written, out=tmp_path / "mixed")
    found = protocol.estimate(sdp.spark.tally(mixed, protocol))
    assert {"bus", "cab"} <= set(found.strings)


def test_strings_outside_the_domain_are_refused_alike(spark):
    words = ["bus", "x1", None, " bus", ""]
    frame = spark.createDataFrame([(word,) for word in words], "word string")
    sentences = []
    for column in (sdp.spark.table(frame)["word"], np.array(words, dtype=object)):
        with pytest.raises(DataError) as caught:
            sdp.strings(column, **ASKED)
        sentences.append(sorted(str(caught.value).split()))
    assert sentences[0] == sentences[1]
