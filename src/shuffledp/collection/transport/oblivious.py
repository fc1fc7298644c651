"""Oblivious HTTP (RFC 9458), the side of the client: requests to a server through a relay and a gateway.

The relay sees who sends, but neither request nor answer; the gateway and the server see the request, but not who sent
it. Only an answer that opens with the key of its request counts: whatever the relay says in the clear is at most a
reason to retry.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from shuffledp.collection.transport.binary_http import BinaryResponse, decode_response, encode_request
from shuffledp.collection.transport.connection import Connection, Response, ServerUrl
from shuffledp.durable_files import read_limited
from shuffledp.errors import DataError

KEYS_TYPE = "application/ohttp-keys"
_REQUEST_TYPE = "message/ohttp-req"
_RESPONSE_TYPE = "message/ohttp-res"
_REQUEST_INFO = b"message/bhttp request\0"
_RESPONSE_LABEL = b"message/bhttp response"
_X25519_HKDF_SHA256 = 0x0020
_HKDF_SHA256 = 0x0001
_PUBLIC_KEY_SIZE = 32
_NONCE_SIZE = 12
_TAG_SIZE = 16
_MAX_KEYS_BYTES = 1 << 16


@dataclass(frozen=True)
class _Aead:
    """An encryption of RFC 9180, section 7.3."""

    cipher: type[AESGCM] | type[ChaCha20Poly1305]
    key_size: int

    @property
    def response_nonce_size(self) -> int:
        return max(self.key_size, _NONCE_SIZE)


_AEADS = {0x0001: _Aead(AESGCM, 16), 0x0003: _Aead(ChaCha20Poly1305, 32)}


@dataclass(frozen=True)
class GatewayKey:
    """A public key of a gateway, with the algorithms that requests use."""

    identifier: int
    public: bytes
    aead_identifier: int = 0x0001

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The first usable key in a file of the type application/ohttp-keys; DataError if there is none."""
        return cls.parse(read_limited(Path(path), _MAX_KEYS_BYTES, "list of gateway keys"), source=str(path))

    @classmethod
    def parse(cls, keys: bytes, *, source: str = "The list of gateway keys") -> Self:
        """The first key with X25519, HKDF-SHA256 and AES-128-GCM or ChaCha20-Poly1305 (RFC 9458, section 3)."""
        try:
            for configuration in _lengths_and_values(keys):
                key = cls._usable(configuration)
                if key is not None:
                    return key
        except (IndexError, ValueError):
            raise DataError(
                f"{source} is not a list of gateway keys ({KEYS_TYPE}, RFC 9458). Download it from the gateway again."
            ) from None
        raise DataError(
            f"{source} has no key that can be used (needed: X25519, HKDF-SHA256, and AES-128-GCM or ChaCha20-Poly1305)."
        )

    @classmethod
    def _usable(cls, configuration: bytes) -> Self | None:
        identifier, kem = configuration[0], int.from_bytes(configuration[1:3], "big")
        if kem != _X25519_HKDF_SHA256:
            return None
        public, rest = configuration[3 : 3 + _PUBLIC_KEY_SIZE], configuration[3 + _PUBLIC_KEY_SIZE :]
        (suites,) = _lengths_and_values(rest)
        if not suites or len(suites) % 4:
            raise ValueError("incomplete algorithms")
        for start in range(0, len(suites), 4):
            kdf, aead = (int.from_bytes(suites[at : at + 2], "big") for at in (start, start + 2))
            if kdf == _HKDF_SHA256 and aead in _AEADS:
                return cls(identifier, public, aead)
        return None

    def encapsulate(self, request: bytes, *, ephemeral: X25519PrivateKey | None = None) -> tuple[bytes, SealedExchange]:
        """The encrypted request, and what opens its answer. ``ephemeral`` is for test vectors only."""
        ephemeral = ephemeral or X25519PrivateKey.generate()
        enc = ephemeral.public_key().public_bytes_raw()
        try:
            shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(self.public))
        except ValueError:  # a point of low order
            raise DataError("The gateway key is not valid: nothing can be encrypted to it.") from None
        algorithms = b"".join(
            number.to_bytes(2, "big") for number in (_X25519_HKDF_SHA256, _HKDF_SHA256, self.aead_identifier)
        )
        header = bytes([self.identifier]) + algorithms
        aead = _AEADS[self.aead_identifier]
        schedule = _KeySchedule(shared, enc + self.public, _REQUEST_INFO + header, b"HPKE" + algorithms)
        key, nonce = schedule.derive(b"key", aead.key_size), schedule.derive(b"base_nonce", _NONCE_SIZE)
        sealed = aead.cipher(key).encrypt(nonce, request, None)
        secret = schedule.export(_RESPONSE_LABEL, aead.response_nonce_size)
        return header + enc + sealed, SealedExchange(aead, enc, secret)


