"""Enrolment tokens in requests: the published vectors, and an independent computation of the proof."""

import hashlib
import hmac
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.wire.tokens import Credentials, authorization, token_hash, token_id
from shuffledp.errors import ParameterError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "v2" / "token.json").read_bytes())
GOOD = VECTORS["good"][0]
REPORT, HASHED = bytes.fromhex(GOOD["report"]), bytes.fromhex(GOOD["hash"])


def accepted(header: str) -> bool:
    credentials = Credentials.parse(header.encode())
    return credentials is not None and credentials.id == token_id(HASHED) and credentials.authenticate(REPORT, HASHED)


def test_the_good_vector_by_hand():
    hashed = hashlib.sha256(GOOD["token"].encode()).digest()
    identifier = hashlib.sha256(b"shuffledp token id\n" + hashed).hexdigest()[:32]
    proof = hmac.new(hashed, b"shuffledp token\n" + REPORT, "sha256").hexdigest()
    assert (hashed, identifier) == (HASHED, GOOD["id"])
    assert GOOD["authorization"] == f"SDP-Token id={identifier}, mac={proof}"
    assert authorization(GOOD["token"], REPORT, 2) == GOOD["authorization"]
    assert accepted(GOOD["authorization"])
    assert accepted(GOOD["authorization"].replace("SDP-Token", "sdp-token") + " ")


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: case["name"].replace(" ", "-"))
def test_bad_vectors(case):
    assert not accepted(case["authorization"])


def test_version_1_sends_the_token():
    header = authorization(GOOD["token"], REPORT, 1)
    assert header == f"Bearer {GOOD['token']}"
    assert accepted(header)
    credentials = Credentials.parse(header.encode())
    assert not credentials.authenticate(REPORT, token_hash(b"another token, as long"))
    assert GOOD["token"] not in repr(credentials)
    assert GOOD["hash"] not in repr(credentials)


@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "x" * 513, "ümlaut" * 4])
def test_invalid_tokens_are_refused(token):
    for version in (1, 2):
        with pytest.raises(ParameterError, match="A token must consist of"):
            authorization(token, REPORT, version)


@given(st.binary(max_size=150))
def test_any_header_is_parsed_or_refused(content):
    for header in (content, b"SDP-Token " + content, b"SDP-Token id=" + content, b"Bearer " + content):
        credentials = Credentials.parse(header)
        assert credentials is None or len(credentials.id) == 16


def test_no_header():
    assert Credentials.parse(None) is None
