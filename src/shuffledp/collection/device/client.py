"""A device: checks a task, randomizes its value once, seals it, and delivers it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shuffledp.collection.device.authors import PinnedAuthor, PinnedAuthors
from shuffledp.collection.device.budget import DeviceBudget
from shuffledp.collection.device.outbox import Outbox, State
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.device.sending import Patience, deliver, reports_path
from shuffledp.collection.device.spending import Spending
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.formats import REPORT_ID_SIZE, ReportFormat
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.collection.wire.layers import add_layers
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import DataError, ParameterError, PolicyError, RefusedError
from shuffledp.privacy.sampled_curves import SampledCurve
from shuffledp.randomness import SYSTEM, bernoulli
from shuffledp.shuffling import permute

if TYPE_CHECKING:
    from shuffledp.collection.wire.privacy_pass import TokenIssuer

_MAX_DRAWS = 1000


class Client:
    """One device and one task. The report is drawn once, even if it is sent repeatedly or the device restarts.

    ``author`` is the key that the device was installed with; rotations that the device accepted (``PinnedAuthors``) are
    followed. Without a ``budget``, all reports may have eight times the epsilon of the policy in 365 days.
    """

    def __init__(
        self,
        signed_task: bytes,
        *,
        author: VerifyingKey,
        state: str | Path,
        policy: Policy | None = None,
        budget: DeviceBudget | None = None,
    ) -> None:
        pinned = PinnedAuthors(state).of(author)
        self._open(authentic_task(signed_task, *pinned.keys), pinned, Path(state), policy, budget)

    @classmethod
    def of_round(
        cls, task: Task, author: PinnedAuthor, *, state: Path, policy: Policy, budget: DeviceBudget | None
    ) -> Self:
        """One device and one round of a series that was verified."""
        client = cls.__new__(cls)
        client._open(task, author, state, policy, budget)
        return client

    def _open(
        self, task: Task, author: PinnedAuthor, state: Path, policy: Policy | None, budget: DeviceBudget | None
    ) -> None:
        policy = policy or Policy()
        policy.check(task)
        self.task, self._author = task, author
        self._outbox = Outbox(state)
        self._spending = Spending(state, budget or DeviceBudget.of_policy(policy))

    @property
    def state(self) -> State:
        """The state of the report."""
        return self._outbox.state(self.task.id)

    @property
    def note(self) -> str:
        """Why the report was refused, if it was."""
        return self._outbox.note(self.task.id)

    def report(self, value: Any, *, now: datetime | None = None) -> None:
        """Randomize and seal the value, charge the budget, and store the report, both durably.

        PolicyError if the device has already reported, or if the report would exceed its budget. What is charged is
        never refunded. It does not wait while another process sends the report.
        """
        self._check_unreported()
        moment = now or datetime.now(UTC)
        if not self.task.opens <= moment < self.task.closes:
            raise PolicyError(
                f"The round is open from {self.task.opens:%Y-%m-%d %H:%M} to {self.task.closes:%Y-%m-%d %H:%M} UTC."
            )
        report = sealed_report(self.task, value)
        guarantee = self.task.guarantee
        release = SampledCurve.of(guarantee.curve, epsilon=guarantee.epsilon, delta=guarantee.delta)
        with self._outbox.locked(self.task.id):
            self._check_unreported()  # another process may have stored a report meanwhile; this one was not sent
            self._spending.charge(self.task, self._author, release, moment)
            self._outbox.put(self.task.id, report)

    def send(
        self,
        server: str | Connection,
        *,
        token: str | bytes | None = None,
        patience: Patience | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> State:
        """Deliver the stored report, the same bytes at every attempt; no effect if it was delivered.

        ``token`` is an enrolment token, or as ``bytes`` a Privacy Pass token for the stored report.
        RefusedError if the server rejects it; if no later attempt can succeed, the state is final. UnreachableError if
        the server does not answer: the report stays stored for another call.
        """
        if isinstance(server, str):
            with Connection(server) as connection:
                return self.send(connection, token=token, patience=patience, wait=wait)
        with self._outbox.locked(self.task.id):
            if self.state is not State.PENDING:
                return self.state
            report = self._stored()
            self._spending.read()  # refuses to send while the record of what was spent is damaged
            try:
                path, version = reports_path(self.task), self.task.version
                deliver(server, path, report, token=token, version=version, patience=patience, wait=wait)
            except RefusedError as error:
                if error.values.get("final"):
                    closed = error.values["status"] == 410
                    self._outbox.finish(self.task.id, State.CLOSED if closed else State.REFUSED, str(error))
                raise
            self._outbox.finish(self.task.id, State.DELIVERED)
        return State.DELIVERED

    def token_input(self, issuer: TokenIssuer) -> bytes:
        """What an issuer of Privacy Pass tokens has to sign blindly for the stored report.

        The token is this and the signature; PolicyError if there is no report to send.
        """
        if self.state is not State.PENDING:
            raise PolicyError(f"There is no report to send ({self.state.value}); a token is for one stored report.")
        return issuer.token_input(self.task.id, self._stored())

    def _check_unreported(self) -> None:
        if self.state is not State.NONE:
            raise PolicyError(
                f"This device has reported to this task already ({self.state.value}); a second report would exceed "
                "the guarantee."
            )

    def _stored(self) -> bytes:
        report = self._outbox.pending(self.task.id)
        try:
            ReportFormat.of(self.task).report_id(report)
        except ParameterError as error:
            raise DataError(f"The stored report is damaged and was not sent: {error}") from None
        return report


def sealed_report(task: Task, value: Any) -> bytes:
    """A fresh report on a value (a category, yes or no, a number): randomized, padded, sealed and permuted.

    Call it once per person: a second report on the same value exceeds the guarantee.
    """
    count, messages = _randomized(task, encoded(task, value))
    packed = [row.tobytes() for row in task.protocol.message_format.pack(messages)]
    sealer = Sealer(task.analyzer, task.id, task.message_size, task.version)
    sealed = sealer.seal(packed, count)
    if task.wire is not None:
        sealed = add_layers(sealed, task.wire.round_keys, task.id, after=0)
    order = np.arange(len(sealed))
    permute(order)  # so that positions do not reveal which messages are dummies
    return ReportFormat.of(task).build(os.urandom(REPORT_ID_SIZE), [sealed[index] for index in order.tolist()])


def encoded(task: Task, value: Any) -> Any:
    """The input of the randomizer for a value: an index or a position in the interval; DomainError if it is invalid."""
    return task.protocol.domain.encode(value)


def _randomized(task: Task, value: Any) -> tuple[int, Any]:
    """The length of one report and its messages, drawn again while they exceed it (see ``privacy.capping``).

    The coin that decides who is a carrier is tossed once, and does not depend on the value or on later draws.
    """
    roles = task.protocol.carrier_roles
    if roles is None:
        return task.messages_per_report, _fitting(task.messages_per_report, partial(task.protocol.randomize, value))
    is_carrier = bool(bernoulli(roles.carrier_probability, 1, SYSTEM)[0])
    count = task.max_messages_per_report if is_carrier else task.messages_per_report
    return count, _fitting(count, partial(task.protocol.randomize_in_role, value, carrier=is_carrier))


def _fitting(count: int, draw: Callable[..., Any]) -> Any:
    """Drawn messages, at most ``count``."""
    for _ in range(_MAX_DRAWS):
        messages = draw(source=SYSTEM)
        if len(messages) <= count:
            return messages
    raise PolicyError("The protocol of this task nearly always sends more messages than a report of the task may have.")
