"""The policy of a device: limits that a task must meet, whatever it claims."""

from __future__ import annotations

from dataclasses import dataclass

from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.errors import ParameterError, PolicyError


@dataclass(frozen=True)
class Policy:
    """Limits on the tasks that a device reports to."""

    max_epsilon: float = 1.0
    max_delta: float = 1e-5
    min_users: int = 100
    """Minimum number of honest users among whom a report is hidden; ignored for local and augmented protocols, which do
    not need any."""
    max_messages: int = 1 << 16
    """Maximum messages of one report: sealing each takes time."""
    max_report_bytes: int = 1 << 24
    allow_augmented: bool = False
    """Whether the device reports to tasks of the trust ``augmented``, in which all noise comes from the shuffler."""

    def __post_init__(self) -> None:
        counts = (self.min_users, self.max_messages, self.max_report_bytes)
        if not (self.max_epsilon > 0 and 0 <= self.max_delta < 1 and all(limit >= 1 for limit in counts)):
            raise ParameterError(f"A policy needs positive limits and a delta below 1, not {self}.")

    def check(self, task: Task) -> None:
        """Raise a PolicyError that names the exceeded limit, if there is one.

        The guarantee is recomputed from the parameters of the protocol; claims are only compared with it.
        """
        size = ReportFormat.of(task).max_size  # checked before the role is drawn: else a policy could depend on it
        messages = task.max_messages_per_report
        if messages > self.max_messages or size > self.max_report_bytes:
            raise PolicyError(
                f"A report of this task has {messages:,} messages and {size:,} bytes; this device "
                f"sends at most {self.max_messages:,} and {self.max_report_bytes:,}.",
                messages=messages,
                bytes=size,
            )
        guarantee = task.guarantee
        if guarantee.trust == "augmented" and not self.allow_augmented:
            raise PolicyError(
                "This task trusts the shuffler to add all noise (trust: augmented), which this device does not allow; "
                "its owner can allow it.",
                trust=guarantee.trust,
            )
        achieved = guarantee.delta_at(self.max_epsilon)
        if not achieved <= self.max_delta:
            raise PolicyError(
                f"The task is private with epsilon = {guarantee.epsilon:g} and delta = {guarantee.delta:g}; at "
                f"epsilon = {self.max_epsilon:g} its delta is {achieved:.3g}. But this device allows epsilon = "
                f"{self.max_epsilon:g} with delta = {self.max_delta:g}.",
                epsilon=guarantee.epsilon,
                delta=achieved,
            )
        if guarantee.trust not in ("local", "augmented") and guarantee.honest_users < self.min_users:
            raise PolicyError(
                f"The task hides a report among {guarantee.honest_users:,} honest users; this device requires "
                f"{self.min_users:,}.",
                users=guarantee.honest_users,
                wanted=self.min_users,
            )
