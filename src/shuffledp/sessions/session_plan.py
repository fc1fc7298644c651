"""Plans for a session: the protocols and errors of several questions under one (epsilon, delta), without data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from shuffledp.checks import check_confidence
from shuffledp.errors import ParameterError
from shuffledp.notebook import card, cell, note, table
from shuffledp.planning import Count, FrequentStrings, Histogram, Quantiles, Question, Sum
from shuffledp.planning.listing import error_of, trust_of
from shuffledp.privacy.guarantee import Guarantee, target_warnings
from shuffledp.protocols.protocol import ExpectedError, Protocol
from shuffledp.sessions.budget import MAX_RELEASES, Budget
from shuffledp.sessions.choosing import with_chosen
from shuffledp.tabular import data_frame

if TYPE_CHECKING:
    import pandas as pd

_KINDS = (Count, Histogram, Sum, Quantiles, FrequentStrings)


@dataclass(frozen=True, repr=False)
class PlannedAnswer:
    """One question of a planned session, with the ``protocol`` that answers it and the ``expected`` error.

    ``label`` names it, for example "mean"; ``share`` is the share of the budget that was asked for, None for an equal
    part.
    """

    label: str
    question: Question
    protocol: Protocol
    expected: ExpectedError
    share: float | None = None

    def __repr__(self) -> str:
        return (
            f"PlannedAnswer({self.label}: {self.protocol.question}/{self.protocol.name}; "
            f"error {self.expected.rmse:.4g} {self.question.unit})"
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this answer alone."""
        return self.protocol.guarantee

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "label": self.label,
            "question": self.question.to_json(),
            "protocol": self.protocol.name,
            "model": self.protocol.trust,
            "share": self.share,
            "guarantee": self.guarantee.to_json(),
            "expected": self.expected.to_json(),
            "cost": self.protocol.cost.to_json(),
            "parameters": self.protocol.parameters(),
        }


