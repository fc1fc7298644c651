"""A task: what is asked of whom, by which protocol with which exact parameters, and who may open the messages.

It is a canonical JSON document that its author signs. A device checks the signature against a key that it knows,
and computes the guarantee anew from the parameters, whatever the task claims.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from shuffledp.checks import check_target
from shuffledp.collection.task.canonical import canonical, parse_canonical, portable
from shuffledp.collection.task.display_strings import LONGEST_TEXT, check_categories, check_text
from shuffledp.collection.wire.keys import SealingPublicKey, SigningKey, VerifyingKey, from_base64, to_base64
from shuffledp.collection.wire.padding import DELTA_FOR_CAP, LARGEST_CAP, capped_guarantee, is_unbounded, least_cap
from shuffledp.collection.wire.sealing import SUITE_NAME, sealed_size
from shuffledp.domain import Categories
from shuffledp.errors import ConditionError, DataError, ParameterError, ShuffledpError
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness.logarithmic import LEAST_COMPLEMENT_BITS

FORMAT, VERSION = "shuffledp-task", 1
MOST_TASK_BYTES = 1 << 24
_SIGNED_AS = b"shuffledp task v1\n"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TIME_FORM = re.compile("[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_KEYS = {
    "format",
    "version",
    "name",
    "description",
    "population",
    "protocol",
    "guarantee",
    "minimum_users",
    "maximum_users",
    "opens",
    "closes",
    "messages_per_report",
    "message_size",
    "suite",
    "analyzer",
    "shuffler",
}
_LAST_DIGITS = 1e-9
_LONGEST_SHOWN = 60
_MOST_USERS = 10**9
_FIRST_TIME, _LAST_TIME = datetime(1000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
MOST_DRAWS_PER_REPORT = 1 << 24
"""A device refuses a task whose reports take more random draws than this on average."""


@dataclass(frozen=True)
class Task:
    """One round of collection, as everybody who takes part knows it."""

    name: str
    description: str
    """What is asked, for the people who answer."""
    population: str
    """Whose privacy is spent: releases over one population are accounted for together."""
    protocol: Protocol
    epsilon: float
    delta: float
    """The claim about one release; computed anew by whoever reads the task."""
    maximum_users: int
    """The round is full with so many reports."""
    opens: datetime
    closes: datetime
    messages_per_report: int
    analyzer: SealingPublicKey
    """Messages are sealed to this key."""
    shuffler: VerifyingKey
    """Batches are signed with this key."""
    stated_local_epsilon: float | None = field(default=None, compare=False)
    """What the task says is left of one report alone, if not computed here: last digits differ between machines."""

    def __post_init__(self) -> None:
        if self.protocol.released_only:
            raise ParameterError(
                f"{self.protocol.name} trusts a party with the values; a collection takes shuffled or local protocols."
            )
        check_target(self.epsilon, self.delta)
        _check_drawable(self.protocol)
        self.protocol.min_messages_per_user  # noqa: B018 - refuses a protocol of which the analyzer could not tell the users
        check_text("name", self.name, least=1, most=LONGEST_TEXT)
        check_text("description", self.description, least=0, most=LONGEST_TEXT)
        check_text("population", self.population, least=1, most=LONGEST_TEXT)
        check_categories(self.protocol.domain.names if isinstance(self.protocol.domain, Categories) else ())
        if not 1 <= self.messages_per_report <= LARGEST_CAP:
            raise ParameterError(
                f"A report of a task has 1 to {LARGEST_CAP:,} messages, not {self.messages_per_report:,}; "
                "choose a protocol that sends fewer.",
                messages_per_report=self.messages_per_report,
            )
        if not self.minimum_users <= self.maximum_users <= _MOST_USERS:
            raise ParameterError(
                f"A round of at most {self.maximum_users:,} users cannot reach its minimum of {self.minimum_users:,}, "
                f"or is larger than {_MOST_USERS:,}."
            )
        if any(time.tzinfo is None or time.microsecond for time in (self.opens, self.closes)):
            raise ParameterError("The times of a task are whole seconds with their time zone.")
        if not all(_FIRST_TIME <= time <= _LAST_TIME for time in (self.opens, self.closes)):
            raise ParameterError("The times of a task must lie in the years 1000 to 9999.")
        if not self.opens < self.closes:
            raise ParameterError(f"The round closes at {self.closes} before it opens at {self.opens}.")

    @classmethod
    def create(
        cls,
        *,
        kind: type[Protocol],
        settings: dict[str, Any],
        epsilon: float,
        delta: float,
        maximum_users: int,
        **rest: Any,
    ) -> Self:
        """Calibrate a protocol for a little less than the target; where reports need a cap, part of delta is for it.

        Other machines may compute the guarantee with other last digits, and must find it good all the same.
        """
        protocol = _calibrated(kind, epsilon, delta, settings)
        if is_unbounded(protocol):
            protocol = _calibrated(kind, epsilon, delta * (1 - DELTA_FOR_CAP), settings)
        cap = least_cap(protocol, users=maximum_users, epsilon=epsilon, delta=delta * DELTA_FOR_CAP)
        return cls(
            protocol=protocol,
            epsilon=epsilon,
            delta=delta,
            maximum_users=maximum_users,
            messages_per_report=cap,
            **rest,
        )

    @property
    def minimum_users(self) -> int:
        """A round of fewer reports is destroyed, not released."""
        return self.protocol.users

    @property
    def message_size(self) -> int:
        """Bytes of a packed message."""
        return int(self.protocol.message_format.size)

    @property
    def sealed_size(self) -> int:
        """Bytes of a sealed message."""
        return sealed_size(self.message_size)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Recomputed from the parameters; ParameterError if less holds than is claimed."""
        return capped_guarantee(
            self.protocol,
            cap=self.messages_per_report,
            users=self.maximum_users,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        honest = self.protocol.guarantee.honest_users
        local = self.stated_local_epsilon
        if local is None:
            local = self.protocol.guarantee.local_epsilon
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "description": self.description,
            "population": self.population,
            "protocol": portable(to_document(self.protocol)),
            "guarantee": {
                "epsilon": repr(self.epsilon),
                "delta": repr(self.delta),
                "honest_users": honest,
                "local_epsilon": repr(local) if math.isfinite(local) else None,
            },
            "minimum_users": self.minimum_users,
            "maximum_users": self.maximum_users,
            "opens": self.opens.astimezone(UTC).strftime(_TIME),
            "closes": self.closes.astimezone(UTC).strftime(_TIME),
            "messages_per_report": self.messages_per_report,
            "message_size": self.message_size,
            "suite": SUITE_NAME,
            "analyzer": self.analyzer.to_document(),
            "shuffler": self.shuffler.to_document(),
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The task of a document; anything unknown, missing or inconsistent is refused."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ParameterError("This is not a task of shuffledp.", reason="version")
        if document.get("version") != VERSION:
            raise ParameterError(
                f"This task has version {_shown(document.get('version'))}; this program reads {VERSION}.",
                reason="version",
            )
        if set(document) != _KEYS:
            raise ParameterError(f"Missing or unknown in the task: {', '.join(sorted(set(document) ^ _KEYS))}.")
        claim = document["guarantee"]
        if not isinstance(claim, dict) or set(claim) != {"epsilon", "delta", "honest_users", "local_epsilon"}:
            raise ParameterError("The guarantee of a task has epsilon, delta, honest_users and local_epsilon.")
        task = cls(
            name=_text(document, "name"),
            description=_text(document, "description"),
            population=_text(document, "population"),
            protocol=from_document(document["protocol"]),
            epsilon=_number(claim, "epsilon"),
            delta=_number(claim, "delta"),
            maximum_users=_whole(document, "maximum_users"),
            opens=_time(document, "opens"),
            closes=_time(document, "closes"),
            messages_per_report=_whole(document, "messages_per_report"),
            analyzer=SealingPublicKey.from_document(document["analyzer"]),
            shuffler=VerifyingKey.from_document(document["shuffler"]),
            stated_local_epsilon=math.inf if claim["local_epsilon"] is None else _number(claim, "local_epsilon"),
        )
        computed = _guarantee_of(task.protocol).local_epsilon
        derived = task.to_document()
        if portable(document["protocol"]) != derived["protocol"]:
            raise ParameterError(
                "The protocol of the task is not written in its one form: see the page on randomizers."
            )
        wrong = {key for key in _KEYS if document[key] != derived[key]}
        if not math.isclose(task.stated_local_epsilon or 0.0, computed, rel_tol=_LAST_DIGITS, abs_tol=_LAST_DIGITS):
            wrong.add("guarantee")  # infinity is close to nothing but itself
        if wrong:
            raise ParameterError(
                f"What the task says does not follow from its protocol: {', '.join(sorted(wrong))}.",
                reason="inconsistent",
            )
        return task

    @cached_property
    def content(self) -> bytes:
        """The document as the bytes that are signed."""
        return canonical(self.to_document())

    @cached_property
    def id(self) -> bytes:
        """32 bytes that stand for just this task."""
        return hashlib.sha256(_SIGNED_AS + self.content).digest()

    def signed(self, author: SigningKey) -> SignedTask:
        """The task with its author's signature."""
        return SignedTask(self, author.public.id, author.sign(_SIGNED_AS + self.content))


@dataclass(frozen=True)
class SignedTask:
    """A task, who says to have signed it, and the signature."""

    task: Task
    author: str
    """The id of the author's key."""
    signature: bytes

    def verify(self, author: VerifyingKey) -> Task:
        """The task, if that key signed it and its guarantee holds; else a ParameterError."""
        if self.author != author.id:
            raise ParameterError(f"The task was signed by the key {self.author}, not by {author.id}.")
        author.verify(self.signature, _SIGNED_AS + self.task.content)
        _ = self.task.guarantee
        return self.task

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical(
            {"task": self.task.to_document(), "author": self.author, "signature": to_base64(self.signature)}
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Back from a file."""
        document = parse_canonical(content.removesuffix(b"\n"), most_bytes=MOST_TASK_BYTES)
        if not isinstance(document, dict) or set(document) != {"task", "author", "signature"}:
            raise ParameterError("A signed task has the keys task, author and signature.")
        if not re.fullmatch("[0-9a-f]{16}", str(document["author"])):
            raise ParameterError("The author of a task is the id of a key.")
        return cls(Task.from_document(document["task"]), document["author"], from_base64(document["signature"], 64))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file."""
        try:
            if Path(path).stat().st_size > MOST_TASK_BYTES:
                raise DataError(f"{path} is too large for a task.")
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"Cannot read the task {path}: {error.strerror or error}.", path=str(path)) from None


def _calibrated(kind: type[Protocol], epsilon: float, delta: float, settings: dict[str, Any]) -> Protocol:
    """The protocol with a margin for other last digits: it claims the target, and is calibrated for a little less."""
    check_target(epsilon, delta)
    if kind.trust == "local":  # epsilon is a logarithm, and there is no delta
        protocol = kind.calibrate(epsilon=epsilon * (1 - _LAST_DIGITS), delta=delta, **settings)
        return replace(protocol, target=replace(protocol.target, epsilon=float(epsilon)))
    protocol = kind.calibrate(epsilon=epsilon, delta=delta * (1 - _LAST_DIGITS), **settings)
    if protocol.target.delta == 0.0:
        return protocol
    return replace(protocol, target=replace(protocol.target, delta=delta))


def _check_drawable(protocol: Protocol) -> None:
    """Refuse parameters that keep a device busy: a report takes a bounded number of draws, and so does each share."""
    if not protocol.draws_per_report <= MOST_DRAWS_PER_REPORT:
        raise ParameterError(
            f"A report of {protocol.name} with these parameters takes about {protocol.draws_per_report:.3g} random "
            f"draws; a device makes at most {MOST_DRAWS_PER_REPORT:,}.",
            draws=protocol.draws_per_report,
        )
    least_complement = Fraction(1, 1 << LEAST_COMPLEMENT_BITS)
    if any(ratio.complement.fraction < least_complement for ratio in protocol.share_ratios):
        raise ParameterError(f"The noise of {protocol.name} is too wide for devices to draw their shares of it.")


def _guarantee_of(protocol: Protocol) -> Guarantee:
    """What its parameters give; refused if that is less than its own terms say, or if nothing is proved."""
    try:
        return protocol.guarantee
    except ShuffledpError as error:
        if isinstance(error, ConditionError) or "claimed" in error.values:
            raise ParameterError(str(error), **{**error.values, "reason": "bad-guarantee"}) from None
        raise


def _shown(value: Any) -> str:
    """The beginning of a value that somebody else wrote."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _text(document: dict[str, Any], key: str) -> str:
    if not isinstance(document[key], str):
        raise ParameterError(f"{key} must be a string, not {_shown(document[key])}.")
    return str(document[key])


def _whole(document: dict[str, Any], key: str) -> int:
    if not isinstance(document[key], int) or isinstance(document[key], bool):
        raise ParameterError(f"{key} must be an integer, not {_shown(document[key])}.")
    return int(document[key])


def _number(document: dict[str, Any], key: str) -> float:
    value = document[key]
    if not isinstance(value, str) or not re.fullmatch(r"[0-9.e+-]{1,40}", value):
        raise ParameterError(f"{key} must be a number written as a string, not {_shown(value)}.")
    try:
        number = float(value)
    except ValueError:
        raise ParameterError(f"{key} must be a number, not {value!r}.") from None
    if repr(number) != value:
        raise ParameterError(f"{key} must be the shortest decimal of a double: {number!r}, not {value!r}.")
    return number


def _time(document: dict[str, Any], key: str) -> datetime:
    value = document[key]
    try:
        if isinstance(value, str) and _TIME_FORM.fullmatch(value):  # strptime alone takes single digits too
            return datetime.strptime(value, _TIME).replace(tzinfo=UTC)
    except ValueError:
        pass
    raise ParameterError(
        f"{key} must be a time in the years 1000 to 9999 like 2026-01-31T18:00:00Z, not {_shown(value)}."
    )
