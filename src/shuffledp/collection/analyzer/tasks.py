"""The tasks that an analyzer serves: of a trusted author, sealed to its key, about a population with a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey, VerifyingKey
from shuffledp.errors import ParameterError


class AnalyzerTasks(TaskDirectory[Task]):
    """The tasks of an analyzer."""

    def __init__(
        self,
        directory: Path,
        authors: Sequence[VerifyingKey],
        keys: Sequence[SealingKey],
        budgets: Mapping[str, PopulationBudget],
        round_keys: RoundKeyDirectory | None = None,
    ) -> None:
        super().__init__(directory, authors)
        self._keys, self._budgets = tuple(keys), budgets
        self._round_keys = round_keys or RoundKeyDirectory()
        self._round_key_uses: dict[SealingPublicKey, str] = {}
        """The only task that may use a round key, which is destroyed with it."""

    def get(self, task_id: bytes) -> Task | None:
        """The task with this id, if it is served."""
        return self.find(task_id.hex())

    def expected(self, task_id: bytes) -> ExpectedBatch | None:
        """The batch of the last shuffler of a task, if the task is served."""
        task = self.get(task_id)
        return None if task is None else ExpectedBatch.of_last(task)

    def key(self, task: Task) -> SealingKey:
        """The key that opens the messages of a task; KeylessError or ExpiredKeyError if it cannot be used."""
        for key in self._keys:
            if key.public == task.analyzer:
                key.check_unexpired()
                return key
        return self._round_keys.load(task.analyzer)

    def key_file(self, task: Task) -> Path:
        """The file of a round key."""
        return self._round_keys.file(task.analyzer)

    def destroy_key(self, task: Task) -> None:
        """Destroy the key of a task that is released or refused, if it is a round key."""
        if self._is_round_key(task):
            self._round_keys.destroy(task.analyzer)

    def _is_round_key(self, task: Task) -> bool:
        return all(key.public != task.analyzer for key in self._keys)

    def budget(self, task: Task) -> PopulationBudget:
        """The budget of the task's population."""
        return self._budgets[task.population]

    @property
    def budgets(self) -> Mapping[str, PopulationBudget]:
        """The budgets of all populations."""
        return self._budgets

    @property
    def keys(self) -> tuple[SealingKey, ...]:
        """The keys that open messages of several rounds."""
        return self._keys

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys that open messages."""
        return [key.public.id for key in self._keys]

    def _read(self, path: Path) -> tuple[str, Task]:
        task, _ = load_authentic(path, self.authors.keys)
        self._check_key(path, task)
        if task.population not in self._budgets:
            raise ParameterError(f"The task {path} is about {task.population!r}, a population without a budget.")
        return task.id.hex(), task

    def _check_key(self, path: Path, task: Task) -> None:
        """Refuse a task whose messages could not be opened."""
        if not self._is_round_key(task):
            return
        public, name = task.analyzer, task.id.hex()
        if not self._round_keys.has(public) and not self._round_keys.was_destroyed(public):
            raise ParameterError(f"The task {path} is sealed to the key {public.id}, which is not configured.")
        if self._round_key_uses.setdefault(public, name) != name:
            raise ParameterError(
                f"The task {path} is sealed to the round key {public.id} of another round, with which it is destroyed; "
                "every round needs its own."
            )

    def _fields(self, task: Task) -> Mapping[str, str | int]:
        return {"closes": task.closes.isoformat()}