@dataclass(frozen=True)
class SealedExchange:
    """Opens the answer to one request (RFC 9458, section 4.4)."""

    _aead: _Aead
    _enc: bytes
    _secret: bytes

    def __repr__(self) -> str:
        return "SealedExchange()"

    def open(self, answer: bytes) -> bytes:
        """The binary response; HTTPException if the answer was not sealed for this request."""
        size = self._aead.response_nonce_size
        if len(answer) < size + _TAG_SIZE:
            raise HTTPException("the answer of the gateway is truncated")
        pseudorandom = hmac.digest(self._enc + answer[:size], self._secret, "sha256")
        key = _expand(pseudorandom, b"key", self._aead.key_size)
        try:
            return self._aead.cipher(key).decrypt(_expand(pseudorandom, b"nonce", _NONCE_SIZE), answer[size:], None)
        except InvalidTag:
            raise HTTPException("the answer of the gateway does not open with the key of the request") from None


class _KeySchedule:
    """HPKE in base mode with X25519 and HKDF-SHA256 (RFC 9180): key, nonce and exported secrets of the sender.

    The package ``cryptography`` seals and opens, but does not export secrets, which answers need.
    """

    def __init__(self, shared: bytes, kem_context: bytes, info: bytes, suite: bytes) -> None:
        kem = b"KEM" + _X25519_HKDF_SHA256.to_bytes(2, "big")
        self._suite = suite
        secret = _labeled_expand(_labeled_extract(b"", b"eae_prk", shared, kem), b"shared_secret", kem_context, 32, kem)
        hashes = [_labeled_extract(b"", b"psk_id_hash", b"", suite), _labeled_extract(b"", b"info_hash", info, suite)]
        self._context = b"\0" + b"".join(hashes)
        self._secret = _labeled_extract(secret, b"secret", b"", suite)

    def derive(self, label: bytes, size: int) -> bytes:
        """The key ("key") or the nonce ("base_nonce")."""
        return _labeled_expand(self._secret, label, self._context, size, self._suite)

    def export(self, label: bytes, size: int) -> bytes:
        """A secret for another purpose (RFC 9180, section 5.3)."""
        return _labeled_expand(self.derive(b"exp", 32), b"sec", label, size, self._suite)


def _labeled_extract(salt: bytes, label: bytes, material: bytes, suite: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")


def _labeled_expand(pseudorandom: bytes, label: bytes, info: bytes, size: int, suite: bytes) -> bytes:
    return _expand(pseudorandom, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, size)


def _expand(pseudorandom: bytes, info: bytes, size: int) -> bytes:
    """HKDF-Expand with SHA-256 for at most one block, which is all that is needed here."""
    if size > 32:
        raise ValueError("only one block is expanded")
    return hmac.digest(pseudorandom, info + b"\1", "sha256")[:size]


def _lengths_and_values(content: bytes) -> Iterator[bytes]:
    """Values that follow their lengths of two bytes; ValueError if the last one is truncated."""
    while content:
        length = int.from_bytes(content[:2], "big")
        value, content = content[2 : 2 + length], content[2 + length :]
        if len(value) < length or not length:
            raise ValueError("truncated")
        yield value


class ObliviousConnection(Connection):
    """A connection to a server through a relay and a gateway; used like a ``Connection``.

    ``relay`` is the address to which encrypted requests are posted, ``server`` the one that the gateway asks. The
    gateway's key has to come with the program or another authentic way, the same for everybody: a key that is given
    to one device alone would identify it.
    """

    def __init__(
        self,
        server: str,
        *,
        relay: str,
        gateway: GatewayKey,
        insecure_http: bool = False,
        timeout: float = 30.0,
        authorities: str | Path | None = None,
    ) -> None:
        self._gateway = gateway
        self._server = ServerUrl.parse(server)
        super().__init__(relay, insecure_http=insecure_http, timeout=timeout, authorities=authorities)

    def _request_with_retry(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], max_bytes: int
    ) -> tuple[Response, bytes]:
        server = self._server
        request = encode_request(method, server.scheme, server.authority, server.path + path, headers, body or b"")
        sealed, exchange = self._gateway.encapsulate(request)
        outer_headers = {"Content-Type": _REQUEST_TYPE, "Accept": _RESPONSE_TYPE}
        limit = 2 * max_bytes + (1 << 12)  # the binary form has headers too
        response, content = super()._request_with_retry("POST", "", sealed, outer_headers, limit)
        if response.status != 200:
            if response.status < 300:
                raise HTTPException(f"the relay answered {response.status} instead of an answer of the gateway")
            return response, b""  # not from the server: no problem document of the relay is believed
        if (response.getheader("Content-Type") or "").strip().lower() != _RESPONSE_TYPE:
            raise HTTPException(f"the relay did not answer with {_RESPONSE_TYPE}")
        answer: BinaryResponse = decode_response(exchange.open(content))
        return answer, answer.content[: max_bytes + 1]
