"""Series: rounds at regular times that the author signs once, from which everybody derives the same tasks.

The template is a task of version 2 without times and without the keys of a round. Each round has keys of its own, which
are part of its task and so of its id: a device that is shown other keys derives a task that no server knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self, TypeVar

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.display_strings import LONGEST_STRING, check_string
from shuffledp.collection.task.signed_documents import (
    check_author,
    check_format,
    refusing,
    sign_document,
    verify_document,
)
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import (
    MAX_ROUNDS,
    SeriesRound,
    ShufflerKeys,
    WireVersion2,
    id_in,
    integer_in,
)
from shuffledp.collection.wire.keys import (
    RoundPublicKey,
    SealingPublicKey,
    SigningKey,
    VerifyingKey,
    from_base64,
    to_base64,
)
from shuffledp.collection.wire.outer_suites import OUTER_SUITES, X25519_SUITE, suite_of
from shuffledp.collection.wire.times import time_from, time_to
from shuffledp.errors import ParameterError

MAX_SERIES_BYTES = 1 << 24
_FORMAT, _VERSION, _LABEL = "shuffledp-series", 1, b"shuffledp series v1\n"
_KEYS = {
    "format",
    "version",
    "template",
    "first_opens",
    "period",
    "open",
    "rounds",
    "rounds_per_device",
    "keys",
    "replaces",
}
_CANCEL_FORMAT, _CANCEL_VERSION, _CANCEL_LABEL = "shuffledp-cancel", 1, b"shuffledp cancel v1\n"
_MAX_CANCEL_BYTES = 1 << 14
_LONGEST_PERIOD = 366 * 86_400
_OF_A_ROUND = ("opens", "closes", "analyzer", "series")
"""The keys of a task that a template lacks."""
_Key = TypeVar("_Key", bound=RoundPublicKey)


@dataclass(frozen=True)
class RoundKeys:
    """The keys of one round, which differ from those of all others."""

    analyzer: SealingPublicKey
    shufflers: tuple[RoundPublicKey, ...]

    @property
    def all(self) -> tuple[RoundPublicKey, ...]:
        """The analyzer's key and those of the shufflers."""
        return (self.analyzer, *self.shufflers)


