"""Wire formats: the report of a device, and the batch of the shuffler.

A report is ``SDPR``, the version (1 byte), the task's id (32), the report's id (16), then the sealed messages, all of
one size and the same number in every report. A batch is a signed manifest and chunks of concatenated sealed messages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Self

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SigningKey, VerifyingKey, from_base64, to_base64
from shuffledp.errors import ParameterError

_MAGIC, _VERSION = b"SDPR", 1
REPORT_ID_SIZE = 16
_HEADER = len(_MAGIC) + 1 + 32 + REPORT_ID_SIZE
MAX_MANIFEST_BYTES = 1 << 24
_MAX_CHUNKS = 1 << 17
_MAX_CHUNK_BYTES = 1 << 26
_SIGNED_AS = b"shuffledp batch v1\n"
_PREFIX, _SEPARATOR, _SUFFIX = b'{"batch":', b',"signature":"', b'"}'  # the canonical form of a signed manifest
_SIGNATURE_CHARACTERS = 86  # 64 bytes in base64


class BadSignatureError(ParameterError):
    """A manifest is well-formed, but its signature is not the shuffler's."""


def digest(content: bytes | memoryview) -> bytes:
    """SHA-256."""
    return hashlib.sha256(content).digest()


@dataclass(frozen=True)
class ReportFormat:
    """The format of the reports of a task."""

    task_id: bytes
    messages: int
    sealed_size: int

    @classmethod
    def of(cls, task: Task) -> Self:
        """The format of a task's reports."""
        return cls(task.id, task.messages_per_report, task.sealed_size)

    @property
    def size(self) -> int:
        """Bytes of every report."""
        return _HEADER + self.messages * self.sealed_size

    def build(self, report_id: bytes, sealed: list[bytes]) -> bytes:
        """A report of these sealed messages."""
        if len(report_id) != REPORT_ID_SIZE or len(sealed) != self.messages:
            raise ParameterError(f"A report has an id of {REPORT_ID_SIZE} bytes and {self.messages:,} messages.")
        if any(len(message) != self.sealed_size for message in sealed):
            raise ParameterError(f"Every sealed message of this task has {self.sealed_size} bytes.")
        return b"".join((_MAGIC, bytes((_VERSION,)), self.task_id, report_id, *sealed))

    def report_id(self, report: bytes) -> bytes:
        """The id of a report; ParameterError unless size, version and task are right."""
        if len(report) != self.size:
            raise ParameterError(f"A report of this task has {self.size:,} bytes, not {len(report):,}.")
        if report[: len(_MAGIC)] != _MAGIC:
            raise ParameterError("This is not a report: it does not begin with SDPR.")
        if report[len(_MAGIC)] != _VERSION:
            raise ParameterError(
                f"This report has version {report[len(_MAGIC)]}; only version {_VERSION} is supported."
            )
        if report[5:37] != self.task_id:
            raise ParameterError("This report belongs to another task.")
        return report[37:_HEADER]

    def records(self, report: bytes) -> memoryview:
        """The concatenated sealed messages of a report."""
        return memoryview(report)[_HEADER:]


