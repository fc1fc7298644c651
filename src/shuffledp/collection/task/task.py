"""A task: the question, the population, the protocol with its exact parameters, and the keys of the servers.

It is a canonical JSON document that its author signs. A device verifies the signature with a key that it trusts, and
recomputes the guarantee from the parameters, whatever the task claims.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

from shuffledp.checks import LEAST_DELTA, check_target
from shuffledp.collection.task.canonical import canonical, parse_canonical, portable
from shuffledp.collection.task.display_strings import LONGEST_STRING, check_category_names, check_string
from shuffledp.collection.task.signed_documents import check_author
from shuffledp.collection.task.wire_version_2 import KEYS_OF_VERSION_2, Carriers, WireVersion2
from shuffledp.collection.wire.keys import SealingPublicKey, SigningKey, VerifyingKey, from_base64, to_base64
from shuffledp.collection.wire.padding import DELTA_FOR_CAP, LARGEST_CAP, capped_guarantee, is_unbounded, least_cap
from shuffledp.collection.wire.sealing import SUITE_NAME, sealed_size
from shuffledp.collection.wire.times import time_from, time_to
from shuffledp.domain import Categories
from shuffledp.durable_files import read_limited
from shuffledp.errors import ConditionError, ParameterError, ShuffledpError
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.protocol import ExpectedError, Protocol
from shuffledp.randomness.logarithmic import LEAST_COMPLEMENT_BITS

FORMAT = "shuffledp-task"
MAX_TASK_BYTES = 1 << 24
SIGNED_AS = {1: b"shuffledp task v1\n", 2: b"shuffledp task v2\n"}
"""What precedes the bytes of a task that are signed and hashed, by the version of the task."""
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
_KEYS_OF = {1: _KEYS, 2: (_KEYS - {"shuffler"}) | KEYS_OF_VERSION_2}
_TOLERANCE = 1e-9
_LONGEST_SHOWN = 60
_MAX_USERS = 10**9
_FIRST_TIME, _LAST_TIME = datetime(1000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
MAX_DRAWS_PER_REPORT = 1 << 24
"""A device refuses a task whose reports take more random draws than this on average."""
MAX_DUMMIES_PER_ROUND = 1 << 24
"""A task whose shuffler would add more dummies than this on average is refused; sealing one takes about 80 us."""


@dataclass(frozen=True)
class Task:
    """The public description of one round of collection."""

    name: str
    description: str
    """The question, for the people who answer it."""
    population: str
    """The people whose privacy budget is spent; releases about one population are composed."""
    protocol: Protocol
    epsilon: float
    delta: float
    """The claim about one release; every reader of the task recomputes it."""
    maximum_users: int
    """Maximum number of reports."""
    opens: datetime
    closes: datetime
    messages_per_report: int
    analyzer: SealingPublicKey
    """Messages are sealed to this key."""
    shuffler: VerifyingKey
    """The batch that the analyzer accepts is signed with this key: of the only shuffler, or of the last of a chain."""
    wire: WireVersion2 | None = None
    """The further fields of a task of wire version 2; None for version 1."""
    stated_local_epsilon: float | None = field(default=None, compare=False)
    """The local epsilon in the document, if the task was read: its last digits may differ between machines."""

    def __post_init__(self) -> None:
        if self.protocol.trust == "augmented":
            self._check_augmented()
        elif self.protocol.needs_trusted_party:
            raise ParameterError(
                f"{self.protocol.name} requires a trusted party; a collection needs a shuffled, augmented or local "
                "protocol."
            )
        is_pure = self.wire is not None and self.delta == 0
        check_target(self.epsilon, LEAST_DELTA if is_pure else self.delta)
        _check_drawable(self.protocol)
        self.protocol.min_messages_per_user  # noqa: B018 - raises if the analyzer could not bound the number of users
        check_string("name", self.name, min_length=1, max_length=LONGEST_STRING)
        check_string("description", self.description, min_length=0, max_length=LONGEST_STRING)
        check_string("population", self.population, min_length=1, max_length=LONGEST_STRING)
        check_category_names(self.protocol.domain.names if isinstance(self.protocol.domain, Categories) else ())
        if not 1 <= self.messages_per_report <= LARGEST_CAP:
            raise ParameterError(
                f"A report of a task has 1 to {LARGEST_CAP:,} messages, not {self.messages_per_report:,}; "
                "choose a protocol that sends fewer.",
                messages_per_report=self.messages_per_report,
            )
        if not self.minimum_users <= self.maximum_users <= _MAX_USERS:
            raise ParameterError(
                f"maximum_users must be between minimum_users = {self.minimum_users:,} and {_MAX_USERS:,}, "
                f"not {self.maximum_users:,}."
            )
        if any(time.tzinfo is None or time.microsecond for time in (self.opens, self.closes)):
            raise ParameterError("The times of a task must have a time zone and no fraction of a second.")
        if not all(_FIRST_TIME <= time <= _LAST_TIME for time in (self.opens, self.closes)):
            raise ParameterError("The times of a task must be in the years 1000 to 9999.")
        if not self.opens < self.closes:
            raise ParameterError(f"The round closes at {self.closes} before it opens at {self.opens}.")
        if self.wire is not None:
            self._check_wire(self.wire)
        self._check_roles()

    def _check_augmented(self) -> None:
        """Refuse what a shuffler that adds dummies cannot carry out: other versions, carriers, too many dummies."""
        if self.wire is None or self.wire.carriers is not None:
            raise ParameterError(
                f"{self.protocol.name} needs a shuffler that adds dummies: a task of wire version 2, with a round key "
                "of the shuffler and without carriers."
            )
        if not self.protocol.mean_dummies <= MAX_DUMMIES_PER_ROUND:
            raise ParameterError(
                f"The shuffler would add about {self.protocol.mean_dummies:.3g} dummies to the round, and seals at "
                f"most {MAX_DUMMIES_PER_ROUND:,}; use fewer categories or a larger epsilon.",
                dummies=self.protocol.mean_dummies,
            )
        if len(self.wire.shufflers) > 1 and self.protocol.shuffler_keeps.fraction < 1:
            raise ParameterError(
                f"{self.protocol.name} samples reports, which this version of shuffledp does not support in a chain of "
                "shufflers; name one shuffler, or use a newer version.",
                reason="unsupported",
            )

    def _check_wire(self, wire: WireVersion2) -> None:
        """Refuse further fields of version 2 that contradict the others."""
        if wire.shufflers[-1].signing != self.shuffler:
            raise ParameterError("The shuffler of a task must be the last of its shufflers.")
        if any(self.analyzer.raw in (keys.signing.raw, keys.sealing.raw) for keys in wire.shufflers):
            raise ParameterError("The same key is used in two roles of the task; every role needs its own.")
        if wire.carriers is None:
            return
        if not self.messages_per_report < wire.carriers.messages_per_report <= LARGEST_CAP:
            raise ParameterError(
                f"A report of a carrier has more than {self.messages_per_report:,} and at most {LARGEST_CAP:,} "
                f"messages, not {wire.carriers.messages_per_report:,}."
            )
        if wire.carriers.minimum > self.maximum_users:
            raise ParameterError(f"A round of at most {self.maximum_users:,} users cannot have more carriers.")

    def _check_roles(self) -> None:
        """Refuse carriers that contradict the protocol."""
        roles, carriers = self.protocol.carrier_roles, self.carriers
        if roles is None and carriers is None:
            return
        if roles is None or carriers is None:
            raise ParameterError(
                f"The task states reports of carriers, but {self.protocol.name} with these parameters has none."
                if roles is None
                else f"The parameters of {self.protocol.name} have carriers, so the task needs wire version 2 and the "
                "length of their reports.",
                reason="inconsistent",
            )
        target = self.protocol.target
        minimum = roles.minimum(target.users, target.honest_users)
        if (self.messages_per_report, carriers.minimum) != (self.protocol.min_messages_per_user, minimum):
            raise ParameterError(
                f"The task contradicts its protocol: who is no carrier sends {self.protocol.min_messages_per_user:,} "
                f"message, and a round needs {minimum:,} carriers, not {self.messages_per_report:,} and "
                f"{carriers.minimum:,}.",
                reason="inconsistent",
            )

    @classmethod
    def create(
        cls,
        *,
        kind: type[Protocol],
        settings: dict[str, Any],
        epsilon: float,
        delta: float,
        maximum_users: int,
        **fields: Any,
    ) -> Self:
        """Calibrate a protocol for slightly below the target; part of delta is reserved for a cap, if one is needed.

        The margin is for rounding differences: other machines recompute the guarantee and must accept it.
        """
        protocol, cap = padded_protocol(kind, settings, epsilon=epsilon, delta=delta, maximum_users=maximum_users)
        is_pure = protocol.trust == "augmented" and protocol.target.delta == 0
        roles, wire = protocol.carrier_roles, fields.get("wire")
        if roles is not None and wire is not None:
            minimum = roles.minimum(protocol.target.users, protocol.target.honest_users)
            fields["wire"] = replace(wire, carriers=Carriers(cap, minimum))
            cap = protocol.min_messages_per_user
        return cls(
            protocol=protocol,
            epsilon=epsilon,
            delta=0.0 if is_pure else delta,
            maximum_users=maximum_users,
            messages_per_report=cap,
            **fields,
        )

    @property
    def version(self) -> int:
        """The version of the wire format, 1 or 2."""
        return 1 if self.wire is None else 2

    @property
    def carriers(self) -> Carriers | None:
        """The longer reports of carriers; None if all reports have one length."""
        return None if self.wire is None else self.wire.carriers

    @property
    def max_messages_per_report(self) -> int:
        """The messages of a carrier's report, if there are carriers, else those of every report."""
        return self.messages_per_report if self.carriers is None else self.carriers.messages_per_report

    @property
    def messages_per_user(self) -> float:
        """The expected number of messages of a report with its dummies; the longer reports of carriers are few."""
        roles = self.protocol.carrier_roles
        if roles is None:
            return self.messages_per_report
        longer = self.max_messages_per_report - self.messages_per_report
        return self.messages_per_report + float(roles.carrier_probability) * longer

    @property
    def minimum_users(self) -> int:
        """Minimum number of reports; a smaller round is destroyed."""
        return self.protocol.users

    @property
    def message_size(self) -> int:
        """Bytes of a packed message."""
        return int(self.protocol.message_format.size)

    @property
    def sealed_size(self) -> int:
        """Bytes of a sealed message."""
        return sealed_size(self.message_size)

    @property
    def hops(self) -> int:
        """The number of shufflers that a report passes."""
        return 1 if self.wire is None else len(self.wire.shufflers)

    def record_size(self, hop: int) -> int:
        """Bytes of a message in the batch of the shuffler with this index, with the layers of those that follow."""
        layer = 0 if self.wire is None else self.wire.outer_suite.seal_size
        return self.sealed_size + (self.hops - 1 - hop) * layer

    def verifying_key(self, hop: int) -> VerifyingKey:
        """The key that verifies the batch of the shuffler with this index."""
        return self.shuffler if self.wire is None else self.wire.shufflers[hop].signing

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee, recomputed from the parameters; ParameterError if the claim does not hold."""
        return capped_guarantee(
            self.protocol,
            cap=self.max_messages_per_report,
            users=self.maximum_users,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def predicted_error(self, users: int, confidence: float = 0.95, *, carriers: int = 0) -> ExpectedError:
        """The predicted error of a release about this many users, and if it is known, this many carriers."""
        protocol = self.protocol if self.carriers is None or carriers < 1 else self.protocol.given_carriers(carriers)
        return _predicted_error(protocol.with_shufflers(self.hops), users, confidence)

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        honest = self.protocol.guarantee.honest_users
        local = self.stated_local_epsilon
        if local is None:
            local = self.protocol.guarantee.local_epsilon
        shufflers = {"shuffler": self.shuffler.to_document()} if self.wire is None else self.wire.to_document()
        return {
            "format": FORMAT,
            "version": self.version,
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
            "opens": time_to(self.opens),
            "closes": time_to(self.closes),
            "messages_per_report": self.messages_per_report,
            "message_size": self.message_size,
            "suite": SUITE_NAME,
            "analyzer": self.analyzer.to_document(),
            **shufflers,
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The task of a document; anything unknown, missing or inconsistent is refused."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ParameterError("This is not a task of shuffledp.", reason="version")
        version = document.get("version")
        if not isinstance(version, int) or version not in _KEYS_OF:
            raise ParameterError(
                f"This task has version {_shown(version)}; this program reads the versions 1 and 2.",
                reason="version",
            )
        keys = _KEYS_OF[version]
        if set(document) != keys:
            raise ParameterError(f"Missing or unknown keys in the task: {', '.join(sorted(set(document) ^ keys))}.")
        wire = None if version == 1 else WireVersion2.from_document(document)
        claim = document["guarantee"]
        if not isinstance(claim, dict) or set(claim) != {"epsilon", "delta", "honest_users", "local_epsilon"}:
            raise ParameterError("The guarantee of a task must have epsilon, delta, honest_users and local_epsilon.")
        task = cls(
            name=_string(document, "name"),
            description=_string(document, "description"),
            population=_string(document, "population"),
            protocol=from_document(document["protocol"]),
            epsilon=_number(claim, "epsilon"),
            delta=_number(claim, "delta"),
            maximum_users=_integer(document, "maximum_users"),
            opens=time_from(document, "opens"),
            closes=time_from(document, "closes"),
            messages_per_report=_integer(document, "messages_per_report"),
            analyzer=SealingPublicKey.from_document(document["analyzer"]),
            shuffler=VerifyingKey.from_document(document["shuffler"]) if wire is None else wire.shufflers[-1].signing,
            wire=wire,
            stated_local_epsilon=math.inf if claim["local_epsilon"] is None else _number(claim, "local_epsilon"),
        )
        computed = _guarantee_of(task.protocol).local_epsilon
        derived = task.to_document()
        if portable(document["protocol"]) != derived["protocol"]:
            raise ParameterError("The protocol of the task is not in canonical form: see the page on randomizers.")
        inconsistent = {key for key in keys if document[key] != derived[key]}
        if not math.isclose(task.stated_local_epsilon or 0.0, computed, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            inconsistent.add("guarantee")  # infinity is close only to itself
        if inconsistent:
            raise ParameterError(
                f"The task contradicts its protocol: {', '.join(sorted(inconsistent))}.",
                reason="inconsistent",
            )
        return task

    @cached_property
    def content(self) -> bytes:
        """The canonical bytes of the document."""
        return canonical(self.to_document())

    @property
    def signed_content(self) -> bytes:
        """The bytes that are signed and whose SHA-256 is the id."""
        return SIGNED_AS[self.version] + self.content

    @cached_property
    def id(self) -> bytes:
        """The id of the task: a SHA-256, 32 bytes."""
        return hashlib.sha256(self.signed_content).digest()

    def signed(self, author: SigningKey) -> SignedTask:
        """The task with its author's signature."""
        return SignedTask(self, author.public.id, author.sign(self.signed_content))


