"""Privacy accounting of carriers: a few users, chosen by private coins, add the noise of all.

Padding every report to the length that noise may need makes the most accurate protocol the most expensive one. Instead
each device becomes a carrier with probability p, by a coin that is independent of its value. A carrier adds a share of
the noise and pads its report to a cap; everybody else sends exactly one message.

Let H be the number of honest carriers, Bin(honest users, p). Shares are sized for m honest carriers. If H >= m, the
messages contain at least the planned noise, which makes them (epsilon, delta)-private; further carriers only add
independent noise. Roles are independent of all values, so the mixture over roles is private with epsilon and delta +
Pr[H < m], even against someone who sees the roles. A carrier whose report is too long draws it again. Each user does so
with a probability of at most p c, where c bounds the probability that a carrier's report is too long; by the argument
in ``shuffledp.privacy.capping`` this adds (1 + e^epsilon) n p c for n users.

How a collection uses it: ``plan_carriers`` chooses p, with the length of a carrier's report as a function of m. The
parameters of the protocol contain p and m (``CarrierRoles``), and its guarantee the shortage (``CarrierCurve``). The
task states the cap, and a minimum number of carriers, honest or not; shuffler and analyzer do not release a round with
fewer. Each device recomputes what shortage and cap add to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from shuffledp.checks import check_epsilon
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain
from shuffledp.search import bisect_integers, least_integer

ChanceOfMore = Callable[[int, int], float]
"""From a number of honest carriers who divide the noise, and a number of messages, to an upper bound on the probability
that the share of one carrier has more messages.
"""

DELTA_FOR_SHORTAGE = 0.001
"""The part of delta that is reserved for rounds with fewer honest carriers than planned."""
_MAX_CAP = 1 << 16
_DECADES, _PER_DECADE = 6, 16
"""Probabilities that are tried: from 1 down to 10^-6, of two digits."""
_UP = 1 + 1e-9
_TINIEST = 5e-324


@dataclass(frozen=True)
class CarrierRoles:
    """Who adds noise: each user is a carrier with a probability, and the noise is divided among honest carriers."""

    carrier_probability: Dyadic
    """The probability of being a carrier, the same for every value."""
    honest_carriers: int
    """Honest carriers among whom the noise is divided; further ones add more."""

    def __post_init__(self) -> None:
        check_uncertain("carrier_probability", self.carrier_probability)
        if self.honest_carriers < 1:
            raise ParameterError(f"honest_carriers must be at least 1, not {self.honest_carriers:,}.")

    @classmethod
    def planned(cls, probability: Dyadic, honest_users: int, delta: float) -> CarrierRoles:
        """As many honest carriers as there are, except with a probability of at most ``delta``."""
        carriers = most_honest_carriers(honest_users, probability, delta)
        if carriers < 1:
            raise InfeasibleError(
                f"With {honest_users:,} honest users and a probability of {float(probability):.3g} there may be no "
                "carrier at all; use a larger probability or more users.",
                probability=probability,
            )
        return cls(probability, carriers)

    def minimum(self, users: int, honest_users: int) -> int:
        """Minimum number of carriers, honest or not, in a released round: the honest ones, scaled up to all users."""
        return -(-self.honest_carriers * users // honest_users)


@dataclass(frozen=True)
class KnownCarriers(CarrierRoles):
    """The roles in a round whose number of carriers is known, as the analyzer knows it from the lengths of reports."""

    number: int
    """Carriers of the round, honest or not."""


@dataclass(frozen=True)
class CarrierCurve:
    """The privacy curve of noise that carriers add."""

    curve: PrivacyCurve
    """The curve if there are as many honest carriers as planned."""
    shortage: float
    """Upper bound on the probability that there are fewer."""

    def __post_init__(self) -> None:
        if not 0 <= self.shortage <= 1:
            raise ParameterError(f"{self.shortage} is not a probability.", shortage=self.shortage)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the messages, together with the roles, are private."""
        return as_delta((as_delta(self.curve.delta_at(epsilon)) + self.shortage) * (1 + 1e-14))


