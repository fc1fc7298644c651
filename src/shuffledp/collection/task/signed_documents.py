"""Signed documents: an envelope of the document, the id of its author's key and the signature, in canonical JSON.

The signature is verified on the bytes before anything in the document is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.wire.keys import SIGNATURE_SIZE, SigningKey, VerifyingKey, from_base64, to_base64
from shuffledp.collection.wire.times import time_to
from shuffledp.errors import ParameterError, ShuffledpError

_NOUNS = {"cancel": "cancellation", "rotate": "rotation", "destroyed": "record of a destroyed key"}
"""What messages call a document; others are called as in their envelope."""
_ENVELOPE = re.compile(rb'\{"author":"[0-9a-f]{16}",(?:"signature":"[A-Za-z0-9_-]{86}",)?"([a-z]+)":')


@dataclass(frozen=True)
class VerifiedDocument:
    """A document whose signature is valid."""

    document: Any
    content: bytes
    """Its canonical bytes."""
    version: int
    """The version that it was signed as."""
    author: VerifyingKey


def kind_of_document(content: bytes) -> str | None:
    """The name of the document in an envelope, such as ``task``, by its first bytes; None if it is not an envelope."""
    envelope = _ENVELOPE.match(content)
    return None if envelope is None else envelope[1].decode()


def sign_document(document: dict[str, Any], author: SigningKey, *, name: str, label: bytes) -> bytes:
    """The document in an envelope with the author's signature, as canonical JSON."""
    signature = author.sign(label + canonical(document))
    return canonical({name: document, "author": author.public.id, "signature": to_base64(signature)})


def verify_document(
    content: bytes, authors: Sequence[VerifyingKey], *, name: str, labels: Mapping[int, bytes], max_bytes: int
) -> VerifiedDocument:
    """The document of an envelope that one of the authors signed; ParameterError with a ``reason`` otherwise.

    ``labels`` has, for each version, the bytes that are signed in front of the document. One line feed may follow the
    envelope.
    """
    noun = _NOUNS.get(name, name)
    with refusing("not-canonical", noun):
        envelope = parse_canonical(content.removesuffix(b"\n"), max_bytes=max_bytes)
    with refusing("malformed", noun):
        if not isinstance(envelope, dict) or set(envelope) != {name, "author", "signature"}:
            raise ParameterError(f"A signed {noun} must have the keys {name}, author and signature.")
        signature = from_base64(envelope["signature"], SIGNATURE_SIZE)
    author = next((key for key in authors if key.id == envelope["author"]), None)
    if author is None:
        trusted = ", ".join(key.id for key in authors)
        raise ParameterError(
            f"The {noun} was not signed by a key that is trusted here: {trusted}.", reason="unknown-author"
        )
    document = envelope[name]
    signed = canonical(document)
    with refusing("bad-signature", noun):
        version = _signed_version(author, signature, signed, labels)
    with refusing("malformed", noun):
        stated = document.get("version") if isinstance(document, dict) else None
        if isinstance(stated, int) and stated in labels and stated != version:
            raise ParameterError(
                f"The {noun} has version {stated}, and was signed as version {version}.", reason="version"
            )
    return VerifiedDocument(document, signed, version, author)


def _signed_version(author: VerifyingKey, signature: bytes, signed: bytes, labels: Mapping[int, bytes]) -> int:
    """The version that a document was signed as; ParameterError if it was not signed."""
    for version, label in list(labels.items())[:-1]:
        try:
            author.verify(signature, label + signed)
        except ParameterError:
            continue
        return version
    version, label = list(labels.items())[-1]
    author.verify(signature, label + signed)
    return version


def check_author(author: VerifyingKey, begins: datetime, name: str) -> None:
    """Refuse a document whose author's key expires before what it describes begins."""
    if author.expires is not None and begins >= author.expires:
        raise ParameterError(
            f"The {name} begins at {time_to(begins)}, and the key {author.id} of its author expires at "
            f"{time_to(author.expires)}: a current key must sign it.",
            reason="expired",
        )


def check_format(document: Any, form: str, version: int, keys: set[str], name: str) -> None:
    """Refuse a document of another format or version, or with missing or unknown keys."""
    if not isinstance(document, dict) or document.get("format") != form:
        raise ParameterError(f"This is not a {name} of shuffledp.", reason="version")
    stated = document.get("version")
    if type(stated) is not int or stated != version:
        raise ParameterError(
            f"This {name} has version {str(stated)[:20]}; this program reads {version}.", reason="version"
        )
    if set(document) != keys:
        raise ParameterError(f"Missing or unknown keys in the {name}: {', '.join(sorted(set(document) ^ keys))}.")


@contextmanager
def refusing(reason: str, name: str) -> Iterator[None]:
    """Raise every error as a ParameterError with this reason, unless it has its own."""
    try:
        yield
    except ShuffledpError as error:
        raise ParameterError(str(error), **{"reason": reason, **error.values}) from None
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise ParameterError(
            f"The parameters of the {name} are not valid: {type(error).__name__}.", reason=reason
        ) from None
