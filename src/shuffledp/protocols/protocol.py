"""The interface of a protocol: one typed abstract class for all protocols."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Domain
from shuffledp.errors import BelowMinimumError, ParameterError, UnknownNameError
from shuffledp.messages import MessageFormat, Messages, Tally, count_values
from shuffledp.privacy.calibration import CALIBRATIONS
from shuffledp.protocols.documents import public_parameters
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

if TYPE_CHECKING:
    from shuffledp.estimate import Estimate
    from shuffledp.privacy.carriers import CarrierRoles
    from shuffledp.privacy.guarantee import Guarantee

Value: TypeAlias = Any
"""Input of a randomizer: an index of the domain, or for a sum a position in the interval, from 0.0 to 1.0."""
Pmf = Mapping[tuple[int, ...], "Fraction | float"]
"""From an outcome to its probability. A tail of at most 1e-4 may be left out."""

_CHUNK_MESSAGES = 1 << 20


@dataclass(frozen=True)
class Cost:
    """The communication of one user: ``messages_per_user``, ``max_messages_per_user`` and ``bits_per_message``.

    ``messages_per_user`` is an expected number, and ``max_messages_per_user`` is None if the noise is unbounded.
    ``dummies_per_user`` is what an augmented shuffler adds. Sealing is not included.
    """

    messages_per_user: float
    """Expected number of messages; if possible, independent of the value."""
    max_messages_per_user: int | None
    """None if the noise is unbounded."""
    bits_per_message: int
    dummies_per_user: float = 0.0
    """Expected number of messages that an augmented shuffler adds, divided by the number of users of the target."""

    @property
    def bytes_per_user(self) -> float:
        """Expected number of bytes, with the bits of all messages packed."""
        return self.messages_per_user * self.bits_per_message / 8

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "messages_per_user": self.messages_per_user,
            "max_messages_per_user": self.max_messages_per_user,
            "bits_per_message": self.bits_per_message,
            "bytes_per_user": self.bytes_per_user,
            "dummies_per_user": self.dummies_per_user,
        }


@dataclass(frozen=True)
class ExpectedError:
    """The predicted error of the released numbers: ``rmse`` of a typical one, and ``max_error`` of all together.

    With probability ``confidence`` every released number is off by at most ``max_error``.
    """

    rmse: float
    """Root mean squared error of one number well above the noise."""
    max_error: float
    """Bound on the errors of all released numbers together, which holds with the given confidence."""
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"rmse": self.rmse, "max_error": self.max_error, "confidence": self.confidence}


@dataclass(frozen=True)
class Protocol(ABC):
    """A protocol with its public parameters, from which everything else is derived.

    Subclass the base class of a question, such as ``CountProtocol`` of ``protocols.count.protocol``: it implements the
    members that depend on the question only.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    """``count``, ``histogram``, ``sum``, ``quantiles`` or ``strings``; with the name it identifies the protocol."""
    trust: ClassVar[str] = "shuffled"
    """Who must be trusted: ``shuffled``, ``augmented``, ``local`` or ``central``."""
    estimators: ClassVar[tuple[str, ...]]
    """Names of the estimators, the default first."""
    calibrations: ClassVar[tuple[str, ...]] = CALIBRATIONS
    """Supported calibrations; only ``tight`` if the paper's constants are optimal."""
    fragile: ClassVar[bool] = False
    """Whether one missing or wrong message can change the estimate arbitrarily."""
    trusts_shuffler: ClassVar[bool] = False
    """Whether the shuffler must do more than shuffle, and is trusted with the messages."""
    modular_tally: ClassVar[bool] = False
    """Whether a tally is a sum modulo a number: sums of tallies may then differ by multiples of it."""
    exact_error: ClassVar[bool] = True
    """Whether ``expected_error_of`` is the exact error for every data set."""
    domain_options: ClassVar[tuple[str, ...]]
    """The keywords of ``calibrate`` that describe the domain."""

    target: Target = field(metadata={"document": "terms"})
    """The target of the calibration; signed documents call it ``terms``."""

    if TYPE_CHECKING:  # a field of the protocol, or derived from its fields

        @property
        def domain(self) -> Domain:
            """The possible values."""

    @classmethod
    def calibrate(
        cls,
        *,
        target: Target | None = None,
        users: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        honest_fraction: float | None = None,
        calibration: str | None = None,
        **options: Any,
    ) -> Self:
        """Make the protocol with the least noise that meets a target: a ``Target``, or its users, epsilon and delta.

        ``calibration`` is ``tight`` (by exact numerics, the default) or ``paper`` (by the theorem's constants);
        ``honest_fraction`` is the fraction of users who follow the protocol. The domain of a histogram is given as
        ``domain_size``, ``categories`` or ``domain``, that of a sum as ``lower`` and ``upper`` or ``domain``. The
        docstring of each protocol lists its further options.

        >>> sdp.BalcerCheuCount.calibrate(users=10_000, epsilon=1.0, delta=1e-6, padded=False).guarantee.epsilon
        1.0
        >>> protocol = sdp.protocols.CheuSum.calibrate(users=10_000, epsilon=1.0, delta=1e-6, lower=0, upper=120)
        >>> protocol.domain.width
        120.0
        """
        calibration_target = _checked_target(target, users, epsilon, delta, honest_fraction, calibration)
        domain = cls.domain_arguments(**{name: options.pop(name) for name in cls.domain_options if name in options})
        own_options = _options_of(cls)
        if unknown := sorted(set(options) - set(own_options)):
            offered = f"its options are {', '.join(own_options)}" if own_options else "it has no options"
            raise ParameterError(
                f"{cls.question}/{cls.name} has no option {', '.join(unknown)}; beside the target and the domain "
                f"({', '.join(cls.domain_options) or 'always a bit'}), {offered}.",
                unknown=unknown,
            )
        return cls.for_target(calibration_target, *domain, **options)

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target, *domain: Any, **options: Any) -> Self:
        """The protocol's own calibration, for a checked target and the domain (none for a count).

        Options are keyword-only and typed; ``calibrate`` passes them on.
        """

    @classmethod
    @abstractmethod
    def domain_arguments(cls, *domain: Any, **options: Any) -> tuple[Domain, ...]:
        """The domain that ``for_target`` takes, made from the keywords of ``domain_options`` that were given."""

    @classmethod
    def domain_settings(cls, **given: Any) -> dict[str, Any]:
        """Those of the given keywords that ``calibrate`` takes for the domain."""
        return {name: value for name, value in given.items() if name in cls.domain_options}

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Further options of ``calibrate`` that trade error for communication; the planner tries each.

        ``settings`` are the parameters of the question, epsilon and delta.
        """
        return ()

    @classmethod
    def options_of_a_round(cls) -> dict[str, Any]:
        """Options of ``calibrate`` that every round draws anew, such as the seed of public hash functions."""
        return {}

    @property
    def users(self) -> int:
        """Minimum number of reports of a round."""
        return self.target.users

    def answering(self, question: str) -> Self:
        """The protocol, with estimates and errors of this question: its own, or of a sum also the ``mean``."""
        if question != self.question:
            raise ParameterError(
                f"{self.question}/{self.name} cannot answer the question {question!r}.", question=question
            )
        return self

    def without_names(self) -> Self:
        """The protocol without the names of its categories, if it has any."""
        return self

    @property
    def released_only(self) -> bool:
        """Whether users send their values without noise, and only what a trusted party makes of them is private.

        An augmented shuffler makes it without reading the messages, if they are sealed.
        """
        return self.trust in ("central", "augmented") or self.trusts_shuffler

    @property
    def needs_trusted_party(self) -> bool:
        """Whether a party must read values of users, so that the protocol cannot be collected."""
        return self.released_only and self.trust != "augmented"

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The privacy of one release."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """The communication per user."""

    @property
    def draws_per_report(self) -> float:
        """The work of a device: the expected number of random draws per report, plus the entries of sampling tables."""
        cost = self.cost
        return max(cost.messages_per_user, cost.max_messages_per_user or 0) * self.message_format.columns

    @property
    def constant_messages(self) -> int | None:
        """The number of messages of every report; None if it varies."""
        cost = self.cost
        return cost.max_messages_per_user if cost.messages_per_user == cost.max_messages_per_user else None

    @property
    def min_messages_per_user(self) -> int:
        """Minimum number of messages of a user who follows the protocol.

        Override it if the number varies: a collection computes from it how many users may have taken part.
        """
        constant = self.constant_messages
        if constant is None:
            raise ParameterError(f"{self.question}/{self.name} does not define min_messages_per_user.")
        return constant

    def most_users(self, tally: Tally, messages: int) -> int | None:  # noqa: ARG002
        """Maximum number of users from whom these messages can come; None if it cannot be determined."""
        constant = self.constant_messages
        if constant is not None:
            return -(-messages // constant)
        least = self.min_messages_per_user
        return messages // least if least else None

    def without_excess(self, tally: Tally) -> Tally:
        """The tally without messages that honest users cannot have sent, as far as they can be recognized."""
        return tally

    @property
    def share_ratios(self) -> tuple[Dyadic, ...]:
        """The ratios of geometric noise of which every device draws a share; empty if there is no such noise."""
        return ()

    def chance_of_more_messages(self, messages: int) -> float:
        """Upper bound on the probability that a report has more than ``messages`` messages."""
        bound = self.cost.max_messages_per_user
        if bound is None:
            raise ParameterError(f"{self.name} does not define chance_of_more_messages.")
        return float(messages < bound)

    @property
    @abstractmethod
    def message_format(self) -> MessageFormat:
        """The format of a message."""

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""
        return public_parameters(self)

    @property
    def document_version(self) -> int:
        """The version of the parameters in signed documents."""
        return 1

    @classmethod
    def document_of(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The parameters as signed documents contain them, from the encoded fields under their names in documents."""
        return fields

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inverse of ``document_of``."""
        return document

    @abstractmethod
    def report_pmf(self, value: Value) -> Pmf:
        """The distribution of one report, for small formats; an outcome lists the copies of each message, by code."""

    @abstractmethod
    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""

    def randomize(self, value: Value, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The randomizer on one user's value."""
        return self.randomize_all(np.array([value]), source=source).values

    def best_carriers(self, *, users: int, delta: float, delta_of_cap: float) -> float | None:  # noqa: ARG002
        """The option ``carriers`` of ``calibrate`` with the fewest messages in a collection of at most ``users`` users.

        ``delta`` is that of the protocol with carriers, ``delta_of_cap`` what the cap of their reports may add. None if
        the protocol cannot have carriers, or they save nothing.
        """
        return None

    @property
    def carrier_roles(self) -> CarrierRoles | None:
        """Which users add the noise of all, if only some do; in a collection their reports are longer."""
        return None

    def randomize_in_role(self, value: Value, *, carrier: bool, source: RandomSource = SYSTEM) -> NDArray[Any]:  # noqa: ARG002
        """The messages of one user who is a carrier or not, by a coin that does not depend on the value."""
        raise ParameterError(f"{self.question}/{self.name} with these parameters has no carriers.")

    def given_carriers(self, number: int) -> Self:  # noqa: ARG002
        """The protocol in a round with this many carriers, whose noise is therefore known better."""
        raise ParameterError(f"{self.question}/{self.name} with these parameters has no carriers.")

    def tally(self, messages: Messages) -> Tally:
        """The number of occurrences of each message, by its code."""
        form = self.message_format
        if form.columns == 1 and messages.values.ndim == 1:
            return Tally(count_values(messages.values, form.codes), messages.users, messages.secure)
        counts = np.zeros(form.codes, dtype=np.int64)
        for start in range(0, len(messages), _CHUNK_MESSAGES):
            chunk = form.check(messages.values[start : start + _CHUNK_MESSAGES])
            counts += count_values(form.code(chunk), len(counts))
        return Tally(counts, messages.users, messages.secure)

    @property
    def shuffler_keeps(self) -> Dyadic:
        """The probability with which an augmented shuffler keeps a report; it drops the others without reading them."""
        return Dyadic(1, 0)

    @property
    def mean_dummies(self) -> float:
        """Expected number of messages that an augmented shuffler adds to one round; 0 for others."""
        return 0.0

    @property
    def most_dummies(self) -> int:
        """A number of messages that an honest augmented shuffler exceeds in a round with probability at most 2^-80."""
        return 0

    def with_shufflers(self, shufflers: int) -> Self:  # noqa: ARG002
        """The protocol as a chain of so many shufflers carries it out; augmented ones each add a draw of dummies."""
        return self

    def draw_dummies(self, *, source: RandomSource = SYSTEM) -> NDArray[Any]:  # noqa: ARG002
        """The messages that an augmented shuffler adds to one round, which it seals and mixes with those of users.

        They are drawn once per round: a second draw for the same reports is a second release. Other shufflers add none.
        """
        return self.message_format.message(np.zeros(0, dtype=np.int64))

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:  # noqa: ARG002
        """The release of the party that is trusted to add noise: a curator or an augmented shuffler; else the tally."""
        return tally

    def release_pmf(self, tally: Tally) -> Pmf:
        """The distribution of the release of this tally."""
        return {tuple(tally.counts.tolist()): Fraction(1)}

    @abstractmethod
    def inputs(self, *, between: bool = False) -> tuple[Value, ...]:
        """Values for tests and audits: every index; of an interval its ends and, if ``between``, a point inside."""

    @abstractmethod
    def other_inputs(self, values: NDArray[Any]) -> NDArray[Any]:
        """For each value, a different value of the domain."""

    @abstractmethod
    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The exact answer for these values, without noise."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The sensitivity: by how much one user can change the answer."""

    def moved_by_report(self, messages: int) -> float:  # noqa: ARG002
        """The largest difference between two values of one estimate that a report of arbitrary messages can cause.

        ``messages`` is the number of messages of a report, dummies included. Infinite if the protocol is ``fragile``.
        """
        raise ParameterError(f"{self.question}/{self.name} does not define moved_by_report.")

    @abstractmethod
    def summary(self, values: NDArray[Any]) -> NDArray[Any]:
        """The input of ``sample_tally``: the count of each index, or the values themselves."""

    @abstractmethod
    def sample_tally(self, data: NDArray[Any], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from the summary of all values."""

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The numbers from which the estimates are computed."""
        return tally.counts

    def entries_of(self, values: Sequence[Value], length: int) -> NDArray[np.int64] | None:  # noqa: ARG002
        """The index of each value among ``length`` observed numbers; None if they are not one number per value."""
        return None

    def check_tally(self, tally: Tally) -> None:  # noqa: B027 - some protocols can produce every tally
        """Reject a tally that this many users who follow the protocol cannot produce."""

    def check_round(self, tally: Tally, estimator: str) -> None:
        """Refuse an unknown estimator, too few users, data without noise, and an impossible tally."""
        check_estimator(estimator, self.estimators)
        check_enough_users(tally.users, self.users)
        if self.trust in ("central", "augmented") and not tally.released:
            raise ParameterError("This tally contains the data without noise; release it first.")
        self.check_tally(tally)

    @abstractmethod
    def estimate(self, tally: Tally, *, estimator: str = "") -> Estimate:
        """The estimate with its uncertainty."""

    @abstractmethod
    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, users: int | None = None
    ) -> ExpectedError:
        """The predicted error, typical or in the worst case over all data sets.

        It is that of a round of ``users`` users, or of as many as the target has.
        """

    @abstractmethod
    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error of a round over these values."""

    @abstractmethod
    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> Estimate:
        """A full round in this process, from values of the domain to the estimate."""


def check_enough_users(users: int, needed: int) -> None:
    """Reject a round with fewer users than its guarantee requires."""
    if users < needed:
        raise BelowMinimumError(
            f"The round has {users:,} reports; the guarantee requires {needed:,}. "
            f"Wait for {needed - users:,} more or plan for fewer users.",
            users=users,
            needed=needed,
        )


def check_estimator(estimator: str, offered: tuple[str, ...]) -> None:
    """Reject an estimator that the protocol does not have."""
    if estimator not in offered:
        raise UnknownNameError(
            f"There is no estimator {estimator!r} here; choose one of {', '.join(offered)}.", estimator=estimator
        )


def _checked_target(
    target: Target | None,
    users: int | None,
    epsilon: float | None,
    delta: float | None,
    honest_fraction: float | None,
    calibration: str | None,
) -> Target:
    """The target to calibrate for, from either form."""
    if target is None:
        if users is None or epsilon is None or delta is None:
            raise ParameterError("A calibration needs its target: give users, epsilon and delta, or target.")
        return Target.of(
            users=users,
            epsilon=epsilon,
            delta=delta,
            honest_fraction=1.0 if honest_fraction is None else honest_fraction,
            calibration="tight" if calibration is None else calibration,
        )
    if any(part is not None for part in (users, epsilon, delta, honest_fraction)):
        raise ParameterError("Give the target as a Target or as users, epsilon and delta, not both.")
    if calibration is None:
        calibration = "tight" if target.calibration == "given" else target.calibration
    return Target.of(
        users=target.users,
        epsilon=target.epsilon,
        delta=target.delta,
        honest_fraction=target.honest_fraction,
        calibration=calibration,
    )


@lru_cache(maxsize=256)
def _options_of(kind: type[Protocol]) -> list[str]:
    parameters = inspect.signature(kind.for_target).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