@dataclass(frozen=True)
class CarrierTerms:
    """Carriers of a round, and what they cost in delta."""

    users: int
    """Maximum number of users."""
    honest_users: int
    """Users who are assumed to follow the protocol."""
    probability: Dyadic
    """The probability of being a carrier."""
    honest_carriers: int
    """Honest carriers among whom the noise is divided."""
    cap: int
    """Maximum number of noise messages of a carrier."""
    chance_of_more: float
    """Upper bound on the probability that the noise of a carrier exceeds the cap."""

    def __post_init__(self) -> None:
        if not 1 <= self.honest_users <= self.users:
            raise ParameterError(f"honest_users must be from 1 to the {self.users:,} users, not {self.honest_users:,}.")
        if not 1 <= self.honest_carriers <= self.honest_users or self.cap < 0:
            raise ParameterError(
                f"honest_carriers must be from 1 to the {self.honest_users:,} honest users and cap at least 0, not "
                f"{self.honest_carriers:,} and {self.cap:,}."
            )
        if not 0 <= self.chance_of_more <= 1:
            raise ParameterError(f"{self.chance_of_more} is not a probability.", chance=self.chance_of_more)

    @cached_property
    def shortage(self) -> float:
        """Upper bound on Pr[H < m], the probability of fewer honest carriers than the noise is divided among."""
        return shortage(self.honest_users, self.probability, self.honest_carriers)

    def added_delta(self, epsilon: float) -> float:
        """What shortage and cap add to the delta of the noise at this epsilon, rounded up."""
        check_epsilon(epsilon)
        exceeded = (1 + math.exp(epsilon)) * self.users * float(self.probability) * self.chance_of_more
        return as_delta((self.shortage + exceeded) * _UP)

    @property
    def messages_per_user(self) -> float:
        """Average number of messages with dummies. Every user sends one, and each carrier as many more as the cap."""
        return 1 + float(self.probability) * self.cap

    @property
    def excess_noise(self) -> float:
        """Share by which the honest users' expected noise, and so its variance, exceeds the planned one."""
        return self.honest_users * float(self.probability) / self.honest_carriers - 1


def shortage(honest_users: int, probability: Dyadic, honest_carriers: int) -> float:
    """Upper bound on the probability that fewer than ``honest_carriers`` of the honest users are carriers."""
    if honest_carriers > honest_users:
        return 1.0
    if honest_carriers < 1 or probability.numerator == 1 << probability.bits:
        return 0.0
    distribution = Binomial(honest_users, probability)
    tail = float(distribution.lower_tail(honest_carriers - 1))
    error = float(distribution.tail_error(honest_carriers - 1))
    return max(as_delta(tail * (1 + error) * _UP), _TINIEST)  # it is not 0, though it may be too small for a float


def most_honest_carriers(honest_users: int, probability: Dyadic, risk: float) -> int:
    """The largest m with Pr[Bin(honest users, probability) < m] at most ``risk``; 0 if there is none."""
    if shortage(honest_users, probability, honest_users) <= risk:
        return honest_users
    return bisect_integers(lambda m: shortage(honest_users, probability, m) > risk, 0, honest_users) - 1


def plan_carriers(
    *,
    users: int,
    honest_users: int,
    epsilon: float,
    delta_of_shortage: float,
    delta_of_cap: float,
    chance_of_more: ChanceOfMore,
    largest_excess: float = 0.1,
) -> CarrierTerms:
    """The terms with the fewest messages on average, over all probabilities of being a carrier that are tried.

    ``largest_excess`` bounds ``excess_noise``, which is the price of few carriers.
    """
    found = None
    for step in range(_DECADES * _PER_DECADE + 1):
        probability = Dyadic.at_least(float(f"{10 ** (-step / _PER_DECADE):.2g}"))
        terms = _terms(users, honest_users, epsilon, probability, delta_of_shortage, delta_of_cap, chance_of_more)
        if terms is not None and terms.excess_noise > largest_excess:
            break  # fewer carriers mean more excess
        if terms is not None and (found is None or terms.messages_per_user < found.messages_per_user):
            found = terms
    if found is None:
        raise InfeasibleError(
            f"No probability of being a carrier keeps to {_MAX_CAP:,} messages and {largest_excess:.0%} more noise "
            f"for {honest_users:,} honest users; use more users or a larger delta.",
            users=users,
        )
    return found


def _terms(
    users: int,
    honest_users: int,
    epsilon: float,
    probability: Dyadic,
    delta_of_shortage: float,
    delta_of_cap: float,
    chance_of_more: ChanceOfMore,
) -> CarrierTerms | None:
    """The terms for this probability; None if there are too few carriers or too many messages."""
    carriers = most_honest_carriers(honest_users, probability, delta_of_shortage)
    if carriers < 1:
        return None
    allowed = delta_of_cap / ((1 + math.exp(epsilon)) * users * float(probability)) / _UP
    cap = least_integer(lambda cap: chance_of_more(carriers, cap) <= allowed, low=-1, high=16, limit=_MAX_CAP)
    if cap is None:
        return None
    return CarrierTerms(users, honest_users, probability, carriers, cap, chance_of_more(carriers, cap))