@dataclass(frozen=True)
class Series:
    """The public description of a series of rounds."""

    first: Task
    """The first round, without its place in the series."""
    period: int
    """Seconds from the opening of one round to that of the next."""
    keys: tuple[RoundKeys, ...]
    """The keys of every round."""
    rounds_per_device: int
    """How many of the rounds one device takes part in at most; it draws them before it knows any value."""
    replaces: bytes | None = None
    """The id of a cancelled series that this one continues."""

    def __post_init__(self) -> None:
        wire = self._wire
        if wire.series is not None:
            raise ParameterError("The first task of a series must not name a series; the series adds that.")
        if not 1 <= len(self.keys) <= MAX_ROUNDS:
            raise ParameterError(f"A series has 1 to {MAX_ROUNDS} rounds, not {len(self.keys):,}.")
        if not 1 <= self.rounds_per_device <= len(self.keys):
            raise ParameterError(
                f"rounds_per_device must be from 1 to the {len(self.keys):,} rounds, not {self.rounds_per_device:,}."
            )
        if not self.open_seconds <= self.period <= _LONGEST_PERIOD:
            raise ParameterError(
                f"The rounds of a series must not overlap: they are open for {self.open_seconds:,} s, and the period "
                f"must be from that to {_LONGEST_PERIOD:,} s, not {self.period:,} s."
            )
        if self.replaces is not None and len(self.replaces) != 32:
            raise ParameterError("The id of the series that is replaced has 32 bytes.")
        if any(len(keys.shufflers) != len(wire.shufflers) for keys in self.keys):
            raise ParameterError("Every round of a series needs one key of the analyzer and one of each shuffler.")
        if any(suite_of(key) is not wire.outer_suite for keys in self.keys for key in keys.shufflers):
            raise ParameterError("The round keys of a series must all be of one suite.")
        used = [key.raw for keys in self.keys for key in keys.all]
        if len({*used, *(keys.signing.raw for keys in wire.shufflers)}) < len(used) + len(wire.shufflers):
            raise ParameterError("The same key is used twice in the series; every round and role needs its own.")
        if RoundKeys(self.first.analyzer, tuple(keys.sealing for keys in wire.shufflers)) != self.keys[0]:
            raise ParameterError("The first task of a series must have the keys of its first round.")
        _ = self._times(len(self.keys) - 1)

    @property
    def open_seconds(self) -> int:
        """How long each round is open."""
        return round((self.first.closes - self.first.opens).total_seconds())

    def task(self, index: int) -> Task:
        """The task of a round, numbered from 0."""
        if not 0 <= index < len(self.keys):
            raise ParameterError(f"The series has {len(self.keys):,} rounds; there is no round {index:,}.")
        opens, closes = self._times(index)
        wire, keys = self._wire, self.keys[index]
        shufflers = tuple(
            ShufflerKeys(known.signing, sealing) for known, sealing in zip(wire.shufflers, keys.shufflers, strict=True)
        )
        place = SeriesRound(self.id, index)
        return replace(
            self.first,
            opens=opens,
            closes=closes,
            analyzer=keys.analyzer,
            wire=replace(wire, shufflers=shufflers, series=place),
        )

    def round_at(self, moment: datetime) -> int | None:
        """The round that is open at a moment, if there is one."""
        index = (moment - self.first.opens) // timedelta(seconds=self.period)
        if not 0 <= index < len(self.keys):
            return None
        return index if moment < self._times(index)[1] else None

    def _times(self, index: int) -> tuple[datetime, datetime]:
        try:
            opens = self.first.opens + index * timedelta(seconds=self.period)
            return opens, opens + (self.first.closes - self.first.opens)
        except OverflowError:
            raise ParameterError("The rounds of the series end after the year 9999.") from None

    @property
    def _wire(self) -> WireVersion2:
        if self.first.wire is None:
            raise ParameterError("A series consists of tasks of version 2, not of version 1.")
        return self.first.wire

    @cached_property
    def content(self) -> bytes:
        """The canonical bytes of the document."""
        return canonical(self.to_document())

    @cached_property
    def id(self) -> bytes:
        """The id of the series: a SHA-256, 32 bytes."""
        return hashlib.sha256(_LABEL + self.content).digest()

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        template = {key: value for key, value in self.first.to_document().items() if key not in _OF_A_ROUND}
        template["shufflers"] = [{"signing": keys["signing"]} for keys in template["shufflers"]]
        hops = range(len(template["shufflers"]))
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "template": template,
            "first_opens": time_to(self.first.opens),
            "period": self.period,
            "open": self.open_seconds,
            "rounds": len(self.keys),
            "rounds_per_device": self.rounds_per_device,
            "keys": {
                "analyzer": [to_base64(keys.analyzer.raw) for keys in self.keys],
                "shufflers": [[to_base64(keys.shufflers[hop].raw) for keys in self.keys] for hop in hops],
            },
            "replaces": None if self.replaces is None else self.replaces.hex(),
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The series of a document; anything unknown, missing or inconsistent is refused."""
        check_format(document, _FORMAT, _VERSION, _KEYS, "series")
        period, seconds, rounds = (integer_in(document, key, "series") for key in ("period", "open", "rounds"))
        if not 1 <= rounds <= MAX_ROUNDS or not 1 <= seconds <= _LONGEST_PERIOD:
            raise ParameterError(f"A series has 1 to {MAX_ROUNDS} rounds, each open for 1 to {_LONGEST_PERIOD:,} s.")
        opens = time_from(document, "first_opens")
        template = document["template"]
        suite = OUTER_SUITES.get(str(template.get("outer_suite")) if isinstance(template, dict) else "", X25519_SUITE)
        keys = _round_keys(document["keys"], rounds, suite.public)
        try:
            closes = opens + timedelta(seconds=seconds)
        except OverflowError:
            raise ParameterError("The rounds of the series end after the year 9999.") from None
        first = Task.from_document(_first_document(template, opens, closes, keys[0]))
        series = cls(
            first=first,
            period=period,
            keys=keys,
            rounds_per_device=integer_in(document, "rounds_per_device", "series"),
            replaces=None if document["replaces"] is None else id_in(document, "replaces"),
        )
        if series.to_document() != document:
            raise ParameterError("The series is not in canonical form.", reason="inconsistent")
        return series

    def signed(self, author: SigningKey) -> bytes:
        """The series with its author's signature, as canonical JSON."""
        return sign_document(self.to_document(), author, name="series", label=_LABEL)


