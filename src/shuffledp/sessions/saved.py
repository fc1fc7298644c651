"""Session files: the budget of a session and its releases as JSON, written durably, read as hostile input.

A release is saved as the document of its protocol, without the names of categories; its privacy curve is recomputed
from that when the file is read, whatever the file says.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shuffledp.durable_files import FileLock, read_limited, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError, ShuffledpError
from shuffledp.output import check_writable
from shuffledp.privacy.guarantee import REPLACE_ONE, REPLACE_ONE_USER
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.protocol import Protocol
from shuffledp.sessions.budget import MAX_RELEASES, Budget, Release

FORMAT, VERSION = "shuffledp-session", 1
MAX_SESSION_BYTES = 1 << 24
MAX_LABEL = 200
"""Maximum number of characters of a label and of a subject."""
_QUESTIONS = {"variance": "quantiles"}
"""The question whose protocols answer a statistic of another name."""
STATISTICS = ("count", "histogram", "sum", "mean", "quantiles", "variance", "strings")

_SESSION_KEYS = (
    "format",
    "version",
    "users",
    "epsilon",
    "delta",
    "honest_fraction",
    "trust",
    "adaptive",
    "announced",
    "releases",
)
_RELEASE_KEYS = (
    "label",
    "statistic",
    "subject",
    "share",
    "limit",
    "released_at",
    "secure",
    "finished",
    "neighbours",
    "protocol",
)
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class SessionFile:
    """The file of a session; it is changed only under the lock ``PATH.lock``, for which other processes wait."""

    def __init__(self, path: str | Path) -> None:
        # releases through a symbolic link must change the file itself, under the same lock
        self.path = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
        self._content = b""
        """The content as it was last read or written."""

    def create(self, budget: Budget) -> None:
        """Write a new file; an existing one is never overwritten, since it records what was spent."""
        check_writable(self.path)
        with self.locked():
            if self.path.exists():
                raise OutputError(
                    f"{self.path} exists already: continue that session with Session.load, or name another file.",
                    path=str(self.path),
                )
            self.write(budget)

    def read(self) -> Budget:
        """The budget in the file."""
        self._content = self._read()
        return parse_session(self._content, str(self.path))

    def updated(self, budget: Budget) -> Budget:
        """The given budget, or that of the file if the file has changed since it was last read or written.

        DataError if the file does not have all releases of the given budget: it was restored or replaced, and does not
        record everything that was spent.
        """
        if self._read() == self._content:
            return budget
        read = self.read()
        if not _continues(read, budget):
            raise DataError(
                f"{self.path} does not record all releases of this session: it was restored or replaced. "
                "Nothing was released.",
                path=str(self.path),
            )
        return read

    def write(self, budget: Budget) -> None:
        """Replace the content durably: after this, a crash does not lose a release."""
        content = session_content(budget)
        try:
            write_durably(self.path, content, mode=0o600, preserve_access=True)
        except OSError as error:
            raise OutputError(f"Cannot write {self.path}: {error.strerror or error}.", path=str(self.path)) from None
        self._content = content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; wait while another process holds it."""
        lock_path = self.path.with_name(f"{self.path.name}.lock")
        try:
            lock = FileLock(lock_path)
        except OSError as error:
            raise OutputError(f"Cannot lock {lock_path}: {error.strerror or error}.", path=str(lock_path)) from None
        with lock:
            yield

    def _read(self) -> bytes:
        content = read_limited(self.path, MAX_SESSION_BYTES, "session")
        if (links := self.path.stat().st_nlink) > 1:  # a write replaces one of them only
            raise DataError(
                f"{self.path} is one of {links:,} hard links to one session, which would each spend its budget; "
                "remove the others.",
                path=str(self.path),
            )
        return content


def session_content(budget: Budget) -> bytes:
    """The JSON of a session's budget; refused if it is larger than the limit for reading."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "users": int(budget.users),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "honest_fraction": budget.honest_fraction,
        "trust": budget.trust,
        "adaptive": budget.adaptive,
        "announced": budget.announced,
        "releases": [_release_document(release) for release in budget.releases],
    }
    content = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    if len(content) > MAX_SESSION_BYTES:
        raise OutputError(f"The session does not fit into a file of {MAX_SESSION_BYTES:,} bytes.")
    return content


def parse_session(content: bytes, name: str) -> Budget:
    """The budget that these bytes describe; ``name`` names them in errors, which are one line each."""
    try:
        return _budget(_parse_json(content))
    except (ShuffledpError, ValueError, ArithmeticError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise DataError(f"{name} is not a valid session file: {_one_line(reason)}.", path=name) from None


def check_label(name: str, value: object) -> str:
    """Check a label or a subject: one line of printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_LABEL or not value.isprintable():
        raise ParameterError(f"A {name} must be a string of 1 to {MAX_LABEL} printable characters.")
    return value


