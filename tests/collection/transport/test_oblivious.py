"""Oblivious HTTP: the vectors of RFC 9458, reports through a relay and a gateway, and relays that lie."""

import http.client
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.device import Client, GatewayKey, ObliviousConnection, Patience, Policy, State
from shuffledp.collection.transport.binary_http import decode_response, encode_integer, encode_request
from shuffledp.errors import DataError, ParameterError, RefusedError, UnreachableError
from tests.collection.device.conftest import Script
from tests.collection.transport.gateway import Gateway, integer, prefixed

SERVER = "https://shuffler.example"
PUBLIC = "31e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e798155"


def configuration(text: str) -> bytes:
    content = bytes.fromhex(text)
    return len(content).to_bytes(2, "big") + content


class Round:
    """A device, a relay, a gateway and a shuffler that answers as it is told."""

    def __init__(self, device, gateway):
        self.relay, self.shuffler, self.gateway = Script(), Script(), gateway
        self.client: Client = device()
        self.client.report("bike")
        self.answers: list[bytes] = []

    def connection(self, **options) -> ObliviousConnection:
        key = GatewayKey.parse(self.gateway.keys)
        return ObliviousConnection(SERVER, relay=self.relay.url + "/relay", gateway=key, timeout=60, **options)

    def forward(self, change=lambda answer: answer):
        """Let the relay forward the next request, and change the answer of the gateway."""

        def answer(handler):
            self.answers.append(self.gateway.answer(self.relay.bodies[-1], "127.0.0.1", self.shuffler.port))
            handler.answer(200, {"Content-Type": "message/ohttp-res"}, change(self.answers[-1]))

        self.relay.answers.append(answer)

    def send(self, attempts=1, **options) -> State:
        with self.connection() as connection:
            patience = Patience(attempts=attempts)
            return self.client.send(connection, patience=patience, wait=lambda _: None, **options)

    def close(self):
        self.relay.close()
        self.shuffler.close()


@pytest.fixture(params=[(1, False), (3, True)], ids=["AES with lengths", "ChaCha with chunks"])
def gateway(request):
    gateway = Gateway(aead=request.param[0])
    gateway.indeterminate = request.param[1]
    return gateway


@pytest.fixture
def collecting(tmp_path, parties, gateway):
    content = parties.task("histogram/balcer-cheu").signed(parties.author).to_bytes()
    started = Round(
        lambda: Client(content, author=parties.author.public, state=tmp_path / "device", policy=Policy()), gateway
    )
    yield started
    started.close()


def test_vectors_of_the_standard():
    key = GatewayKey.parse(configuration(f"010020{PUBLIC}00080001000100010003"))
    assert (key.identifier, key.public.hex(), key.aead_identifier) == (1, PUBLIC, 1)
    request = encode_request("GET", "https", "example.com", "/", {}, b"")
    shortened = request[:-3]  # without the sections at the end, which are empty
    assert (shortened.hex(), request[-3:]) == ("00034745540568747470730b6578616d706c652e636f6d012f", bytes(3))
    ephemeral = bytes.fromhex("bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73")
    sealed, exchange = key.encapsulate(shortened, ephemeral=X25519PrivateKey.from_private_bytes(ephemeral))
    assert sealed.hex() == (
        "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e469135906992e1268c594d2a1"
        "0c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
    )
    response = exchange.open(bytes.fromhex("c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd"))
    assert response.hex() == "0140c8"
    assert decode_response(response).status == 200
    assert "secret" not in repr(exchange)


