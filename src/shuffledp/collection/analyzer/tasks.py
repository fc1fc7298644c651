"""The tasks that an analyzer serves: of a trusted author, sealed to its key, about a population with a budget."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from shuffledp.collection.analyzer.ledger import Ledger
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.round_keys import KeylessError, RoundKeyDirectory
from shuffledp.collection.server.series import AcceptedSeries
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.series import Series
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
        *,
        kept: Path | None = None,
    ) -> None:
        super().__init__(directory, authors, kept=kept)
        self._ledger: Ledger | None = None
        self._has_batch: Callable[[bytes], bool] = lambda _: False
        self._keys, self._budgets = tuple(keys), budgets
        self._round_keys = round_keys or RoundKeyDirectory()
        self._round_key_uses: dict[SealingPublicKey, str] = {}
        """The only task or series that may use a round key, which is destroyed with it."""
        self._undestroyed: dict[Task, str] = {}
        """The tasks whose round keys could not be destroyed, and why."""

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
        return cast("SealingKey", self._round_keys.load(task.analyzer))  # it has that public key

    def attach(self, ledger: Ledger, has_batch: Callable[[bytes], bool]) -> None:
        """Reserve series in a ledger from now on; ``has_batch`` says whether the batch of a task has arrived."""
        self._ledger, self._has_batch = ledger, has_batch

    def include_cancelled(self) -> None:
        """Serve cancelled rounds as well, whose batches may have arrived before; to decide about them."""
        self._has_batch = lambda _: True

    def series_of(self, task: Task) -> Series | None:
        """The series that a task is a round of, if it is one."""
        place = None if task.wire is None else task.wire.series
        accepted = None if place is None else self.series.get(place.series.hex())
        return None if accepted is None else accepted.series

    def missing_keys(self, accepted: AcceptedSeries, now: float) -> int:
        """How many of the coming rounds of a series have no key here."""
        tasks = [accepted.task(index) for index in range(accepted.rounds) if not accepted.is_cancelled(index)]
        coming = [task for task in tasks if task.opens.timestamp() > now and self._is_round_key(task)]
        return sum(not self._round_keys.has(task.analyzer) for task in coming)

    def unused_keys(self, accepted: AcceptedSeries, ended: float, has_batch: Callable[[bytes], bool]) -> int:
        """How many keys of rounds that closed before ``ended`` are here, though no batch of the round arrived."""
        tasks = [accepted.task(index) for index in range(accepted.rounds)]
        over = [task for task in tasks if task.closes.timestamp() < ended and self._is_round_key(task)]
        return sum(self._round_keys.has(task.analyzer) for task in over if not has_batch(task.id))

    def key_file(self, task: Task) -> Path:
        """The file of a round key."""
        return self._round_keys.file(task.analyzer)

    def destroy_key(self, task: Task) -> None:
        """Destroy the key of a task that is released or refused, if it is a round key.

        A failure is logged once, and tried again by ``retry_keys``.
        """
        if self._is_round_key(task):
            try:
                self._round_keys.destroy(task.analyzer)
            except (OSError, KeylessError) as error:  # what was done about the round must not be done again
                reason = str(error)
                if self._undestroyed.get(task) != reason:
                    event("key-not-destroyed", level=logging.ERROR, key=task.analyzer.id, reason=reason)
                self._undestroyed[task] = reason
            else:
                self._undestroyed.pop(task, None)

    def retry_keys(self) -> None:
        """Try again to destroy the keys that could not be destroyed."""
        for task in list(self._undestroyed):
            self.destroy_key(task)

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
        if task.population not in self._budgets:
            raise ParameterError(f"The task {path} is about {task.population!r}, a population without a budget.")
        self._check_key(path, task)
        return task.id.hex(), task

    def _derive(self, accepted: AcceptedSeries, index: int) -> Task:
        return accepted.task(index)

    def _check_series(self, accepted: AcceptedSeries) -> None:
        """Reserve the whole series, or refuse it; a key that is missing is an alert, since it may be put back."""
        population = accepted.series.first.population
        if population not in self._budgets:
            raise ParameterError(f"The series {accepted.name} is about {population!r}, a population without a budget.")
        configured = {key.public for key in self._keys}
        keys = [keys.analyzer for keys in accepted.series.keys if keys.analyzer not in configured]
        for key in keys:
            if key in self._round_key_uses:
                raise ParameterError(
                    f"The series {accepted.name} has the round key {key.id} of another task or series, with which it "
                    "is destroyed; every round needs its own."
                )
        if self._ledger is not None:
            reservation = self._ledger.reserve_series(accepted.series, self._budgets[population])
            accepted.cancelled_from = reservation.cancelled_from
        self._round_key_uses |= dict.fromkeys(keys, accepted.name)

    def _takes_place(self, accepted: AcceptedSeries, index: int) -> bool:
        return not accepted.is_cancelled(index) or self._has_batch(accepted.task(index).id)

    def _cancelled(self, accepted: AcceptedSeries) -> None:
        rounds = range(accepted.rounds)
        if self._ledger is not None and accepted.cancelled_from is not None:
            kept = [index for index in rounds if self._has_batch(accepted.task(index).id)]
            self._ledger.cancel_series(accepted.series.id, accepted.cancelled_from, kept)
            reservation = self._ledger.reservation(accepted.series.id)
            for index in rounds:
                if reservation is not None and not reservation.takes_place(index):
                    self.destroy_key(accepted.task(index))
        self._drop_cancelled(accepted)

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
