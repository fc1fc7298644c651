"""Wire formats: the report of a device, and the batch of the shuffler.

A report is ``SDPR``, the version (1 byte), the task's id (32), the report's id (16), then the sealed messages, all of
one size and the same number in every report; in version 2 these are together under an outer seal, and carriers send
another number than others. A batch is a signed manifest and chunks of concatenated sealed messages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Self

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import MAX_SHUFFLERS
from shuffledp.collection.wire.keys import RoundPublicKey, SigningKey, VerifyingKey, from_base64, to_base64
from shuffledp.collection.wire.outer_seal import seal_report
from shuffledp.collection.wire.outer_suites import suite_of
from shuffledp.errors import ParameterError

_MAGIC = b"SDPR"
REPORT_ID_SIZE = 16
HEADER_SIZE = len(_MAGIC) + 1 + 32 + REPORT_ID_SIZE
MAX_MANIFEST_BYTES = 1 << 24
_MAX_CHUNKS = 1 << 17
_MAX_CHUNK_BYTES = 1 << 26
_SIGNED_AS = {1: b"shuffledp batch v1\n", 2: b"shuffledp batch v2\n"}
_NUMBERS = ("reports", "messages", "record_size", "chunk_records")
_KEYS = {"format", "version", "task", *_NUMBERS, "chunks"}
_HOP_NUMBERS = ("hop", "carriers", "unopenable", "repeated", "traps")
_KEYS_OF = {1: _KEYS, 2: {*_KEYS, *_HOP_NUMBERS, "previous"}}
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
    round_key: RoundPublicKey | None = None
    """The key of the outer seal; None for reports of version 1, which have none."""
    carrier_messages: int | None = None
    """Messages of a carrier's report; None if there are no carriers."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """The format of a task's reports."""
        round_key = None if task.wire is None else task.wire.shufflers[0].sealing
        carrier_messages = None if task.carriers is None else task.carriers.messages_per_report
        return cls(task.id, task.messages_per_report, task.record_size(0), round_key, carrier_messages)

    @property
    def version(self) -> int:
        """The version of the reports, which is that of their task."""
        return 1 if self.round_key is None else 2

    @property
    def size(self) -> int:
        """Bytes of every report; if there are carriers, of those of the others."""
        return self._size_of(self.messages)

    @property
    def carrier_size(self) -> int | None:
        """Bytes of a carrier's report; None if there are no carriers."""
        return None if self.carrier_messages is None else self._size_of(self.carrier_messages)

    @property
    def max_size(self) -> int:
        """Bytes of the longest report."""
        return self.carrier_size or self.size

    def is_carrier(self, report: bytes) -> bool:
        """Whether a report of this task is that of a carrier, by its length."""
        return len(report) == self.carrier_size

    def _size_of(self, messages: int) -> int:
        outer = 0 if self.round_key is None else suite_of(self.round_key).seal_size
        return HEADER_SIZE + messages * self.sealed_size + outer

    def build(self, report_id: bytes, sealed: list[bytes]) -> bytes:
        """A report of these sealed messages."""
        if len(report_id) != REPORT_ID_SIZE or len(sealed) not in (self.messages, self.carrier_messages):
            longer = "" if self.carrier_messages is None else f" or {self.carrier_messages:,}"
            raise ParameterError(
                f"A report has an id of {REPORT_ID_SIZE} bytes and {self.messages:,}{longer} messages."
            )
        if any(len(message) != self.sealed_size for message in sealed):
            raise ParameterError(f"Every sealed message of this task has {self.sealed_size} bytes.")
        header = b"".join((_MAGIC, bytes((self.version,)), self.task_id, report_id))
        if self.round_key is None:
            return b"".join((header, *sealed))
        return seal_report(header, b"".join(sealed), self.round_key)

    def report_id(self, report: bytes) -> bytes:
        """The id of a report; ParameterError unless size, version and task are right."""
        if len(report) not in (self.size, self.carrier_size):
            longer = "" if self.carrier_size is None else f" or {self.carrier_size:,}"
            raise ParameterError(f"A report of this task has {self.size:,}{longer} bytes, not {len(report):,}.")
        if report[: len(_MAGIC)] != _MAGIC:
            raise ParameterError("This is not a report: it does not begin with SDPR.")
        if report[len(_MAGIC)] != self.version:
            raise ParameterError(
                f"This report has version {report[len(_MAGIC)]}; reports of this task have version {self.version}."
            )
        if report[5:37] != self.task_id:
            raise ParameterError("This report belongs to another task.")
        return report[37:HEADER_SIZE]

    def records(self, report: bytes) -> memoryview:
        """The concatenated sealed messages of a report of version 1; of version 2 they are under the outer seal."""
        return memoryview(report)[HEADER_SIZE:]