def test_a_report_passes_relay_and_gateway(collecting):
    collecting.forward()
    assert collecting.send(token="t" * 32) is State.DELIVERED
    (report,), (sealed,) = collecting.shuffler.bodies, collecting.relay.bodies
    assert collecting.shuffler.paths == [f"/v1/tasks/{collecting.client.task.id.hex()}/reports"]
    assert collecting.shuffler.headers[0]["authorization"] == "Bearer " + "t" * 32
    assert collecting.shuffler.headers[0]["content-type"] == "application/octet-stream"
    assert report[:5] == b"SDPR\x01"
    assert collecting.relay.paths == ["/relay"]
    outer = collecting.relay.headers[0]
    assert set(outer) == {"Host", "Accept-Encoding", "Content-Length", "Content-Type", "Accept"}
    assert outer["Content-Type"] == "message/ohttp-req"
    assert collecting.client.task.id not in sealed
    assert report[5:37] not in sealed


def test_all_attempts_carry_the_same_report_in_different_seals(collecting):
    collecting.shuffler.answers = [503]
    for _ in range(2):
        collecting.forward()
    assert collecting.send(attempts=2) is State.DELIVERED
    assert len(set(collecting.shuffler.bodies)) == 1
    assert len(set(collecting.relay.bodies)) == 2
    assert len({len(body) for body in collecting.relay.bodies}) == 1


def test_a_refusal_of_the_shuffler_is_final(collecting):
    collecting.shuffler.answers = [Script.problem(410, "closed")]
    collecting.forward()
    with pytest.raises(RefusedError):
        collecting.send()
    assert collecting.client.state is State.CLOSED


@pytest.mark.parametrize(
    "answer",
    [
        201,
        (200, {"Content-Type": "application/json"}, b"{}"),
        (200, {"Content-Type": "message/ohttp-res"}, b""),
        (200, {"Content-Type": "message/ohttp-res"}, bytes(100)),
        (201, {"Content-Type": "message/ohttp-res"}, bytes(100)),
        (503, {}, b""),
    ],
    ids=["created", "JSON", "empty", "zeros", "created zeros", "unavailable"],
)
def test_a_relay_cannot_claim_that_a_report_was_delivered(collecting, answer):
    collecting.relay.answers = [answer]
    with pytest.raises(UnreachableError):
        collecting.send()
    assert collecting.client.state is State.PENDING
    collecting.forward()
    assert collecting.send() is State.DELIVERED


def test_a_relay_cannot_end_a_report(collecting):
    collecting.relay.answers = [Script.problem(410, "closed")]
    with pytest.raises(RefusedError) as caught:
        collecting.send()
    assert not caught.value.values["final"]
    assert collecting.client.state is State.PENDING


def test_the_answer_to_another_request_does_not_count(collecting):
    collecting.shuffler.answers = [503, 503]
    collecting.forward()
    collecting.forward(lambda _: collecting.answers[0])
    with pytest.raises(UnreachableError, match="does not open"):
        collecting.send(attempts=2)


def test_no_altered_answer_opens(gateway):
    key = GatewayKey.parse(gateway.keys)
    sealed, exchange = key.encapsulate(b"request")
    request, answering = gateway.open(sealed)
    assert request == b"request"
    answer = answering.seal(b"\x01\x40\xc8")
    assert exchange.open(answer) == b"\x01\x40\xc8"
    for at in range(len(answer)):
        altered = bytes(byte ^ (index == at) for index, byte in enumerate(answer))
        with pytest.raises(http.client.HTTPException, match="does not open"):
            exchange.open(altered)
        with pytest.raises(http.client.HTTPException):
            exchange.open(answer[:at])


def test_answers_in_both_framings(gateway):
    document = json.dumps({"a": 1}).encode()
    sealed, exchange = GatewayKey.parse(gateway.keys).encapsulate(b"")
    _, answering = gateway.open(sealed)
    content = gateway.encode(200, [("Content-Type", "application/json")], document)
    response = decode_response(exchange.open(answering.seal(content)))
    assert (response.content, response.getheader("content-TYPE")) == (document, "application/json")
    assert response.getheader("absent") is None


