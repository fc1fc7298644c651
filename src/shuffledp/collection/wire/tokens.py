"""Enrolment tokens in requests: the token itself (version 1), or a proof that is bound to one report (version 2).

Whoever terminates TLS sees a request. A token that is sent as it is can be moved to another report there; a bound one
authenticates the bytes of the report that it came with, and no others.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from shuffledp.errors import ParameterError

TOKEN_ID_SIZE = 16
_TOKEN = "[A-Za-z0-9._~+/=-]{16,512}"  # noqa: S105
_VALID = re.compile(_TOKEN)
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(" + _TOKEN.encode() + rb") *")
_BOUND = re.compile(rb"[Ss][Dd][Pp]-[Tt][Oo][Kk][Ee][Nn] +id=([0-9a-f]{32}), *mac=([0-9a-f]{64}) *")
_ID_LABEL, _MAC_LABEL = b"shuffledp token id\n", b"shuffledp token\n"
CHALLENGE = "Bearer, SDP-Token"
"""The schemes that a shuffler asks for."""


def token_hash(token: bytes) -> bytes:
    """The SHA-256 of a token, which the shuffler has; no salt is needed, since tokens have 256 random bits."""
    return hashlib.sha256(token).digest()


def token_id(hashed: bytes) -> bytes:
    """What a bound token is looked up by; it reveals nothing of the hash, which is the key of the proof."""
    return hashlib.sha256(_ID_LABEL + hashed).digest()[:TOKEN_ID_SIZE]


def check_token(token: str) -> None:
    """ParameterError if this cannot be a token."""
    if not _VALID.fullmatch(token):
        raise ParameterError("A token must consist of 16 to 512 letters, digits and characters of ._~+/=-")


def authorization(token: str, report: bytes, version: int) -> str:
    """The ``Authorization`` header for a report of a task of a version; ParameterError if the token is not valid."""
    check_token(token)
    if version == 1:
        return f"Bearer {token}"
    hashed = token_hash(token.encode())
    return f"SDP-Token id={token_id(hashed).hex()}, mac={_mac(hashed, report).hex()}"


@dataclass(frozen=True)
class Credentials:
    """What a request says about its token: the hash of the token itself, or a proof for one report."""

    id: bytes
    hashed: bytes | None = field(default=None, repr=False)
    """The hash of the token, if the token itself was sent."""
    mac: bytes | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, header: bytes | None) -> Credentials | None:
        """The credentials of an ``Authorization`` header, or None if it has none of a valid form."""
        if header is None:
            return None
        if match := _BOUND.fullmatch(header):
            return cls(bytes.fromhex(match[1].decode()), mac=bytes.fromhex(match[2].decode()))
        if match := _BEARER.fullmatch(header):
            hashed = token_hash(match[1])
            return cls(token_id(hashed), hashed)
        return None

    def authenticate(self, report: bytes, hashed: bytes) -> bool:
        """Whether the request shows that its sender has the token with this hash, and uses it for this report."""
        if self.mac is None:
            return self.hashed == hashed
        return hmac.compare_digest(self.mac, _mac(hashed, report))


def _mac(hashed: bytes, report: bytes) -> bytes:
    return hmac.digest(hashed, _MAC_LABEL + report, "sha256")