@dataclass(frozen=True)
class HopCounts:
    """What a manifest of version 2 states beyond version 1, about the work of one shuffler."""

    hop: int = 0
    """The index of the shuffler in the task; the first takes reports, later ones the batch of the one before."""
    carriers: int = 0
    """How many of the reports have the longer size of carriers."""
    unopenable: int = 0
    """Reports that did not open at the first shuffler, messages that did not open at a later one; all left out."""
    repeated: int = 0
    """Copies of messages that a later shuffler left out before it opened them."""
    traps: int = 0
    """Reports of this shuffler's own, all dummies, that were in the batch of the one before."""
    previous: bytes | None = None
    """SHA-256 of the signed manifest of the shuffler before; None for the first."""

    def __post_init__(self) -> None:
        if not 0 <= self.hop < MAX_SHUFFLERS or min(self.carriers, self.unopenable, self.repeated, self.traps) < 0:
            raise ParameterError(f"A hop is numbered from 0 to {MAX_SHUFFLERS - 1}, and its counts are not negative.")
        if (self.previous is None) != (self.hop == 0) or (self.hop == 0 and (self.repeated or self.traps)):
            raise ParameterError("The first shuffler, and it alone, has no previous batch, no copies and no traps.")

    def to_document(self) -> dict[str, Any]:
        """The fields as they are in a manifest."""
        previous = None if self.previous is None else self.previous.hex()
        return {name: getattr(self, name) for name in _HOP_NUMBERS} | {"previous": previous}


