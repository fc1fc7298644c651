"""Keys: Ed25519 to sign, X25519 to seal. Private ones live in files that only their owner can read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shuffledp.collection.transport.files import write_durably
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable

KEY_SIZE = 32
SIGNATURE_SIZE = 64
_MOST_BYTES = 4096
_FIELD = 2**255 - 19
_LOW_ORDER = {
    0,
    1,
    _FIELD - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}
"""Coordinates of the points of X25519 with an order of at most 8, on the curve and on its twist."""


def to_base64(content: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def from_base64(text: Any, size: int | None = None) -> bytes:
    """Back, of exactly ``size`` bytes if given; only the form that ``to_base64`` writes is read."""
    if isinstance(text, str) and text.isascii():
        try:
            content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            content = b""
        if to_base64(content) == text and (size is None or len(content) == size):
            return content
    wanted = "bytes" if size is None else f"{size} bytes"
    raise ParameterError(f"A value is not {wanted} in URL-safe base64 without padding.")  # it may be a secret


@dataclass(frozen=True)
class _PublicKey:
    """32 bytes that anybody may know."""

    raw: bytes
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_SIZE:
            raise ParameterError(f"A public key has {KEY_SIZE} bytes, not {len(self.raw)}.")

    @property
    def id(self) -> str:
        """A short name of the key, from its hash."""
        return hashlib.sha256(f"shuffledp {self.kind} key\n".encode() + self.raw).hexdigest()[:16]

    def to_document(self) -> dict[str, Any]:
        """The public form in documents and files."""
        return {"kind": self.kind, "id": self.id, "public": to_base64(self.raw)}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Back; the id must be the key's."""
        if not isinstance(document, dict) or set(document) != {"kind", "id", "public"} or document["kind"] != cls.kind:
            raise ParameterError(f"A {cls.kind} key is an object with the keys kind, id and public.")
        key = cls(from_base64(document["public"], KEY_SIZE))
        if document["id"] != key.id:
            raise ParameterError(f"The key id {document['id']!r} does not belong to this key, whose id is {key.id}.")
        return key

    @classmethod
    def load(cls, path: str | Path, *, of_private: bool = False) -> Self:
        """From a public file. A private one has no business where this is wanted, and is refused unless asked for."""
        document = _read(Path(path))
        if document.pop("private", None) is not None and not of_private:
            raise DataError(f"{path} holds a private key; give the public one, {path}.pub, and keep this one secret.")
        return cls.from_document(document)

    def save(self, path: str | Path) -> None:
        """To a new file that everybody may read."""
        _write_new(check_writable(path), self.to_document(), 0o644)


@dataclass(frozen=True)
class VerifyingKey(_PublicKey):
    """Checks signatures."""

    kind: ClassVar[str] = "signing"

    def verify(self, signature: bytes, content: bytes) -> None:
        """Nothing if the signature is right, else a ParameterError."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, content)
        except (InvalidSignature, ValueError):
            raise ParameterError(f"The signature is not one of the key {self.id} over this document.") from None


@dataclass(frozen=True)
class SealingPublicKey(_PublicKey):
    """Seals messages that only the owner of the private key can open."""

    kind: ClassVar[str] = "sealing"

    def __post_init__(self) -> None:
        super().__post_init__()
        coordinate = int.from_bytes(self.raw, "little") % (1 << 255) % _FIELD  # as RFC 7748 reads it
        if coordinate in _LOW_ORDER:
            raise ParameterError("This X25519 key is a point of low order: everybody could open what is sealed to it.")

    @property
    def public(self) -> X25519PublicKey:
        """As the cipher wants it."""
        return X25519PublicKey.from_public_bytes(self.raw)


@dataclass(frozen=True)
class _PrivateKey(ABC):
    """32 secret bytes, which never print."""

    secret: bytes = field(repr=False)
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
        """What others may know."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file that only its owner can read; others are refused."""
        file = Path(path)
        document = _read(file)
        if file.stat().st_mode & 0o077:
            raise DataError(f"{file} can be read by others; a private key wants mode 0600: chmod 600 {file}.")
        if set(document) != {"kind", "id", "public", "private"} or document["kind"] != cls.kind:
            raise DataError(f"{file} holds no private {cls.kind} key.")
        try:
            key = cls(from_base64(document["private"], KEY_SIZE))
        except ParameterError:
            raise DataError(f"The private part of {file} is damaged.", path=str(file)) from None
        if key.public.to_document() != {name: document[name] for name in ("kind", "id", "public")}:
            raise DataError(f"The private and the public part of {file} do not belong together.")
        return key

    def save(self, path: str | Path) -> None:
        """To a new file of mode 0600; an existing one is never overwritten."""
        document = self.public.to_document() | {"private": to_base64(self.secret)}
        _write_new(check_writable(path), document, 0o600)


@dataclass(frozen=True)
class SigningKey(_PrivateKey):
    """Signs documents."""

    kind: ClassVar[str] = "signing"

    @property
    def public(self) -> VerifyingKey:
        """The key that checks the signatures."""
        return VerifyingKey(Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw())

    def sign(self, content: bytes) -> bytes:
        """64 bytes that prove who signed."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(content)


@dataclass(frozen=True)
class SealingKey(_PrivateKey):
    """Opens what was sealed to its public part."""

    kind: ClassVar[str] = "sealing"

    @property
    def public(self) -> SealingPublicKey:
        """The key that seals."""
        return SealingPublicKey(X25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw())


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path} is too large for a key.")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the key {path}: {error.strerror or error}.", path=str(path)) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} holds no key: it is not JSON.", path=str(path)) from None
    if not isinstance(document, dict):
        raise DataError(f"{path} holds no key.", path=str(path))
    return document


def _write_new(path: Path, document: dict[str, Any], mode: int) -> None:
    content = json.dumps(document, indent=2).encode() + b"\n"
    try:
        write_durably(path, content, mode=mode, replace=False)
    except FileExistsError:
        raise OutputError(f"{path} exists; a key is never overwritten. Name another file.", path=str(path)) from None
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or error}.", path=str(path)) from None
