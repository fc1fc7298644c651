"""What a task of wire version 2 states beyond version 1: shufflers with round keys, report sizes, traps, its series.

Every field of the format is read and checked here, also fields of features that are not implemented yet, so the format
need not change for these. ``check_supported`` refuses tasks that use such features.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from shuffledp.collection.wire.keys import RoundPublicKey, SealingPublicKey, VerifyingKey
from shuffledp.collection.wire.outer_suites import OUTER_SUITES, OuterSuite, suite_of
from shuffledp.errors import ParameterError

KEYS_OF_VERSION_2 = frozenset({"shufflers", "outer_suite", "carriers", "traps", "series"})
"""The keys of a task of version 2 that version 1 does not have; in return it lacks ``shuffler``."""
MAX_SHUFFLERS = 3
MAX_TRAPS = 1024
MAX_ROUNDS = 400
"""Maximum rounds of a series."""
_ID = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class ShufflerKeys:
    """The keys of one shuffler in one round."""

    signing: VerifyingKey
    """Verifies the signature of the shuffler on its batch."""
    sealing: RoundPublicKey
    """The round key, to which devices seal reports for this shuffler. It is used for one round and then destroyed."""

    def to_document(self) -> dict[str, Any]:
        """The form in a task."""
        return {"signing": self.signing.to_document(), "sealing": self.sealing.to_document()}

    @classmethod
    def from_document(cls, document: Any, sealing: type[RoundPublicKey] = SealingPublicKey) -> Self:
        """The keys of a document, with a round key of this kind; ParameterError if it is not valid."""
        if not isinstance(document, dict) or set(document) != {"signing", "sealing"}:
            raise ParameterError("A shuffler of a task must have the keys signing and sealing.")
        return cls(VerifyingKey.from_document(document["signing"]), sealing.from_document(document["sealing"]))


@dataclass(frozen=True)
class Carriers:
    """The longer reports of carriers: devices that add the noise of all, chosen by coins that ignore their values."""

    messages_per_report: int
    minimum: int
    """Minimum number of such reports in a round; with fewer it is destroyed."""

    def __post_init__(self) -> None:
        if self.messages_per_report < 2 or self.minimum < 1:
            raise ParameterError(
                "A report of a carrier has at least 2 messages, and a round at least 1 carrier, not "
                f"{self.messages_per_report:,} and {self.minimum:,}."
            )

    def to_document(self) -> dict[str, Any]:
        """The form in a task."""
        return {"messages_per_report": self.messages_per_report, "minimum": self.minimum}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The numbers of a document; ParameterError if it is not valid."""
        if not isinstance(document, dict) or set(document) != {"messages_per_report", "minimum"}:
            raise ParameterError("The carriers of a task must have messages_per_report and minimum, or be null.")
        return cls(*(integer_in(document, key, "carriers") for key in ("messages_per_report", "minimum")))