@dataclass(frozen=True)
class SignedTask:
    """A task, the id of its claimed author, and the signature."""

    task: Task
    author: str
    """The id of the author's key."""
    signature: bytes

    def verify(self, author: VerifyingKey) -> Task:
        """The task; ParameterError unless that key signed it and its guarantee holds."""
        if self.author != author.id:
            raise ParameterError(f"The task was signed by the key {self.author}, not by {author.id}.")
        author.verify(self.signature, self.task.signed_content)
        check_author(author, self.task.opens, "task")
        if self.task.wire is not None:
            self.task.wire.check_supported()
        _ = self.task.guarantee
        return self.task

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical(
            {"task": self.task.to_document(), "author": self.author, "signature": to_base64(self.signature)}
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The signed task of the bytes of a file."""
        document = parse_canonical(content.removesuffix(b"\n"), max_bytes=MAX_TASK_BYTES)
        if not isinstance(document, dict) or set(document) != {"task", "author", "signature"}:
            raise ParameterError("A signed task must have the keys task, author and signature.")
        if not re.fullmatch("[0-9a-f]{16}", str(document["author"])):
            raise ParameterError("The author of a signed task must be the id of a key.")
        return cls(Task.from_document(document["task"]), document["author"], from_base64(document["signature"], 64))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file."""
        return cls.from_bytes(read_limited(Path(path), MAX_TASK_BYTES, "task"))


@lru_cache(maxsize=256)
def _predicted_error(protocol: Protocol, users: int, confidence: float) -> ExpectedError:
    """The predicted error of a release; cached, since an operator's page asks for it every few seconds."""
    return protocol.expected_error(users=users, confidence=confidence)


def padded_protocol(
    kind: type[Protocol], settings: dict[str, Any], *, epsilon: float, delta: float, maximum_users: int
) -> tuple[Protocol, int]:
    """The protocol of a task with this target, and the number of messages of each report, dummies included.

    If there are carriers, it is the number of messages of their reports.
    """
    protocol = _calibrated(kind, epsilon, delta, settings)
    if is_unbounded(protocol):
        protocol = _calibrated(kind, epsilon, delta * (1 - DELTA_FOR_CAP), settings)
    return protocol, least_cap(protocol, users=maximum_users, epsilon=epsilon, delta=delta * DELTA_FOR_CAP)


def best_carriers(
    kind: type[Protocol], settings: dict[str, Any], *, epsilon: float, delta: float, maximum_users: int
) -> float | None:
    """The option ``carriers`` with the fewest messages for a task with this target; None if carriers save nothing."""
    if kind.best_carriers is Protocol.best_carriers:  # without calibrating it
        return None
    protocol, cap = padded_protocol(kind, settings, epsilon=epsilon, delta=delta, maximum_users=maximum_users)
    of_protocol, of_cap = delta * (1 - DELTA_FOR_CAP), delta * DELTA_FOR_CAP
    probability = protocol.best_carriers(users=maximum_users, delta=of_protocol, delta_of_cap=of_cap)
    if probability is None:
        return None
    with_carriers = {**settings, "carriers": probability}
    carried, longest = padded_protocol(kind, with_carriers, epsilon=epsilon, delta=delta, maximum_users=maximum_users)
    return probability if 1 + probability * (longest - 1) < cap and carried.carrier_roles is not None else None


def _calibrated(kind: type[Protocol], epsilon: float, delta: float, settings: dict[str, Any]) -> Protocol:
    """Calibrate for slightly less than the target, to allow for rounding; the protocol claims the target itself."""
    positive_delta = LEAST_DELTA if delta == 0 else delta
    check_target(epsilon, positive_delta)
    if kind.trust != "local" and delta > 0:
        protocol = kind.calibrate(epsilon=epsilon, delta=delta * (1 - _TOLERANCE), **settings)
        if protocol.target.delta > 0:
            return replace(protocol, target=replace(protocol.target, delta=delta))
        if protocol.trust != "augmented":
            return protocol
    # without a delta the margin is on epsilon
    protocol = kind.calibrate(epsilon=epsilon * (1 - _TOLERANCE), delta=positive_delta, **settings)
    if delta == 0 and protocol.target.delta > 0:
        raise ParameterError(f"{protocol.name} does not have pure privacy; give a delta above 0.")
    return replace(protocol, target=replace(protocol.target, epsilon=float(epsilon)))


def _check_drawable(protocol: Protocol) -> None:
    """Refuse parameters that make a device draw too many random numbers for one report."""
    if not protocol.draws_per_report <= MAX_DRAWS_PER_REPORT:
        raise ParameterError(
            f"A report of {protocol.name} with these parameters takes about {protocol.draws_per_report:.3g} random "
            f"draws; a device makes at most {MAX_DRAWS_PER_REPORT:,}.",
            draws=protocol.draws_per_report,
        )
    least_complement = Fraction(1, 1 << LEAST_COMPLEMENT_BITS)
    if any(ratio.complement.fraction < least_complement for ratio in protocol.share_ratios):
        raise ParameterError(f"The noise of {protocol.name} is too wide for devices to draw their shares of it.")


def _guarantee_of(protocol: Protocol) -> Guarantee:
    """The guarantee; ParameterError if the target does not hold or a condition of the theorem is not met."""
    try:
        return protocol.guarantee
    except ShuffledpError as error:
        if isinstance(error, ConditionError) or "claimed" in error.values:
            raise ParameterError(str(error), **{**error.values, "reason": "bad-guarantee"}) from None
        raise


def _shown(value: Any) -> str:
    """The beginning of an untrusted value, for messages."""
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def _string(document: dict[str, Any], key: str) -> str:
    if not isinstance(document[key], str):
        raise ParameterError(f"{key} must be a string, not {_shown(document[key])}.")
    return str(document[key])


def _integer(document: dict[str, Any], key: str) -> int:
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
