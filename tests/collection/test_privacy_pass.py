"""Privacy Pass tokens that are bound to reports: a vector of RFC 9578, and an issuer in the test that signs blindly."""

import base64
import hashlib
import os
import secrets

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.wire.privacy_pass import TokenIssuer, parse_header, report_nonce, token_header
from shuffledp.errors import DataError, ParameterError

# RFC 9578, appendix B.2, last vector: a challenge with a context of 32 bytes, for any origin
PUBLISHED_KEY = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d01010830"
    "0b0609608648016503040202a2030201300382010f003082010a0282010100cb1aed6b6a95f5b1ce013a4cfcab25b94b2e64"
    "a23034e4250a7eab43c0df3a8c12993af12b111908d4b471bec31d4b6c9ad9cdda90612a2ee903523e6de5a224d6b02f09e5"
    "c374d0cfe01d8f529c500a78a2f67908fa682b5a2b430c81eaf1af72d7b5e794fc98a3139276879757ce453b526ef9bf6ceb"
    "99979b8423b90f4461a22af37aab0cf5733f7597abe44d31c732db68a181c6cbbe607d8c0e52e0655fd9996dc584eca0be87"
    "afbcd78a337d17b1dba9e828bbd81e291317144e7ff89f55619709b096cbb9ea474cead264c2073fe49740c01f00e1091060"
    "66983d21e5f83f086e2e823c879cd43cef700d2a352a9babd612d03cad02db134b7e225a5f0203010001"
)
PUBLISHED_CHALLENGE = bytes.fromhex(
    "0002000e6973737565722e6578616d706c65208e7acc900e393381e8810b7c9e4a68b5163f1f880ab6688a6ffe780923609e880000"
)
PUBLISHED_TOKEN = bytes.fromhex(
    "0002a1aa8b371c37c9a8ddbd7342ab4f9dd5227d5b1600dca6517b60f63143cd43a3bb8a8cf1c59e7a251358ed76fe0ccff6"
    "1044bc79dd261f16020324d22f2d434cca572f8982a9ca248a3056186322d93ca147266121ddeb5632c07f1f71cd27082899"
    "f4bc385b4147a650a3e7efc7d23a743cb944bb53e2ed8b88ee03a9c0b1cf1f73fd7f15c1bd1f850a5a96a34d4ee9f295543f"
    "30ac920825e9a0ce26e924f2c145583019dd14408c565b660e8b702fbea559908b1a8c8f9d21ef22f7cc6a4641c57c146e6c"
    "5497d2890ca230a6749f5f83a8fdd79eba0722f10dff9e81a2fb2d05fa4d989acc2e93f595ae69c98c3daa3b169efcdd6e59"
    "596b2f049f16ba49528761f661032da65a3ee0fe8a22409766e90daf8c60323c16522818c49273c795f26bbab306dc63cfc1"
    "6fe1702af2464028cf819cc647d6f9b8a8f54d7d6585a268fdb8c75f76618c64aba266836a3b2db7cdd739815a021d7ff2b3"
    "6ef91f23"
)


CONTEXT, TASK = PUBLISHED_CHALLENGE[19:51], hashlib.sha256(b"a task").digest()


class Issuer:
    """Signs what it cannot read (RFC 9474): Python integers, for tests only."""

    def __init__(self, name: str = "issuer.example") -> None:
        self._private = rsa.generate_private_key(65537, 2048)
        numbers = self._private.private_numbers()
        self._n, self._d = numbers.public_numbers.n, numbers.d
        key = self._private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.public = TokenIssuer(name, key)

    def sign_blindly(self, blinded: int) -> int:
        return pow(blinded, self._d, self._n)

    def token(self, content: bytes) -> bytes:
        """What device and issuer do together; the issuer sees only the blinded number."""
        salt = os.urandom(48)
        hashed = hashlib.sha384(bytes(8) + hashlib.sha384(content).digest() + salt).digest()
        block = bytes(256 - 48 - 48 - 2) + b"\1" + salt
        mask = b"".join(hashlib.sha384(hashed + counter.to_bytes(4, "big")).digest() for counter in range(5))
        masked = bytearray(a ^ b for a, b in zip(block, mask, strict=False))
        masked[0] &= 0x7F
        encoded = int.from_bytes(bytes(masked) + hashed + b"\xbc", "big")
        factor = secrets.randbelow(self._n - 2) + 2
        blinded = encoded * pow(factor, 65537, self._n) % self._n
        signature = self.sign_blindly(blinded) * pow(factor, -1, self._n) % self._n
        return content + signature.to_bytes(256, "big")


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


