"""Fetching the published release of a task from an analyzer."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Connection, failure_reason
from shuffledp.errors import RefusedError, UnreachableError

FORMS = {"json": "", "csv": ".csv", "html": "/page"}
"""The forms of a release, and the suffixes of their paths."""

_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class PublishedRelease:
    """A published release, as fetched from the analyzer."""

    task: Task
    document: dict[str, Any]
    """The documented JSON form."""


def fetch_release(connection: Connection, task: Task) -> PublishedRelease | None:
    """The release of the task, or None if there is none yet.

    RefusedError if the answer is not a release of this task with its guarantee. The numbers themselves cannot be
    checked: they are as trustworthy as the analyzer.
    """
    content = fetch_form(connection, task, "json")
    if content is None:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("task") != task.id.hex():
        raise RefusedError("The answer is not a release of this task.")
    guarantee = document.get("guarantee")
    claimed = {"epsilon": task.epsilon, "delta": task.delta}
    if not isinstance(guarantee, dict) or {name: guarantee.get(name) for name in claimed} != claimed:
        raise RefusedError("The answer does not have the guarantee of this task.")
    return PublishedRelease(task, document)


def fetch_form(connection: Connection, task: Task, form: str) -> bytes | None:
    """The bytes of a form of the release, or None if there is none yet."""
    try:
        answer, content = connection.download(f"/v1/releases/{task.id.hex()}{FORMS[form]}", max_bytes=_MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"The analyzer cannot be reached: {failure_reason(error)}.") from None
    if answer.status == 200:
        return content
    if answer.status == 404 and answer.problem == "no-release":
        return None
    raise RefusedError(f"The analyzer answered {answer.sentence.rstrip('.')}.", status=answer.status)