@dataclass(frozen=True)
class Manifest:
    """The contents of a batch: numbers of reports and messages, and the hash of every chunk."""

    task_id: bytes
    reports: int
    messages: int
    record_size: int
    chunk_records: int
    chunks: tuple[bytes, ...]

    def __post_init__(self) -> None:
        counts = (self.reports, self.messages, self.record_size, self.chunk_records)
        if any(count < 1 for count in counts) or len(self.task_id) != 32:
            raise ParameterError("A batch has at least one report and one message, and the id of its task.")
        if self.chunk_records * self.record_size > _MAX_CHUNK_BYTES:
            raise ParameterError(f"A chunk of a batch has at most {_MAX_CHUNK_BYTES:,} bytes.")
        if len(self.chunks) != -(-self.messages // self.chunk_records) or len(self.chunks) > _MAX_CHUNKS:
            raise ParameterError(f"{len(self.chunks):,} chunks do not contain {self.messages:,} messages.")
        if any(len(chunk) != 32 for chunk in self.chunks):
            raise ParameterError("The hash of a chunk has 32 bytes.")

    def chunk_size(self, index: int) -> int:
        """Bytes of a chunk."""
        if not 0 <= index < len(self.chunks):
            raise ParameterError(f"The batch has {len(self.chunks):,} chunks; there is no chunk {index:,}.")
        return self.record_size * min(self.chunk_records, self.messages - index * self.chunk_records)

    def check_task(self, task: Task) -> None:
        """Refuse a batch that does not fit its task, or is too small to be released."""
        if self.task_id != task.id:
            raise ParameterError("This batch belongs to another task.")
        if self.record_size != task.sealed_size or self.messages != self.reports * task.messages_per_report:
            raise ParameterError("The size or number of the messages of this batch contradicts the task.")
        if not task.minimum_users <= self.reports <= task.maximum_users:
            raise ParameterError(
                f"A batch of {self.reports:,} reports cannot be released: the task requires {task.minimum_users:,} to "
                f"{task.maximum_users:,}."
            )

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        return {
            "format": "shuffledp-batch",
            "version": 1,
            "task": self.task_id.hex(),
            "reports": self.reports,
            "messages": self.messages,
            "record_size": self.record_size,
            "chunk_records": self.chunk_records,
            "chunks": [chunk.hex() for chunk in self.chunks],
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The manifest of a document; ParameterError if it is not valid."""
        keys = {"format", "version", "task", "reports", "messages", "record_size", "chunk_records", "chunks"}
        if not isinstance(document, dict) or set(document) != keys or document["format"] != "shuffledp-batch":
            raise ParameterError("This is not a manifest of a batch.")
        if document["version"] != 1:
            raise ParameterError(f"This batch has version {document['version']!r}; only version 1 is supported.")
        numbers = [document[key] for key in ("reports", "messages", "record_size", "chunk_records")]
        if any(not isinstance(number, int) or isinstance(number, bool) for number in numbers):
            raise ParameterError("The numbers of a manifest must be integers.")
        if not isinstance(document["chunks"], list):
            raise ParameterError("The chunks of a manifest must be a list of hashes.")
        reports, messages, record_size, chunk_records = numbers
        chunks = tuple(_from_hex(chunk) for chunk in document["chunks"])
        return cls(_from_hex(document["task"]), reports, messages, record_size, chunk_records, chunks)

    def signed(self, shuffler: SigningKey) -> bytes:
        """The manifest with the shuffler's signature, as bytes."""
        document = self.to_document()
        signature = shuffler.sign(_SIGNED_AS + canonical(document))
        return canonical({"batch": document, "signature": to_base64(signature)})

    @classmethod
    def verified(cls, content: bytes, shuffler: VerifyingKey) -> Self:
        """The manifest; BadSignatureError unless that key signed it. Nothing is parsed before the verification."""
        batch, signature = _signed_parts(content)
        try:
            shuffler.verify(signature, _SIGNED_AS + batch)
        except ParameterError:
            raise BadSignatureError(
                f"This is not a valid signature of the key {shuffler.id} over this manifest in canonical form."
            ) from None
        return cls._from_bytes(batch)

    @classmethod
    def unverified(cls, content: bytes) -> Self:
        """The manifest of bytes whose signature was verified when they arrived."""
        return cls._from_bytes(_signed_parts(content)[0])

    @classmethod
    def _from_bytes(cls, batch: bytes) -> Self:
        return cls.from_document(parse_canonical(batch, max_bytes=MAX_MANIFEST_BYTES))


def _signed_parts(content: bytes) -> tuple[bytes, bytes]:
    """The signed bytes and the signature, which are at fixed positions in the canonical form."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise ParameterError(f"The manifest has {len(content):,} bytes; at most {MAX_MANIFEST_BYTES:,} are allowed.")
    end = len(content) - len(_SUFFIX) - _SIGNATURE_CHARACTERS
    signed, separator = (
        content[len(_PREFIX) : max(end - len(_SEPARATOR), 0)],
        content[max(end - len(_SEPARATOR), 0) : end],
    )
    if not (content.startswith(_PREFIX) and separator == _SEPARATOR and content.endswith(_SUFFIX)):
        raise ParameterError("This is not the canonical form of a signed manifest: an object of batch and signature.")
    return signed, from_base64(content[end : -len(_SUFFIX)].decode(errors="replace"), 64)


def _from_hex(value: Any) -> bytes:
    if isinstance(value, str) and len(value) == 64 and value == value.lower():
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    raise ParameterError(f"{str(value)[:80]!r} is not 32 bytes in hexadecimal.")