def test_the_published_vector():
    published = TokenIssuer("issuer.example", PUBLISHED_KEY)
    assert published.challenge(CONTEXT) == PUBLISHED_CHALLENGE
    assert published.names(PUBLISHED_TOKEN, CONTEXT)
    assert PUBLISHED_TOKEN[34:66] == hashlib.sha256(PUBLISHED_CHALLENGE).digest()
    assert PUBLISHED_TOKEN[66:98] == published.key_id
    # its nonce is not that of a report, so only the signature can be compared
    key = load_der_public_key(PUBLISHED_KEY)
    key.verify(PUBLISHED_TOKEN[98:], PUBLISHED_TOKEN[:98], PSS(MGF1(hashes.SHA384()), 48), hashes.SHA384())
    assert not published.verify(PUBLISHED_TOKEN, CONTEXT, b"any report")


def test_a_token_is_for_its_report_task_and_issuer(issuer):
    public, report = issuer.public, b"SDPR and so on"
    token = issuer.token(public.token_input(TASK, report))
    assert public.verify(token, TASK, report)
    assert token[2:34] == report_nonce(report) == hashlib.sha256(b"shuffledp token\n" + report).digest()
    assert not public.verify(token, TASK, report + b"!")
    assert not public.verify(token, bytes(32), report)
    assert not public.names(token, bytes(32))
    assert not TokenIssuer("other.example", public.key).verify(token, TASK, report)
    assert not Issuer().public.verify(token, TASK, report)
    for at in (0, 1, 2, 33, 34, 66, 97, 98, 200, 353):
        altered = bytes(byte ^ (index == at) for index, byte in enumerate(token))
        assert not public.verify(altered, TASK, report)
    assert not public.verify(token[:-1], TASK, report)
    assert not public.verify(token + b"\0", TASK, report)


def test_headers(issuer):
    token = issuer.token(issuer.public.token_input(TASK, b"report"))
    assert parse_header(token_header(token).encode()) == token
    assert parse_header(token_header(token).replace('"', "").encode()) == token
    assert parse_header(None) is None
    with pytest.raises(ParameterError, match="354 bytes, not 3"):
        token_header(b"abc")
    challenge = issuer.public.challenge_header(TASK)
    assert base64.urlsafe_b64encode(issuer.public.challenge(TASK)).decode() in challenge
    assert challenge.startswith('PrivateToken challenge="')


@given(st.binary(max_size=600))
def test_any_header_is_parsed_or_refused(content):
    for header in (content, b"PrivateToken token=" + base64.urlsafe_b64encode(content)):
        token = parse_header(header)
        assert token is None or len(token) == 354


def test_key_files(issuer, tmp_path):
    file = tmp_path / "issuer.key"
    encoded = base64.urlsafe_b64encode(issuer.public.key)
    for content in (issuer.public.key, encoded, encoded.rstrip(b"=") + b"\n", base64.b64encode(issuer.public.key)):
        file.write_bytes(content)
        assert TokenIssuer.load("issuer.example", file) == issuer.public
    small = rsa.generate_private_key(65537, 1024).public_key()
    wrong = small.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for content in (wrong, b"", b"not a key", b"0\x82 neither", os.urandom(300)):
        file.write_bytes(content)
        with pytest.raises(DataError, match="is not the key of a token issuer"):
            TokenIssuer.load("issuer.example", file)
    with pytest.raises(ParameterError, match="not the name of a token issuer"):
        TokenIssuer("Issuer Example", issuer.public.key)