@dataclass(frozen=True)
class Manifest:
    """The contents of a batch: numbers of reports and messages, and the hash of every chunk."""

    task_id: bytes
    reports: int
    messages: int
    record_size: int
    chunk_records: int
    chunks: tuple[bytes, ...]
    counts: HopCounts | None = None
    """The further fields of version 2; None for version 1."""

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
        if self.counts is not None and self.counts.carriers > self.reports:
            raise ParameterError("A batch cannot have more carriers than reports.")

    @property
    def version(self) -> int:
        """The version of the manifest, which is that of its task."""
        return 1 if self.counts is None else 2

    @property
    def carriers(self) -> int:
        """How many of the reports are those of carriers."""
        return 0 if self.counts is None else self.counts.carriers

    def chunk_size(self, index: int) -> int:
        """Bytes of a chunk."""
        if not 0 <= index < len(self.chunks):
            raise ParameterError(f"The batch has {len(self.chunks):,} chunks; there is no chunk {index:,}.")
        return self.record_size * min(self.chunk_records, self.messages - index * self.chunk_records)

    def check_task(self, task: Task, hop: int | None = None) -> None:
        """Refuse a batch that does not fit its task, or is too small to be released.

        ``hop`` is the index of the shuffler that must have made it, by default that of the last.
        """
        hop = task.hops - 1 if hop is None else hop
        if self.task_id != task.id:
            raise ParameterError("This batch belongs to another task.")
        if self.version != task.version:
            raise ParameterError(f"This batch has version {self.version}, and its task has version {task.version}.")
        if self.counts is not None and self.counts.hop != hop:
            raise ParameterError(
                f"This batch is of shuffler {self.counts.hop + 1:,} of the task, and the one of shuffler {hop + 1:,} "
                "is expected."
            )
        if self.record_size != task.record_size(hop) or not self._has_messages_of(task, hop):
            raise ParameterError("The size or number of the messages of this batch contradicts the task.")
        if not task.minimum_users <= self.reports <= task.maximum_users:
            raise ParameterError(
                f"A batch of {self.reports:,} reports cannot be released: the task requires {task.minimum_users:,} to "
                f"{task.maximum_users:,}."
            )
        if task.carriers is not None and self.carriers < task.carriers.minimum:
            raise ParameterError(
                f"A batch of {self.carriers:,} carriers cannot be released: the task requires at least "
                f"{task.carriers.minimum:,}."
            )
        if self.counts is not None and hop == 0 and self.reports + self.counts.unopenable > task.maximum_users:
            raise ParameterError(f"More reports than the {task.maximum_users:,} of the task cannot have been stored.")

    def is_of_full_round(self, task: Task) -> bool:
        """Whether the first shuffler had as many reports as the task allows, after which it closes the round early.

        Later shufflers leave out traps, and of an augmented protocol a report with every message; reports that did not
        open at the first one are not in their manifests.
        """
        reports = self.reports
        if self.counts is not None:
            reports += self.counts.traps
            if self.counts.hop == 0 or task.protocol.trust == "augmented":
                reports += self.counts.unopenable + self.counts.repeated
        return reports >= task.maximum_users

    def _has_messages_of(self, task: Task, hop: int) -> bool:
        """Whether the number of messages follows from the numbers of reports and carriers, as the task says.

        An augmented shuffler adds dummies, and leaves reports out only if it samples them. Later shufflers leave out
        messages that do not open, copies, and traps; they only bound what the first one says. Together, honest ones
        add more than their most dummies with negligible probability.
        """
        if self.carriers and (task.carriers is None or hop > 0):
            return False
        per_report = task.messages_per_report
        if task.protocol.trust == "augmented":
            if self.messages > self.reports * per_report + (hop + 1) * task.protocol.most_dummies:
                return False
            samples = task.protocol.shuffler_keeps.fraction < 1
            return samples or hop > 0 or self.messages >= self.reports * per_report
        if hop > 0:
            return self.messages // per_report >= task.minimum_users and self.messages <= self.reports * per_report
        others = self.reports - self.carriers
        return self.messages == others * per_report + self.carriers * task.max_messages_per_report

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        further = {} if self.counts is None else self.counts.to_document()
        return {
            "format": "shuffledp-batch",
            "version": self.version,
            "task": self.task_id.hex(),
            "reports": self.reports,
            "messages": self.messages,
            "record_size": self.record_size,
            "chunk_records": self.chunk_records,
            "chunks": [chunk.hex() for chunk in self.chunks],
            **further,
        }

    @classmethod
    def from_document(cls, document: Any, *, version: int | None = None) -> Self:
        """The manifest of a document, of this version if one is given; ParameterError if it is not valid."""
        if not isinstance(document, dict) or document.get("format") != "shuffledp-batch":
            raise ParameterError("This is not a manifest of a batch.")
        stated = document.get("version")
        if type(stated) is not int or stated not in _KEYS_OF or stated != (version or stated):
            known = "1 and 2 are" if version is None else f"{version} is"
            raise ParameterError(f"This batch has version {str(stated)[:20]}; only version {known} supported here.")
        if set(document) != _KEYS_OF[stated]:
            raise ParameterError("This is not a manifest of a batch: keys are missing or unknown.")
        reports, messages, record_size, chunk_records = (_integer(document, key) for key in _NUMBERS)
        if not isinstance(document["chunks"], list):
            raise ParameterError("The chunks of a manifest must be a list of hashes.")
        chunks = tuple(_from_hex(chunk) for chunk in document["chunks"])
        counts = None
        if stated == 2:
            previous = None if document["previous"] is None else _from_hex(document["previous"])
            hop, carriers, unopenable, repeated, traps = (_integer(document, key) for key in _HOP_NUMBERS)
            counts = HopCounts(hop, carriers, unopenable, repeated, traps, previous)
        return cls(_from_hex(document["task"]), reports, messages, record_size, chunk_records, chunks, counts)

    def signed(self, shuffler: SigningKey) -> bytes:
        """The manifest with the shuffler's signature, as bytes."""
        document = self.to_document()
        signature = shuffler.sign(_SIGNED_AS[self.version] + canonical(document))
        return canonical({"batch": document, "signature": to_base64(signature)})

    @classmethod
    def verified(cls, content: bytes, shuffler: VerifyingKey, version: int = 1) -> Self:
        """The manifest; BadSignatureError unless that key signed it as this version.

        Nothing is parsed before the verification.
        """
        batch, signature = _signed_parts(content)
        try:
            shuffler.verify(signature, _SIGNED_AS[version] + batch)
        except ParameterError:
            raise BadSignatureError(
                f"This is not a valid signature of the key {shuffler.id} over this manifest in canonical form."
            ) from None
        return cls.from_document(parse_canonical(batch, max_bytes=MAX_MANIFEST_BYTES), version=version)

    @classmethod
    def unverified(cls, content: bytes) -> Self:
        """The manifest of bytes whose signature was verified when they arrived."""
        return cls.from_document(parse_canonical(_signed_parts(content)[0], max_bytes=MAX_MANIFEST_BYTES))


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


def _integer(document: dict[str, Any], key: str) -> int:
    value = document[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ParameterError("The numbers of a manifest must be integers.")
    return value
