"""The tasks that an analyzer serves: of a trusted author, sealed to its key, about a population with a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey, VerifyingKey
from shuffledp.errors import ParameterError


class AnalyzerTasks(TaskDirectory[Task]):
    """The tasks of an analyzer."""

    def __init__(
        self,
        directory: Path,
        authors: Sequence[VerifyingKey],
        keys: Sequence[SealingKey],
        budgets: Mapping[str, PopulationBudget],
    ) -> None:
        super().__init__(directory)
        self._authors, self._keys, self._budgets = tuple(authors), tuple(keys), budgets

    def get(self, task_id: bytes) -> Task | None:
        """The task with this id, if it is served."""
        return self.find(task_id.hex())

    def key(self, task: Task) -> SealingKey:
        """The key that opens the messages of a task."""
        return next(key for key in self._keys if key.public == task.analyzer)

    def budget(self, task: Task) -> PopulationBudget:
        """The budget of the task's population."""
        return self._budgets[task.population]

    @property
    def budgets(self) -> Mapping[str, PopulationBudget]:
        """The budgets of all populations."""
        return self._budgets

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys that open messages."""
        return [key.public.id for key in self._keys]

    def _read(self, path: Path) -> tuple[str, Task]:
        task, _ = load_authentic(path, self._authors)
        if all(key.public != task.analyzer for key in self._keys):
            raise ParameterError(f"The task {path} is sealed to the key {task.analyzer.id}, which is not configured.")
        if task.population not in self._budgets:
            raise ParameterError(f"The task {path} is about {task.population!r}, a population without a budget.")
        return task.id.hex(), task

    def _fields(self, task: Task) -> Mapping[str, str | int]:
        return {"closes": task.closes.isoformat()}
