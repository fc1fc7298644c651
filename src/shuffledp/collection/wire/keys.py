"""Keys: Ed25519 for signatures; X25519 for sealing, for round keys of the hybrid suite together with ML-KEM-768.

Files of private keys are accessible to their owner alone.

A file may state when its key expires. An expired private key signs nothing, and opens nothing for a server; an expired
author is not trusted for what begins later.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey

from shuffledp.collection.wire.times import time_from, time_to
from shuffledp.durable_files import read_limited, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError, ShuffledpError
from shuffledp.output import check_writable

KEY_SIZE = 32
SIGNATURE_SIZE = 64
MAX_KEY_BYTES = 4096
"""Maximum size of a key file."""
_ML_KEM_SIZE = 1184
"""Bytes of a public key of ML-KEM-768."""
_FIELD = 2**255 - 19
_LOW_ORDER = {
    0,
    1,
    _FIELD - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}
"""Coordinates of the points of X25519 with an order of at most 8, on the curve and on its twist."""


class ExpiredKeyError(ShuffledpError):
    """A key is used after its expiry; its owner has to act."""


def to_base64(content: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def from_base64(value: Any, size: int | None = None) -> bytes:
    """Decode a string exactly as ``to_base64`` writes it, of ``size`` bytes if given."""
    if isinstance(value, str) and value.isascii():
        try:
            content = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        except ValueError:
            content = b""
        if to_base64(content) == value and (size is None or len(content) == size):
            return content
    length = "bytes" if size is None else f"{size} bytes"
    raise ParameterError(
        f"A value is not {length} in URL-safe base64 without padding."
    )  # not quoted: it may be a secret


@dataclass(frozen=True)
class _PublicKey:
    """A public key."""

    raw: bytes
    expires: datetime | None = field(default=None, compare=False, repr=False)
    """When it expires; stated in key files, not in documents."""
    kind: ClassVar[str]
    size: ClassVar[int] = KEY_SIZE

    def __post_init__(self) -> None:
        if len(self.raw) != self.size:
            raise ParameterError(f"A public {self.kind} key has {self.size:,} bytes, not {len(self.raw):,}.")

    @property
    def id(self) -> str:
        """A short id of the key, derived from its hash."""
        return hashlib.sha256(f"shuffledp {self.kind} key\n".encode() + self.raw).hexdigest()[:16]

    def to_document(self) -> dict[str, Any]:
        """The public form in documents."""
        return {"kind": self.kind, "id": self.id, "public": to_base64(self.raw)}

    def to_file_document(self) -> dict[str, Any]:
        """The form in key files, which may state an expiry."""
        return self.to_document() | ({} if self.expires is None else {"expires": time_to(self.expires)})

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The key of a document, whose id must match."""
        if not isinstance(document, dict) or set(document) != {"kind", "id", "public"} or document["kind"] != cls.kind:
            raise ParameterError(f"A {cls.kind} key is an object with the keys kind, id and public.")
        key = cls(from_base64(document["public"], cls.size))
        if document["id"] != key.id:
            raise ParameterError(f"The key id {document['id']!r} does not belong to this key, whose id is {key.id}.")
        return key

    @classmethod
    def load(cls, path: str | Path, *, of_private: bool = False) -> Self:
        """Read a public key file; a private key file is refused unless ``of_private``."""
        document = _read(Path(path))
        if document.pop("private", None) is not None and not of_private:
            raise DataError(f"{path} is a private key; use the public key, {path}.pub, and keep this file secret.")
        expires = _expiry(document)
        return replace(cls.from_document(document), expires=expires)

    def save(self, path: str | Path) -> None:
        """Write a new file of mode 0644; an existing file is never overwritten."""
        _write_new(check_writable(path), self.to_file_document(), 0o644)


