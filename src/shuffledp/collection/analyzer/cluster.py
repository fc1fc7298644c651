"""Counting on a Spark cluster: executors open the messages of a batch, with a key that they read from a file.

Spark sees the path of the key, never the key itself: it is not in its configuration, logs, plans or task descriptions.
The result is the one of ``count_messages``, since copies are found over all partitions.
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shuffledp.collection.analyzer.counting import REPEATED, Counted, Reader, no_messages
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.errors import DataError
from shuffledp.messages import Tally
from shuffledp.protocols.protocol import Protocol


def sealed_contents(task: Task) -> str:
    """The description of a task's sealed messages, for ``sdp.spark.mix``."""
    return f"sealed {task.id.hex()}"


def count_on_spark(
    task: Task,
    key_file: Path,
    files: Sequence[tuple[Path, int]],
    *,
    master: str | None = None,
    parts: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Counted:
    """Open and count all messages of files, given by paths and sizes, on the executors of a Spark cluster.

    Executors read the files and the key at the same paths as this process. ``stopping`` is checked at the end: a
    running job is not interrupted.
    """
    expected = sum(size for _, size in files) // task.sealed_size
    names = [str(file.absolute()) for file, _ in files]
    return _count(task, key_file, names, None, expected, master=master, parts=parts, stopping=stopping)


def count_mixed_on_spark(task: Task, key_file: Path, path: str, *, parts: int | None = None) -> Counted:
    """Open and count the sealed messages of a directory that ``sdp.spark.mix`` wrote, with ``sealed_contents``."""
    return _count(task, key_file, [path], sealed_contents(task), None, parts=parts)


def _count(
    task: Task,
    key_file: Path,
    paths: list[str],
    contents: str | None,
    expected: int | None,
    *,
    master: str | None = None,
    parts: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Counted:
    from shuffledp.engines.spark.distinct_records import work_on_distinct

    work = _Opening(
        task.protocol, task.id, task.message_size, task.sealed_size, str(key_file), task.analyzer.id, task.version
    )
    opened = work_on_distinct(
        paths, work, _merge, record_size=task.sealed_size, contents=contents, parts=parts, master=master
    )
    if stopping():
        raise ShutdownError
    if expected is not None and opened.records != expected:
        raise DataError(f"The files have {opened.records:,} messages, and {expected:,} are expected.")
    counted = _from_bytes(opened.result)
    copies = Counter({REPEATED: opened.copies}) if opened.copies else Counter[str]()
    return Counted(
        no_messages(task.protocol) + counted.tally, counted.messages, counted.dummies, counted.rejected + copies
    )


@dataclass(frozen=True)
class _Opening:
    """Opens distinct messages on an executor, which has the key in a file."""

    protocol: Protocol
    task_id: bytes
    message_size: int
    sealed_size: int
    key_file: str
    key_id: str
    version: int

    def __call__(self, records: NDArray[np.uint8]) -> bytes:
        """The counts of the messages, as bytes."""
        opener = Opener(_load_key(self.key_file, self.key_id), self.task_id, self.message_size, self.version)
        reader = Reader(self.protocol, opener, self.sealed_size)
        return _to_bytes(reader.count_sealed(record.tobytes() for record in records))


@lru_cache(maxsize=4)
def _load_key(path: str, key_id: str) -> SealingKey:
    try:
        key = SealingKey.load(path)
    except (DataError, OSError) as error:
        raise DataError(f"An executor cannot read the analyzer's key: {error}") from None
    if key.public.id != key_id:
        raise DataError(f"{path} on an executor is the key {key.public.id}; the task is sealed to {key_id}.")
    return key


def _merge(results: Sequence[bytes]) -> bytes:
    return _to_bytes(reduce(operator.add, map(_from_bytes, results)))


def _to_bytes(counted: Counted) -> bytes:
    numbers = {"messages": counted.messages, "dummies": counted.dummies, "rejected": dict(counted.rejected)}
    return json.dumps(numbers).encode() + b"\n" + counted.tally.counts.astype("<i8").tobytes()


def _from_bytes(content: bytes) -> Counted:
    header, _, counts = content.partition(b"\n")
    numbers = json.loads(header)
    tally = Tally(np.frombuffer(counts, dtype="<i8").astype(np.int64), 0)
    return Counted(tally, numbers["messages"], numbers["dummies"], Counter(numbers["rejected"]))