@pytest.mark.parametrize("number", [0, 63, 64, 16_383, 16_384, 2**30 - 1, 2**30, 2**62 - 1])
def test_integers(number):
    coded = encode_integer(number)
    assert len(coded) == {0: 1, 1: 2, 2: 4, 3: 8}[coded[0] >> 6]
    assert int.from_bytes(coded, "big") & ((1 << (8 * len(coded) - 2)) - 1) == number
    assert number < 2 ** (8 * len(coded) - 2)
    assert len(coded) == 1 or number >= 2 ** (4 * len(coded) - 2)


def test_an_integer_of_63_bits_is_refused():
    with pytest.raises(ValueError, match="62 bits"):
        encode_integer(2**62)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "truncated"),
        (b"\x00", "not a response"),
        (b"\x01", "truncated"),
        (b"\x01\x3f", "status 63"),
        (b"\x01\x44\x00", "status 1024"),
        (b"\x01\x40\x64", "truncated"),
        (b"\x01\x40\xc8\x05abc", "truncated"),
        (b"\x01\x40\xc8\x02\x00\x00", "no name"),
        (b"\x01\x40\xc8\x00\x00\x00\x01", "padding"),
        (b"\x03\x40\xc8\x01a", "truncated"),
    ],
)
def test_messages_that_are_refused(message, reason):
    with pytest.raises(http.client.HTTPException, match=reason):
        decode_response(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_response_or_an_error(content):
    for prefix in (b"", b"\x01", b"\x01\x40\xc8", b"\x03\x40\xc8"):
        try:
            response = decode_response(prefix + content)
        except http.client.HTTPException:
            continue
        assert 200 <= response.status < 600


@given(st.binary(max_size=100))
def test_any_bytes_are_keys_or_an_error(content):
    for keys in (content, configuration(f"010020{PUBLIC}") + content, len(content).to_bytes(2, "big") + content):
        try:
            key = GatewayKey.parse(keys)
        except DataError:
            continue
        assert len(key.public) == 32
        assert key.aead_identifier in (1, 3)


def test_the_first_usable_key_is_taken():
    other = configuration("02" + "0010" + "aa" * 65 + "000400010001")  # P-256
    unknown = configuration(f"030020{PUBLIC}000400010002")  # AES-256
    usable = configuration(f"040020{PUBLIC}000800010002" + "00010003")
    key = GatewayKey.parse(other + unknown + usable)
    assert (key.identifier, key.aead_identifier) == (4, 3)
    with pytest.raises(DataError, match="no key that can be used"):
        GatewayKey.parse(other + unknown)
    with pytest.raises(DataError, match="not a list"):
        GatewayKey.parse(b"not found")


def test_a_key_of_low_order_is_refused():
    with pytest.raises(DataError, match="not valid"):
        GatewayKey(1, bytes(32)).encapsulate(b"request")


def test_keys_are_read_from_a_file(tmp_path, gateway):
    file = tmp_path / "gateway.keys"
    file.write_bytes(gateway.keys)
    assert GatewayKey.load(file) == GatewayKey.parse(gateway.keys)
    with pytest.raises(DataError, match="Cannot read the list of gateway keys"):
        GatewayKey.load(tmp_path / "absent")


def test_the_relay_needs_encryption_too(gateway):
    key = GatewayKey.parse(gateway.keys)
    with pytest.raises(ParameterError, match="not encrypted"):
        ObliviousConnection(SERVER, relay="http://relay.example", gateway=key)
    with pytest.raises(ParameterError, match="not a valid server URL"):
        ObliviousConnection("shuffler", relay="https://relay.example", gateway=key)


def test_binary_fields_are_read_back():
    fields = prefixed(b"Retry-After") + prefixed(b"7")
    message = integer(1) + integer(503) + prefixed(fields) + prefixed(b"later") + prefixed(b"")
    response = decode_response(message + b"\0\0\0")
    assert (response.status, response.getheader("Retry-After"), response.content) == (503, "7", b"later")