@dataclass(frozen=True)
class VerifyingKey(_PublicKey):
    """Verifies signatures."""

    kind: ClassVar[str] = "signing"

    def verify(self, signature: bytes, content: bytes) -> None:
        """Raise a ParameterError unless the signature is valid."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, content)
        except (InvalidSignature, ValueError):
            raise ParameterError(f"This is not a valid signature of the key {self.id} over this document.") from None


@dataclass(frozen=True)
class SealingPublicKey(_PublicKey):
    """Seals messages that only the owner of the private key can open."""

    kind: ClassVar[str] = "sealing"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self.raw)

    @property
    def public(self) -> X25519PublicKey:
        """The key as an object of the cryptography library."""
        return X25519PublicKey.from_public_bytes(self.raw)


@dataclass(frozen=True)
class HybridPublicKey(_PublicKey):
    """A round key of the hybrid suite: what is sealed to it is safe while either ML-KEM-768 or X25519 is."""

    kind: ClassVar[str] = "hybrid-sealing"
    size: ClassVar[int] = _ML_KEM_SIZE + KEY_SIZE

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self.raw[_ML_KEM_SIZE:])
        _ = self.public

    @property
    def public(self) -> MLKEM768X25519PublicKey:
        """The key as an object of the cryptography library; ParameterError if its OpenSSL lacks ML-KEM."""
        try:
            of_lattice = MLKEM768PublicKey.from_public_bytes(self.raw[:_ML_KEM_SIZE])
        except UnsupportedAlgorithm:
            raise _no_ml_kem() from None
        except ValueError:
            raise ParameterError("This is not a public key of ML-KEM-768.") from None
        return MLKEM768X25519PublicKey(of_lattice, X25519PublicKey.from_public_bytes(self.raw[_ML_KEM_SIZE:]))


def _check_order(point: bytes) -> None:
    coordinate = int.from_bytes(point, "little") % (1 << 255) % _FIELD  # as RFC 7748 decodes it
    if coordinate in _LOW_ORDER:
        raise ParameterError("This X25519 key is a point of low order: anybody could open messages sealed to it.")


def _no_ml_kem() -> ParameterError:
    return ParameterError(
        "The installed package cryptography has no ML-KEM, which the hybrid outer suite needs; install one from PyPI.",
        reason="unsupported",
    )


@dataclass(frozen=True)
class _PrivateKey(ABC):
    """A private key of 32 bytes, which is never shown."""

    secret: bytes = field(repr=False)
    expires: datetime | None = field(default=None, compare=False, repr=False)
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_SIZE:
            raise ParameterError(f"A private key has {KEY_SIZE} bytes, not {len(self.secret)}.")

    @classmethod
    def create(cls) -> Self:
        """A fresh key from the operating system's randomness."""
        return cls(os.urandom(KEY_SIZE))

    @property
    @abstractmethod
    def public(self) -> Any:
        """The public key."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a private key file; refused if other users can access it."""
        return cls.from_content(read_private(Path(path)), str(path))

    @classmethod
    def from_content(cls, content: bytes, name: str) -> Self:
        """The key of the content of a private key file; errors mention ``name``, never the content."""
        document = _parsed(content, name)
        try:
            expires = _expiry(document)
        except ParameterError as error:
            raise DataError(f"{name}: {error}") from None
        if set(document) != {"kind", "id", "public", "private"} or document["kind"] != cls.kind:
            raise DataError(f"{name} is not a private {cls.kind} key.")
        try:
            key = cls(from_base64(document["private"], KEY_SIZE), expires)
        except ParameterError:
            raise DataError(f"The private part of {name} is damaged.", path=name) from None
        if key.public.to_document() != {part: document[part] for part in ("kind", "id", "public")}:
            raise DataError(f"The private and the public part of {name} do not match.")
        return key

    def check_unexpired(self, moment: datetime | None = None) -> None:
        """Raise an ExpiredKeyError if the key has expired at a moment, by default now."""
        moment = moment or datetime.now(UTC)
        if self.expires is not None and moment >= self.expires:
            raise ExpiredKeyError(
                f"The {self.kind} key {self.public.id} expired at {time_to(self.expires)}, and it is "
                f"{time_to(moment)}: use a current key, or correct the clock."
            )

    def save(self, path: str | Path) -> None:
        """Write a new file of mode 0600; an existing file is never overwritten."""
        document = self.public.to_file_document() | {"private": to_base64(self.secret)}
        _write_new(check_writable(path), document, 0o600)