@dataclass(frozen=True)
class SeriesRound:
    """The series that a task belongs to, and the number of its round."""

    series: bytes
    """The id of the series, 32 bytes."""
    index: int

    def __post_init__(self) -> None:
        if len(self.series) != 32 or not 0 <= self.index < MAX_ROUNDS:
            raise ParameterError(f"A round of a series is numbered from 0 to {MAX_ROUNDS - 1}, not {self.index:,}.")

    def to_document(self) -> dict[str, Any]:
        """The form in a task."""
        return {"id": self.series.hex(), "round": self.index}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The round of a document; ParameterError if it is not valid."""
        if not isinstance(document, dict) or set(document) != {"id", "round"}:
            raise ParameterError("The series of a task must have id and round, or be null.")
        return cls(id_in(document, "id"), integer_in(document, "round", "series"))


@dataclass(frozen=True)
class WireVersion2:
    """The fields of a task of version 2 that version 1 does not have."""

    shufflers: tuple[ShufflerKeys, ...]
    """In the order in which a report passes them."""
    carriers: Carriers | None = None
    """None if all reports have one size."""
    traps: int = 0
    """Dummy reports that each shuffler after the first sends like a device, to detect that earlier ones drop some."""
    series: SeriesRound | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.shufflers) <= MAX_SHUFFLERS:
            raise ParameterError(f"A task has 1 to {MAX_SHUFFLERS} shufflers, not {len(self.shufflers)}.")
        if len({suite_of(key).name for key in self.round_keys}) > 1:
            raise ParameterError("The round keys of a task must all be of one suite.")
        if not 0 <= self.traps <= MAX_TRAPS:
            raise ParameterError(f"A task has 0 to {MAX_TRAPS:,} traps, not {self.traps:,}.")
        if self.traps and len(self.shufflers) == 1:
            raise ParameterError("Traps are sent by the second and later shufflers; this task has one shuffler.")
        if len({key for keys in self.shufflers for key in (keys.signing.raw, keys.sealing.raw)}) < 2 * len(
            self.shufflers
        ):
            raise ParameterError("The same key is used in two roles of the task; every role needs its own.")

    @property
    def round_keys(self) -> tuple[RoundPublicKey, ...]:
        """The round keys of all shufflers."""
        return tuple(keys.sealing for keys in self.shufflers)

    @property
    def outer_suite(self) -> OuterSuite:
        """The suite of all seals to shufflers, which their round keys have in common."""
        return suite_of(self.shufflers[0].sealing)

    def check_supported(self) -> None:
        """Refuse what the format allows and this program does not carry out yet; the reason is ``unsupported``."""
        unsupported = {
            "a chain of shufflers with carriers": len(self.shufflers) > 1 and self.carriers is not None,
        }
        if self.series is not None:  # it would escape the limit of rounds per device
            raise ParameterError(
                f"This task is a round of the series {self.series.series.hex()}; rounds are derived from a signed "
                "series, not signed one by one. Use the series.",
                reason="unsupported",
            )
        for feature, is_used in unsupported.items():
            if is_used:
                raise ParameterError(
                    f"This task needs {feature}, which this version of shuffledp does not support; use a newer one.",
                    reason="unsupported",
                )

    def to_document(self) -> dict[str, Any]:
        """The fields as they are in a task."""
        return {
            "shufflers": [keys.to_document() for keys in self.shufflers],
            "outer_suite": self.outer_suite.name,
            "carriers": None if self.carriers is None else self.carriers.to_document(),
            "traps": self.traps,
            "series": None if self.series is None else self.series.to_document(),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The fields of a task that has all of them; ParameterError if they are not valid."""
        shufflers = document["shufflers"]
        if not isinstance(shufflers, list) or len(shufflers) > MAX_SHUFFLERS:
            raise ParameterError(f"shufflers must be a list of 1 to {MAX_SHUFFLERS} shufflers.")
        suite = OUTER_SUITES.get(str(document["outer_suite"]))
        if suite is None:
            raise ParameterError("outer_suite must be one of the two suites of version 2.")
        carriers, series = document["carriers"], document["series"]
        return cls(
            shufflers=tuple(ShufflerKeys.from_document(keys, suite.public) for keys in shufflers),
            carriers=None if carriers is None else Carriers.from_document(carriers),
            traps=integer_in(document, "traps", "task"),
            series=None if series is None else SeriesRound.from_document(series),
        )


def integer_in(document: dict[str, Any], key: str, where: str) -> int:
    """An integer of a document; ParameterError for anything else, booleans included."""
    if not isinstance(document[key], int) or isinstance(document[key], bool):
        raise ParameterError(f"{key} of {where} must be an integer.")
    return int(document[key])


def id_in(document: dict[str, Any], key: str) -> bytes:
    """An id of a document: 32 bytes as 64 hexadecimal digits in lower case."""
    value = document[key]
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ParameterError(f"{key} must be 64 hexadecimal digits in lower case.")
    return bytes.fromhex(value)
