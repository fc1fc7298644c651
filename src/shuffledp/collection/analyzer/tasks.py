"""The tasks that an analyzer answers: of an author it knows, sealed to its key, on a population with a budget."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shuffledp.collection.analyzer.settings import Budget
from shuffledp.collection.server.directories import RefusedFile, WatchedDirectory
from shuffledp.collection.server.logs import event
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey, VerifyingKey
from shuffledp.errors import DataError, ParameterError

__all__ = ["AnalyzerTasks"]


class AnalyzerTasks:
    """The tasks of a folder, by their ids. What was once read stays known."""

    def __init__(
        self,
        folder: Path,
        authors: Sequence[VerifyingKey],
        keys: Sequence[SealingKey],
        budgets: Mapping[str, Budget],
    ) -> None:
        self._folder, self._authors = WatchedDirectory(folder), tuple(authors)
        self._keys, self._budgets = tuple(keys), budgets
        self._tasks: dict[bytes, Task] = {}
        self._one_reader = threading.Lock()
        self.refused: list[RefusedFile] = []
        """The files that were left out at the start."""

    def get(self, task_id: bytes) -> Task | None:
        """The task of an id."""
        return self._tasks.get(task_id)

    def key(self, task: Task) -> SealingKey:
        """The key that opens the messages of a task."""
        return next(key for key in self._keys if key.public == task.analyzer)

    def budget(self, task: Task) -> Budget:
        """What the task's population may spend."""
        return self._budgets[task.population]

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """The budgets of all populations."""
        return self._budgets

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys that open messages."""
        return [key.public.id for key in self._keys]

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def load(self) -> None:
        """Read all files, for the start; those that are not in order are left out. Nothing is logged of them."""
        self._folder.check()
        try:
            self.refused = self._folder.look(self._add)
        except OSError as error:
            raise DataError(f"Cannot read the folder of tasks: {error.strerror or error}.") from None

    def refresh(self) -> None:
        """Read files that are new or changed; those that are not in order are logged and left out."""
        with self._one_reader:
            self._folder.follow(self._add)

    def _add(self, path: Path) -> None:
        task, _ = load_authentic(path, self._authors)
        if all(key.public != task.analyzer for key in self._keys):
            raise ParameterError(f"The task {path} is sealed to the key {task.analyzer.id}, which is not here.")
        if task.population not in self._budgets:
            raise ParameterError(f"The task {path} is about {task.population!r}, a population without a budget.")
        if task.id not in self._tasks:
            self._tasks[task.id] = task
            event("task", task=task.id.hex(), closes=task.closes.isoformat())