@dataclass(frozen=True)
class SigningKey(_PrivateKey):
    """Signs documents."""

    kind: ClassVar[str] = "signing"

    @property
    def public(self) -> VerifyingKey:
        """The key that verifies the signatures."""
        raw = Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()
        return VerifyingKey(raw, self.expires)

    def sign(self, content: bytes) -> bytes:
        """The signature of the content, 64 bytes; ExpiredKeyError if the key has expired."""
        self.check_unexpired()
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(content)


@dataclass(frozen=True)
class SealingKey(_PrivateKey):
    """Opens messages that were sealed to its public key."""

    kind: ClassVar[str] = "sealing"

    @property
    def public(self) -> SealingPublicKey:
        """The key that seals."""
        return SealingPublicKey(self.private.public_key().public_bytes_raw(), self.expires)

    @property
    def private(self) -> X25519PrivateKey:
        """The key as an object of the cryptography library."""
        return X25519PrivateKey.from_private_bytes(self.secret)


@dataclass(frozen=True)
class HybridKey(_PrivateKey):
    """Opens what was sealed to its public key of the hybrid suite; both parts follow from one seed of 32 bytes."""

    kind: ClassVar[str] = "hybrid-sealing"

    @property
    def public(self) -> HybridPublicKey:
        """The key that seals."""
        raw = b"".join(part.public_key().public_bytes_raw() for part in self._parts)
        return HybridPublicKey(raw, self.expires)

    @property
    def private(self) -> MLKEM768X25519PrivateKey:
        """The key as an object of the cryptography library; ParameterError if its OpenSSL lacks ML-KEM."""
        return MLKEM768X25519PrivateKey(*self._parts)

    @property
    def _parts(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        expanded = hashlib.shake_256(self.secret).digest(96)
        try:
            return MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])
        except UnsupportedAlgorithm:
            raise _no_ml_kem() from None


RoundKey = SealingKey | HybridKey
RoundPublicKey = SealingPublicKey | HybridPublicKey


def round_key_of(content: bytes, name: str) -> RoundKey:
    """The round key of either suite of the content of a private key file, as ``from_content``."""
    kind: type[RoundKey] = HybridKey if _parsed(content, name).get("kind") == HybridKey.kind else SealingKey
    return kind.from_content(content, name)


def public_round_key(path: str | Path) -> RoundPublicKey:
    """The round key of either suite of a public key file, as ``load``."""
    is_hybrid = _read(Path(path)).get("kind") == HybridPublicKey.kind
    kind: type[RoundPublicKey] = HybridPublicKey if is_hybrid else SealingPublicKey
    return kind.load(path)


def read_private(file: Path) -> bytes:
    """The content of a private key file; DataError if other users can access it."""
    content = read_limited(file, MAX_KEY_BYTES, "key")
    if file.stat().st_mode & 0o077:
        _parsed(content, str(file))
        raise DataError(f"{file} is accessible to other users; a private key needs mode 0600: chmod 600 {file}.")
    return content


def _read(path: Path) -> dict[str, Any]:
    return _parsed(read_limited(path, MAX_KEY_BYTES, "key"), str(path))


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise DataError(f"{name} is not a valid key file: it is not JSON.", path=name) from None
    if not isinstance(document, dict):
        raise DataError(f"{name} is not a valid key file.", path=name)
    return document


def _expiry(document: dict[str, Any]) -> datetime | None:
    """Remove the expiry from the document of a key file, and return it; ParameterError if it is not a time."""
    if "expires" not in document:
        return None
    expires = time_from(document, "expires")
    del document["expires"]
    return expires


def _write_new(path: Path, document: dict[str, Any], mode: int) -> None:
    content = json.dumps(document, indent=2).encode() + b"\n"
    try:
        write_durably(path, content, mode=mode, replace=False)
    except FileExistsError:
        raise OutputError(f"{path} exists; a key is never overwritten. Choose another file.", path=str(path)) from None
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or error}.", path=str(path)) from None
