"""A relay and a gateway for tests, written from RFC 9458 and RFC 9292 without code of the package."""

import http.client
import os

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

_AEADS = {1: (AEAD.AES_128_GCM, AESGCM, 16), 3: (AEAD.CHACHA20_POLY1305, ChaCha20Poly1305, 32)}


def _extract(salt: bytes, material: bytes) -> bytes:
    digest = hmac.HMAC(salt or b"\0" * 32, hashes.SHA256())
    digest.update(material)
    return digest.finalize()


def _expand(key: bytes, info: bytes, length: int) -> bytes:
    return HKDFExpand(hashes.SHA256(), length, info).derive(key)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    length = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + length], "big") & ((1 << (8 * length - 2)) - 1)
    return value, at + length


def integer(value: int) -> bytes:
    return (value | 0x80000000).to_bytes(4, "big")  # always four bytes: lengths need not be the shortest


def prefixed(value: bytes) -> bytes:
    return integer(len(value)) + value


class Gateway:
    """Opens requests, asks a server, and seals its answers."""

    def __init__(self, aead: int = 1, identifier: int = 7) -> None:
        self.secret = X25519PrivateKey.generate()
        self.public = self.secret.public_key().public_bytes_raw()
        self.aead, self.identifier = aead, identifier
        self.indeterminate = False
        """Whether answers have chunks instead of lengths."""

    @property
    def keys(self) -> bytes:
        configuration = bytes([self.identifier]) + b"\0\x20" + self.public + b"\0\4\0\1" + bytes([0, self.aead])
        return len(configuration).to_bytes(2, "big") + configuration

    def open(self, sealed: bytes) -> tuple[bytes, "Answering"]:
        header, enc = sealed[:7], sealed[7:39]
        assert header == bytes([self.identifier]) + b"\0\x20\0\1" + bytes([0, self.aead])
        suite = Suite(KEM.X25519, KDF.HKDF_SHA256, _AEADS[self.aead][0])
        request = suite.decrypt(sealed[7:], self.secret, info=b"message/bhttp request\0" + header)
        return request, Answering(self, header, enc)

    def answer(self, sealed: bytes, host: str, port: int) -> bytes:
        """The sealed answer of a server to a sealed request."""
        request, answering = self.open(sealed)
        at, parts = 1, []
        assert request[0] == 0
        for _ in range(6):  # method, scheme, authority, path, fields, content
            length, at = _integer(request, at)
            parts.append(request[at : at + length])
            at += length
        method, scheme, authority, path, fields, content = parts
        assert (scheme, authority) == (b"https", b"shuffler.example")
        headers, at = {}, 0
        while at < len(fields):
            pair = []
            for _ in range(2):
                length, at = _integer(fields, at)
                pair.append(fields[at : at + length].decode())
                at += length
            headers[pair[0]] = pair[1]
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request(method.decode(), path.decode(), content, headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return answering.seal(self.encode(response.status, response.getheaders(), body))

    def encode(self, status: int, headers: list[tuple[str, str]], body: bytes) -> bytes:
        lines = b"".join(prefixed(part.lower().encode()) for pair in headers for part in pair)
        if self.indeterminate:
            early = integer(3) + integer(103) + prefixed(b"link") + prefixed(b"x") + integer(0)
            chunks = b"".join(prefixed(body[at : at + 7]) for at in range(0, len(body), 7))
            return early + integer(status) + lines + integer(0) + chunks + integer(0) + integer(0) + b"\0" * 5
        return integer(1) + integer(status) + prefixed(lines) + prefixed(body)  # trailers may be left out


class Answering:
    """Seals the answer to one request."""

    def __init__(self, gateway: Gateway, header: bytes, enc: bytes) -> None:
        self._cipher, self._size = _AEADS[gateway.aead][1:]
        self._enc = enc
        shared = gateway.secret.exchange(X25519PublicKey.from_public_bytes(enc))
        kem, suite = b"KEM\0\x20", b"HPKE" + header[1:]
        extracted = _extract(b"", b"HPKE-v1" + kem + b"eae_prk" + shared)
        secret = _expand(extracted, b"\0\x20HPKE-v1" + kem + b"shared_secret" + enc + gateway.public, 32)
        info = _extract(b"", b"HPKE-v1" + suite + b"info_hash" + b"message/bhttp request\0" + header)
        context = b"\0" + _extract(b"", b"HPKE-v1" + suite + b"psk_id_hash") + info
        scheduled = _extract(secret, b"HPKE-v1" + suite + b"secret")
        exporter = _expand(scheduled, b"\0\x20HPKE-v1" + suite + b"exp" + context, 32)
        length = bytes([0, self._size])
        self._secret = _expand(exporter, length + b"HPKE-v1" + suite + b"sec" + b"message/bhttp response", self._size)

    def seal(self, response: bytes) -> bytes:
        nonce = os.urandom(self._size)
        key, iv = (
            HKDF(hashes.SHA256(), length, salt=self._enc + nonce, info=info).derive(self._secret)
            for info, length in ((b"key", self._size), (b"nonce", 12))
        )
        return nonce + self._cipher(key).encrypt(iv, response, None)