def _parse_json(content: bytes) -> Mapping[str, Any]:
    document = json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    _check_keys(document, _SESSION_KEYS, "a session")
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise ParameterError(f"its format is not {FORMAT} {VERSION}")
    checked: Mapping[str, Any] = document
    return checked


def _budget(document: Mapping[str, Any]) -> Budget:
    releases = document["releases"]
    if not isinstance(releases, list) or len(releases) > MAX_RELEASES:
        raise ParameterError(f"releases must be a list of at most {MAX_RELEASES:,}")
    budget = Budget(
        users=_integer(document, "users"),
        epsilon=_number(document, "epsilon"),
        delta=_number(document, "delta"),
        honest_fraction=_number(document, "honest_fraction"),
        trust=_string(document, "trust"),
        adaptive=_boolean(document, "adaptive"),
        announced=None if document["announced"] is None else _integer(document, "announced"),
    )
    made: list[Release] = []
    for number, content in enumerate(releases, start=1):
        try:
            release = _release(content)
            lowest = made[-1].limit if made else 0.0
            if not lowest <= release.limit <= budget.epsilon:
                raise ParameterError(f"its limit must lie between {lowest:g} and {budget.epsilon:g}")
            replace(budget, releases=(release,))  # checks the protocol and its guarantee
        except ShuffledpError as error:
            raise ParameterError(f"release {number}: {error}") from None
        made.append(release)
    labels = [release.label for release in made]
    if len(set(labels)) < len(labels):
        raise ParameterError("two releases have the same label")
    return replace(budget, releases=tuple(made))


def _release(content: Any) -> Release:
    _check_keys(content, _RELEASE_KEYS, "a release")
    statistic = _string(content, "statistic")
    if statistic not in STATISTICS:
        raise ParameterError(f"statistic must be one of {', '.join(STATISTICS)}")
    share = None if content["share"] is None else _number(content, "share")
    if share is not None and not 0 < share <= 1:
        raise ParameterError(f"share must be above 0 and at most 1, not {share!r}")
    return Release(
        label=check_label("label", content["label"]),
        statistic=statistic,
        subject=check_label("subject", content["subject"]),
        protocol=_protocol(content["protocol"], statistic),
        limit=_number(content, "limit"),
        released_at=datetime.strptime(_string(content, "released_at"), _TIME).replace(tzinfo=UTC),
        share=share,
        secure=_boolean(content, "secure"),
        finished=_boolean(content, "finished"),
        neighbours=_neighbours(content),
    )


def _neighbours(content: Mapping[str, Any]) -> str:
    neighbours = _string(content, "neighbours")
    if neighbours not in (REPLACE_ONE, REPLACE_ONE_USER):
        raise ParameterError(f"neighbours must be {REPLACE_ONE} or {REPLACE_ONE_USER}")
    return neighbours


def _protocol(document: Any, statistic: str) -> Protocol:
    protocol = from_document(document)
    try:
        return protocol.answering(_QUESTIONS.get(statistic, statistic))
    except ParameterError:
        told = f"{protocol.question}/{protocol.name} does not answer the statistic {statistic}"
        raise ParameterError(told) from None


def _release_document(release: Release) -> dict[str, Any]:
    return {
        "label": release.label,
        "statistic": release.statistic,
        "subject": release.subject,
        "share": release.share,
        "limit": release.limit,
        "released_at": release.released_at.astimezone(UTC).strftime(_TIME),
        "secure": release.secure,
        "finished": release.finished,
        "neighbours": release.neighbours,
        "protocol": to_document(release.protocol.answering(release.protocol.question).without_names()),
    }


def _continues(later: Budget, earlier: Budget) -> bool:
    """Whether the later budget has the settings and all releases of the earlier one, finished or not."""
    made = replace(later, releases=later.releases[: len(earlier.releases)])
    return bool(_unfinished(made) == _unfinished(earlier))


def _unfinished(budget: Budget) -> Any:
    releases = (replace(release, finished=False) for release in budget.releases)
    return json.loads(session_content(replace(budget, announced=None, releases=tuple(releases))))


def _check_keys(content: Any, keys: tuple[str, ...], name: str) -> None:
    if not isinstance(content, dict) or set(content) != set(keys):
        raise ParameterError(f"{name} must be an object with the keys {', '.join(keys)}")


def _number(content: Mapping[str, Any], key: str) -> float:
    value = content[key]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ParameterError(f"{key} must be a number")
    return float(value)


def _integer(content: Mapping[str, Any], key: str) -> int:
    value = content[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ParameterError(f"{key} must be an integer")
    return value


def _string(content: Mapping[str, Any], key: str) -> str:
    value = content[key]
    if not isinstance(value, str):
        raise ParameterError(f"{key} must be a string")
    return value


def _boolean(content: Mapping[str, Any], key: str) -> bool:
    value = content[key]
    if not isinstance(value, bool):
        raise ParameterError(f"{key} must be true or false")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice")
    return document


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:300]