@dataclass(frozen=True, repr=False)
class SessionPlan:
    """The result of ``plan_session``: the ``answers`` in the order of their questions, and the guarantee of all.

    It is a sequence of answers. ``epsilon`` and ``delta`` are the target, ``composed`` the guarantee of all answers
    together.
    """

    epsilon: float
    delta: float
    answers: tuple[PlannedAnswer, ...]
    composed: Guarantee

    def __repr__(self) -> str:
        chosen = ", ".join(f"{answer.label} by {answer.protocol.name}" for answer in self.answers)
        return (
            f"SessionPlan({self.users:,} users; {chosen}; epsilon = {self.composed.epsilon:.4g} of {self.epsilon:g}, "
            f"delta = {self.delta:g})"
        )

    def _repr_html_(self) -> str:
        """The plan as notebooks show it."""
        rows = [
            [
                cell(answer.label),
                answer.protocol.name,
                trust_of(answer.protocol),
                f"{error_of(answer.expected.rmse)} {answer.question.unit}",
                f"{error_of(answer.expected.max_error)} {answer.question.unit}",
                f"{answer.protocol.cost.messages_per_user:,.4g}",
                f"{answer.protocol.cost.bytes_per_user:,.4g}",
                f"{answer.guarantee.epsilon:.4g}",
            ]
            for answer in self.answers
        ]
        header = ["question", "protocol", "trust", "error", "maximum error", "messages", "bytes", "epsilon"]
        return card(
            f"Session of {len(self)} question{'s' * (len(self) != 1)} about {self.users:,} users at epsilon = "
            f"{self.epsilon:.4g}, delta = {self.delta:g} together",
            table(header, rows, words=range(3)),
            note("Messages and bytes are per user. The epsilon of a row is that of its answer alone."),
            note(self.composed.statement()),
            warnings=self.warnings,
        )

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[PlannedAnswer]:
        return iter(self.answers)

    def __getitem__(self, position: int) -> PlannedAnswer:
        """The answer at a position."""
        return self.answers[position]

    @property
    def users(self) -> int:
        """The number of users, which is public."""
        return self.composed.users

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about a weak target, such as a delta above 1/users."""
        return target_warnings(self.epsilon, self.delta, self.users)

    def columns(self) -> dict[str, list[Any]]:
        """The answers as named columns, one row per answer."""
        return {
            "label": [answer.label for answer in self.answers],
            "statistic": [answer.question.name for answer in self.answers],
            "protocol": [answer.protocol.name for answer in self.answers],
            "trust": [answer.protocol.trust for answer in self.answers],
            "share": [answer.share for answer in self.answers],
            "rmse": [answer.expected.rmse for answer in self.answers],
            "max_error": [answer.expected.max_error for answer in self.answers],
            "confidence": [answer.expected.confidence for answer in self.answers],
            "messages_per_user": [answer.protocol.cost.messages_per_user for answer in self.answers],
            "bytes_per_user": [answer.protocol.cost.bytes_per_user for answer in self.answers],
            "epsilon": [answer.guarantee.epsilon for answer in self.answers],
            "delta": [answer.guarantee.delta for answer in self.answers],
        }

    def to_frame(self) -> pd.DataFrame:
        """The answers as a pandas data frame, one row each; needs the extra ``pandas``."""
        return data_frame(self.columns())

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "target": {"epsilon": self.epsilon, "delta": self.delta},
            "users": self.users,
            "warnings": list(self.warnings),
            "answers": [answer.to_json() for answer in self.answers],
            "composed": self.composed.to_json(),
        }


def plan_session(
    questions: Sequence[Question],
    *,
    epsilon: float,
    delta: float,
    shares: Sequence[float] | None = None,
    trust: str = "shuffled",
    honest_fraction: float = 1.0,
    adaptive: bool = False,
    confidence: float = 0.95,
) -> SessionPlan:
    """Plan a session that asks these questions, in this order, about the same users; no data are needed.

    ``epsilon`` and ``delta`` are those of all answers together. Each question gets the protocol that a ``Session``
    chooses for it. ``shares`` are the shares of the budget, one per question; without them it is divided equally, as by
    ``Session(releases=len(questions))``. ``trust``, ``honest_fraction`` and ``adaptive`` are those of the session;
    ``confidence`` is that of the predicted maximum errors.

    >>> questions = [sdp.Count(users=10_000), sdp.Mean(users=10_000, lower=0, upper=120)]
    >>> planned = sdp.plan_session(questions, epsilon=1.0, delta=1e-6)
    >>> len(planned), 0.99 < planned.composed.epsilon <= 1.0
    (2, True)
    """
    check_confidence(confidence)
    questions, asked = _checked(questions), _checked_shares(shares, len(questions))
    budget = Budget(questions[0].users, epsilon, delta, honest_fraction, trust, adaptive, len(questions))
    for question, share in zip(questions, asked, strict=True):
        spending = {} if share is None else {"share": share}
        budget = with_chosen(budget, question, spending=spending, label=_label(question, budget), subject="")
    answers = tuple(
        PlannedAnswer(
            label=release.label,
            question=question,
            protocol=release.protocol,
            expected=release.protocol.expected_error(confidence=confidence),
            share=share,
        )
        for question, release, share in zip(questions, budget.releases, asked, strict=True)
    )
    return SessionPlan(float(epsilon), float(delta), answers, budget.spent)


def _checked(questions: Sequence[Question]) -> tuple[Question, ...]:
    """The questions, all about the same number of users."""
    if isinstance(questions, _KINDS) or not isinstance(questions, Sequence):
        raise ParameterError("Give the questions of a session as a list, for example [sdp.Count(users=10_000)].")
    for question in cast("Sequence[object]", questions):
        if not isinstance(question, _KINDS):
            raise ParameterError(f"A question is, for example, sdp.Count(users=10_000), not {question!r:.80}.")
    if not 1 <= len(questions) <= MAX_RELEASES:
        raise ParameterError(f"A session has 1 to {MAX_RELEASES:,} questions, not {len(questions):,}.")
    users = sorted({question.users for question in questions})
    if len(users) > 1:
        raise ParameterError(
            f"All questions of a session are about the same users; these are about {users[0]:,} and {users[-1]:,} "
            "users. Give all of them the same number."
        )
    return tuple(questions)


def _checked_shares(shares: Sequence[float] | None, questions: int) -> tuple[float | None, ...]:
    if shares is None:
        return (None,) * questions
    if len(shares) != questions:
        raise ParameterError(f"Give one share per question: there are {questions:,}, and {len(shares):,} shares.")
    return tuple(shares)


def _label(question: Question, budget: Budget) -> str:
    """The name of the question, numbered from the second one of its kind on."""
    earlier = sum(release.statistic == question.name for release in budget.releases)
    return f"{question.name} ({earlier + 1})" if earlier else question.name