def authentic_series(content: bytes, *authors: VerifyingKey) -> Series:
    """The series of these bytes; ParameterError unless one of the authors signed them and the guarantee holds.

    ``values["reason"]`` of the error is a code of vectors/README.md. All rounds have the same guarantee.
    """
    labels = {_VERSION: _LABEL}
    verified = verify_document(content, authors, name="series", labels=labels, max_bytes=MAX_SERIES_BYTES)
    with refusing("malformed", "series"):
        series = Series.from_document(verified.document)
        if series.content != verified.content:  # equal documents may differ as bytes: True == 1
            raise ParameterError("The series is not in canonical form.")
        check_author(verified.author, series.task(len(series.keys) - 1).opens, "last round of the series")
        if series.first.wire is not None:
            series.first.wire.check_supported()
        _ = series.first.guarantee
    return series


@dataclass(frozen=True)
class Cancellation:
    """The end of a series before its last round; of several cancellations, the one from the earliest round counts."""

    series: bytes
    """The id of the series."""
    from_round: int
    """The first round that does not take place."""
    reason: str

    def __post_init__(self) -> None:
        if len(self.series) != 32 or not 0 <= self.from_round < MAX_ROUNDS:
            raise ParameterError(f"A round of a series is numbered from 0 to {MAX_ROUNDS - 1}.")
        check_string("reason", self.reason, min_length=1, max_length=LONGEST_STRING, of="a cancellation")

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        return {
            "format": _CANCEL_FORMAT,
            "version": _CANCEL_VERSION,
            "series": self.series.hex(),
            "from_round": self.from_round,
            "reason": self.reason,
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The cancellation of a document; ParameterError if it is not valid."""
        keys = {"format", "version", "series", "from_round", "reason"}
        check_format(document, _CANCEL_FORMAT, _CANCEL_VERSION, keys, "cancellation")
        if not isinstance(document["reason"], str):
            raise ParameterError("The reason of a cancellation must be a string.")
        return cls(id_in(document, "series"), integer_in(document, "from_round", "cancellation"), document["reason"])

    def signed(self, author: SigningKey) -> bytes:
        """The cancellation with its author's signature, as canonical JSON."""
        return sign_document(self.to_document(), author, name="cancel", label=_CANCEL_LABEL)


def authentic_cancellation(content: bytes, *authors: VerifyingKey) -> Cancellation:
    """The cancellation of these bytes; ParameterError unless one of the author's keys signed them."""
    labels = {_CANCEL_VERSION: _CANCEL_LABEL}
    verified = verify_document(content, authors, name="cancel", labels=labels, max_bytes=_MAX_CANCEL_BYTES)
    with refusing("malformed", "cancellation"):
        return Cancellation.from_document(verified.document)


def _round_keys(document: Any, rounds: int, kind: type[RoundPublicKey]) -> tuple[RoundKeys, ...]:
    """The keys of every round; refused unless every list has one key per round."""
    if not isinstance(document, dict) or set(document) != {"analyzer", "shufflers"}:
        raise ParameterError("The keys of a series must have analyzer and shufflers.")
    hops = document["shufflers"]
    if not isinstance(hops, list) or not hops:
        raise ParameterError("The keys of the shufflers of a series must be a list of lists.")
    analyzers = _column(document["analyzer"], rounds, SealingPublicKey)
    columns = zip(*(_column(keys, rounds, kind) for keys in hops), strict=True)
    return tuple(RoundKeys(analyzer, shufflers) for analyzer, shufflers in zip(analyzers, columns, strict=True))


def _column(keys: Any, rounds: int, kind: type[_Key]) -> Sequence[_Key]:
    if not isinstance(keys, list) or len(keys) != rounds:
        raise ParameterError(f"Every list of keys of this series must have {rounds:,} keys, one for each round.")
    return [kind(from_base64(key, kind.size)) for key in keys]


def _first_document(template: Any, opens: datetime, closes: datetime, keys: RoundKeys) -> dict[str, Any]:
    """The document of the first round's task, without its place in the series."""
    if not isinstance(template, dict) or any(key in template for key in _OF_A_ROUND) or template.get("version") != 2:
        raise ParameterError("The template of a series is a task of version 2 without times, round keys and series.")
    shufflers = template.get("shufflers")
    if not isinstance(shufflers, list) or len(shufflers) != len(keys.shufflers):
        raise ParameterError("The template of a series must name the signing key of every shuffler.")
    if any(not isinstance(shuffler, dict) or set(shuffler) != {"signing"} for shuffler in shufflers):
        raise ParameterError("A shuffler in the template of a series must have a signing key, and nothing else.")
    return template | {
        "opens": time_to(opens),
        "closes": time_to(closes),
        "analyzer": keys.analyzer.to_document(),
        "shufflers": [
            {**shuffler, "sealing": sealing.to_document()}
            for shuffler, sealing in zip(shufflers, keys.shufflers, strict=True)
        ],
        "series": None,
    }
