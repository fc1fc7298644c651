"""Privacy Pass tokens of type 2 (RFC 9578): blind signatures of an issuer, each bound to one report.

The nonce of a token is the hash of the report that it authorizes, and its challenge names the task. So a token is good
for this report alone, and nobody has to store which tokens were spent. The issuer signs blindly: it knows whom it gave
a token, but not which report the token came with. Issuing is not part of this package.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from shuffledp.durable_files import read_limited
from shuffledp.errors import DataError, ParameterError

_TYPE = b"\x00\x02"
_KEY_BITS, _SALT_SIZE = 2048, 48
_INPUT_SIZE, _TOKEN_SIZE = 98, 354
_MAX_KEY_BYTES = 1 << 13
_NONCE_LABEL = b"shuffledp token\n"
_NAME = re.compile(r"[a-z0-9.:-]{1,255}")
_HEADER = re.compile(rb'[Pp]rivate[Tt]oken +token="?([A-Za-z0-9_-]{472})(?:==|=)?"? *')
_PADDING = PSS(MGF1(hashes.SHA384()), _SALT_SIZE)


def report_nonce(report: bytes) -> bytes:
    """The nonce of the token for a report."""
    return hashlib.sha256(_NONCE_LABEL + report).digest()


def parse_header(header: bytes | None) -> bytes | None:
    """The token of an ``Authorization`` header (RFC 9577), or None if it has none of a valid form."""
    match = _HEADER.fullmatch(header) if header is not None else None
    return None if match is None else base64.urlsafe_b64decode(match[1])


def token_header(token: bytes) -> str:
    """The ``Authorization`` header with a token."""
    if len(token) != _TOKEN_SIZE:
        raise ParameterError(f"A Privacy Pass token of type 2 has {_TOKEN_SIZE} bytes, not {len(token)}.")
    return f'PrivateToken token="{base64.urlsafe_b64encode(token).decode()}"'


@dataclass(frozen=True)
class TokenIssuer:
    """An issuer of tokens: its name and its public key."""

    name: str
    """The host name of the issuer, as in token challenges."""
    key: bytes
    """The public key as the issuer publishes it: a SubjectPublicKeyInfo in DER."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ParameterError(f"{self.name!r} is not the name of a token issuer (expected e.g. issuer.example).")
        self._public  # noqa: B018  # refuses other keys

    @classmethod
    def load(cls, name: str, path: str | Path) -> Self:
        """The issuer with a key file: DER, or its base64 as in an issuer's directory; DataError for other files."""
        content = read_limited(Path(path), _MAX_KEY_BYTES, "key of a token issuer")
        try:
            if not content.startswith(b"0\x82"):
                content = base64.b64decode(content.strip().translate(bytes.maketrans(b"-_", b"+/")) + b"==")
            return cls(name, content)
        except (ValueError, ParameterError):
            raise DataError(
                f"{path} is not the key of a token issuer: an RSA key of {_KEY_BITS} bits in DER, or its base64.",
                path=str(path),
            ) from None

    @property
    def _public(self) -> RSAPublicKey:
        try:
            public = load_der_public_key(self.key)
        except (ValueError, UnsupportedAlgorithm):
            public = None
        if not isinstance(public, RSAPublicKey) or public.key_size != _KEY_BITS:
            raise ParameterError(f"The key of a token issuer must be an RSA key of {_KEY_BITS} bits.")
        return public

    @property
    def key_id(self) -> bytes:
        """The id of the key, which tokens contain."""
        return hashlib.sha256(self.key).digest()

    def challenge(self, task_id: bytes) -> bytes:
        """The challenge of a task (RFC 9577, section 2.1.1): issuer and task, for any origin."""
        name = self.name.encode()
        return _TYPE + len(name).to_bytes(2, "big") + name + len(task_id).to_bytes(1, "big") + task_id + bytes(2)

    def challenge_header(self, task_id: bytes) -> str:
        """The ``WWW-Authenticate`` header that asks for a token for a task."""
        challenge, key = (base64.urlsafe_b64encode(part).decode() for part in (self.challenge(task_id), self.key))
        return f'PrivateToken challenge="{challenge}", token-key="{key}"'

    def token_input(self, task_id: bytes, report: bytes) -> bytes:
        """What the issuer signs blindly for a report; the token is this and the signature."""
        return _TYPE + report_nonce(report) + hashlib.sha256(self.challenge(task_id)).digest() + self.key_id

    def names(self, token: bytes, task_id: bytes) -> bool:
        """Whether a token claims to be of this issuer for a task; its signature is not verified."""
        return hmac.compare_digest(token[34:_INPUT_SIZE], self.token_input(task_id, b"")[34:])

    def verify(self, token: bytes, task_id: bytes, report: bytes) -> bool:
        """Whether this issuer signed a token for this report to this task."""
        content = self.token_input(task_id, report)
        if len(token) != _TOKEN_SIZE or not hmac.compare_digest(token[:_INPUT_SIZE], content):
            return False
        try:
            self._public.verify(token[_INPUT_SIZE:], content, _PADDING, hashes.SHA384())
        except InvalidSignature:
            return False
        return True
