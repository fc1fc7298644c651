"""Privacy accounting of ``split-and-mix``: noisy values split into shares that are shuffled.

Balle, Bell, Gascon and Nissim (2020), after Ishai, Kushilevitz, Ostrovsky and Sahai (2006). Values are integers 0 .. k.
Each user adds a share of discrete Laplace noise and sends m shares modulo g, all but one of them uniform. The shuffled
shares reveal hardly more than the noisy sum: for any two inputs with the same sum their distributions differ by at most
tau = sqrt(g (e/n)^(m - 2)) in total variation, for n >= 19 users and m >= 4 shares. (This is the worst case over
inputs, which needs one share more than the average case.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from shuffledp.checks import check_open_unit, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic

FEWEST_USERS = 19
FEWEST_MESSAGES = 4
MAX_MESSAGES = 1000
WRAP_RISK = 1e-12
_UP = 1 + 1e-12
_TINIEST = 1e-300  # a distance that underflows is not 0


@dataclass(frozen=True)
class SplitAndMixCurve:
    """The privacy curve of the shuffled shares: that of the noisy sum, plus the distance between shares of equal sums.

    Let P and Q be the distributions of the noisy sum before and after replacing a user. Given the sum s, the shares
    have distributions A_s and B_s at most tau apart, as mixtures over inputs with that sum. For any event E and epsilon
    >= 0, summed over s, P(s) A_s(E) - e^epsilon Q(s) B_s(E) <= P(s) (A_s(E) - B_s(E)) + (P(s) - e^epsilon Q(s)) B_s(E)
    <= tau + delta of the sum. So tau is added once, not 1 + e^epsilon times.
    """

    ideal: DiscreteLaplaceCurve
    messages: int
    modulus: int
    honest_users: int

    def __post_init__(self) -> None:
        mixing_distance(self.honest_users, self.modulus, self.messages)

    @cached_property
    def distance(self) -> float:
        """Bound on the total variation between the shares of two inputs with the same sum."""
        return mixing_distance(self.honest_users, self.modulus, self.messages)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the shares are (epsilon, delta)-private."""
        return as_delta((self.ideal.delta_at(epsilon) + self.distance) * _UP)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """The pair of the noisy sum; the distance between shares is added to its cut."""
        ((pair, *others),) = self.ideal.directions(cut)
        return ((replace(pair, cut=pair.cut + self.distance), *others),)


def mixing_distance(honest_users: int, modulus: int, messages: int) -> float:
    """sqrt(g (e/n)^(m - 2)), at most 1, rounded up: the distance between the shares of two inputs with equal sums."""
    _check_mixing_users(honest_users)
    _check_modulus(modulus)
    if messages < FEWEST_MESSAGES:
        raise ConditionError(
            f"The bound is proven for at least {FEWEST_MESSAGES} messages per user, not {messages}.", messages=messages
        )
    logarithm = (math.log(modulus) + (messages - 2) * (1 - math.log(honest_users))) / 2
    return as_delta(max(math.exp(min(logarithm, 0.0)), _TINIEST) * _UP)


def least_messages(honest_users: int, modulus: int, sigma: float) -> int:
    """The fewest shares per user with a distance of at most 2^-sigma."""
    if not 0 < sigma <= 1000:
        raise ParameterError(f"sigma must be above 0 and at most 1000, not {sigma}.", sigma=sigma)
    return _fewest_messages(honest_users, modulus, 2.0**-sigma)


def noise_margin(ratio: Dyadic, share: Fraction, risk: float) -> int:
    """A bound on |NB(share, ratio) - NB(share, ratio)| that is exceeded with a probability of at most ``risk``.

    The best of Chernoff's bounds at several exponents below -ln(ratio).
    """
    check_open_unit("risk", risk)
    decay, rest, a = decay_of(ratio), float(ratio.complement), float(ratio)
    margins = []
    for part in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99):
        slope = part * decay
        moments = 2 * math.log(rest) - math.log(-math.expm1(slope - decay)) - math.log1p(-a * math.exp(-slope))
        margins.append((float(share) * moments + math.log(2 / risk)) / slope)
    return math.ceil(min(margins))


def least_modulus(users: int, levels: int, margin: int) -> int:
    """The least power of two modulo which the sums from -margin to users * levels + margin are distinct."""
    return 1 << (users * levels + 2 * margin).bit_length()


def split_and_mix_noise(
    *,
    epsilon: float,
    delta: float,
    users: int,
    levels: int,
    honest_users: int | None = None,
    modulus: int | None = None,
) -> SplitAndMixCurve:
    """The least noise and the fewest shares for values 0 .. levels at (epsilon, delta).

    The noise alone is epsilon-private with delta = 0, so all of delta is available for the distance between shares.
    Each user adds the difference of two draws of NB(1/honest_users, ratio). The default modulus is the least power of
    two for which a sum wraps around with a probability of at most ``WRAP_RISK``.
    """
    check_target(epsilon, delta)
    honest = users if honest_users is None else honest_users
    _check_mixing_users(honest)
    if honest > users:
        raise ParameterError(f"There cannot be more honest users ({honest:,}) than users ({users:,}).", users=users)
    ratio = least_ratio(epsilon, sensitivity=levels)
    if modulus is None:
        modulus = least_modulus(users, levels, noise_margin(ratio, Fraction(users, honest), WRAP_RISK))
    elif modulus <= users * levels:
        raise ParameterError(
            f"The modulus {modulus:,} must exceed the largest sum, {users * levels:,}.", modulus=modulus
        )
    messages = _fewest_messages(honest, modulus, delta / _UP**2)
    curve = SplitAndMixCurve(DiscreteLaplaceCurve(ratio, levels), messages, modulus, honest)
    if curve.delta_at(epsilon) > delta:
        raise InfeasibleError(f"No number of shares meets delta = {delta:g}.", delta=delta, messages=messages)
    return curve


def _fewest_messages(honest_users: int, modulus: int, distance: float) -> int:
    _check_mixing_users(honest_users)
    _check_modulus(modulus)
    needed = (math.log(modulus) - 2 * math.log(distance)) / (math.log(honest_users) - 1)
    messages = max(FEWEST_MESSAGES, math.ceil(needed) + 1)
    while messages <= MAX_MESSAGES:
        if mixing_distance(honest_users, modulus, messages) <= distance:
            return messages
        messages += 1
    raise InfeasibleError(
        f"A distance of {distance:g} needs more than {MAX_MESSAGES:,} messages per user; more users would help.",
        honest_users=honest_users,
        distance=distance,
    )


def _check_mixing_users(honest_users: int) -> None:
    if honest_users < FEWEST_USERS:
        raise ConditionError(
            f"The bound is proven for at least {FEWEST_USERS} honest users, not {honest_users}.",
            honest_users=honest_users,
        )


def _check_modulus(modulus: int) -> None:
    if modulus < 2:
        raise ParameterError(f"The modulus must be at least 2, not {modulus}.", modulus=modulus)
