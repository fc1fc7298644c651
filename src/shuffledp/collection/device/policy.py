"""What a device accepts: its own limits, whatever a task claims."""

from __future__ import annotations

from dataclasses import dataclass

from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.errors import ParameterError, PolicyError


@dataclass(frozen=True)
class Policy:
    """The weakest task that a device takes part in."""

    max_epsilon: float = 1.0
    max_delta: float = 1e-5
    min_users: int = 100
    """The least number of honest users that hide the own value; no matter for local protocols."""
    max_messages: int = 1 << 16
    """Of one report: each is sealed on its own, which takes time."""
    max_report_bytes: int = 1 << 24

    def __post_init__(self) -> None:
        whole = (self.min_users, self.max_messages, self.max_report_bytes)
        if not (self.max_epsilon > 0 and 0 <= self.max_delta < 1 and all(limit >= 1 for limit in whole)):
            raise ParameterError(f"A policy needs positive limits and a delta below 1, not {self}.")

    def check(self, task: Task) -> None:
        """Nothing if the task is good enough, else a PolicyError that says what is not.

        The guarantee is recomputed from the parameters of the protocol; the claims are only compared with it.
        """
        size = ReportFormat.of(task).size
        if task.messages_per_report > self.max_messages or size > self.max_report_bytes:
            raise PolicyError(
                f"A report of this task has {task.messages_per_report:,} messages and {size:,} bytes; this device "
                f"sends at most {self.max_messages:,} and {self.max_report_bytes:,}.",
                messages=task.messages_per_report,
                bytes=size,
            )
        guarantee = task.guarantee
        achieved = guarantee.delta_at(self.max_epsilon)
        if not achieved <= self.max_delta:
            raise PolicyError(
                f"The task is private with epsilon = {guarantee.epsilon:g} and delta = {guarantee.delta:g}, and at "
                f"epsilon = {self.max_epsilon:g} with delta = {achieved:.3g}; this device allows epsilon = "
                f"{self.max_epsilon:g} with delta = {self.max_delta:g}.",
                epsilon=guarantee.epsilon,
                delta=achieved,
            )
        if guarantee.trust != "local" and guarantee.honest_users < self.min_users:
            raise PolicyError(
                f"The task hides a report among {guarantee.honest_users:,} honest users; this device wants "
                f"{self.min_users:,}.",
                users=guarantee.honest_users,
                wanted=self.min_users,
            )
