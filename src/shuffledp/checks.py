"""Checks of epsilon, delta, numbers of users, confidences and risks: the same rules for every caller."""

from __future__ import annotations

import math
from numbers import Number, Real

import numpy as np

from shuffledp.errors import ParameterError

LARGEST_EPSILON = 700.0  # e^epsilon stays a float
LEAST_EPSILON = 1e-12
LEAST_DELTA = 1e-300
MAX_USERS = 10**15


def check_real(name: str, value: object) -> None:
    """Reject what is not a real number: a string, None, a complex number, or an integer too large for a float."""
    if not isinstance(value, Real):
        raise ParameterError(f"{name} must be a number, not {_shown(value)}.")
    try:
        float(value)
    except OverflowError:
        raise ParameterError(f"{name} is too large to compute with.") from None


def check_epsilon(epsilon: float) -> None:
    """Reject an epsilon below 0, and NaN."""
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)


def check_positive_epsilon(epsilon: float) -> None:
    """Reject an epsilon that is not positive and finite."""
    check_real("epsilon", epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon must be a positive number, not {epsilon}.", epsilon=epsilon)


def check_delta(delta: float, *, allow_zero: bool = False) -> None:
    """Reject a delta outside (0, 1); with ``allow_zero``, outside [0, 1)."""
    check_real("delta", delta)
    if not (0 < delta < 1 or (allow_zero and delta == 0)):
        raise ParameterError(f"delta must lie strictly between 0 and 1, not {delta}.", delta=delta)


def check_target(epsilon: float, delta: float) -> None:
    """Reject a target unless epsilon is in [1e-12, 700] and delta in [1e-300, 1): no other can be calibrated for."""
    check_positive_epsilon(epsilon)
    check_delta(delta)
    if epsilon > LARGEST_EPSILON:
        raise ParameterError(
            f"epsilon = {epsilon:g} is too large to be meaningful: at most {LARGEST_EPSILON:g}.", epsilon=epsilon
        )
    if epsilon < LEAST_EPSILON or delta < LEAST_DELTA:
        raise ParameterError(
            f"epsilon = {epsilon:g} and delta = {delta:g} are too small to compute with: "
            f"at least {LEAST_EPSILON:g} and {LEAST_DELTA:g}.",
            epsilon=epsilon,
            delta=delta,
        )


def check_claim(epsilon: float, delta: float) -> None:
    """Reject a claim unless epsilon is in [0, 700] and delta 0 or in [1e-300, 1): no other can be proven."""
    if not 0 <= epsilon <= LARGEST_EPSILON:
        raise ParameterError(
            f"The epsilon of a guarantee must lie between 0 and {LARGEST_EPSILON:g}, not {epsilon}.", epsilon=epsilon
        )
    if not (delta == 0 or LEAST_DELTA <= delta < 1):
        raise ParameterError(
            f"The delta of a guarantee must be 0, or at least {LEAST_DELTA:g} and below 1, not {delta}.", delta=delta
        )


def check_local_epsilon(local_epsilon: float) -> None:
    """Reject a local epsilon outside (0, 700]."""
    if not 0 < local_epsilon <= LARGEST_EPSILON:
        raise ParameterError(
            f"The local epsilon must be above 0 and at most {LARGEST_EPSILON:g}, not {local_epsilon}.",
            local_epsilon=local_epsilon,
        )


def check_number_of_users(users: int, *, min_users: int = 1, max_users: int = MAX_USERS) -> None:
    """Reject what is not an integer from ``min_users`` to ``max_users``."""
    if not isinstance(users, (int, np.integer)) or isinstance(users, bool):
        raise ParameterError(f"The number of users must be an integer, not {_shown(users)}.")
    if users < min_users:
        needed = "At least one user is" if min_users == 1 else f"At least {min_users:,} users are"
        raise ParameterError(f"{needed} needed, not {users}.", users=users)
    if users > max_users:
        written = f"{users:,}" if users < 1 << 63 else f"a number of {int(users).bit_length():,} bits"
        raise ParameterError(f"At most {max_users:,} users are possible here, not {written}.", users=users)


def check_users(users: int, honest_fraction: float) -> None:
    """Reject a number of users outside 2 to 10^15, or an honest fraction outside (0, 1]."""
    check_number_of_users(users, min_users=2)
    check_real("honest_fraction", honest_fraction)
    if not 0 < honest_fraction <= 1:
        raise ParameterError(
            f"The honest fraction must be above 0 and at most 1, not {honest_fraction}.",
            honest_fraction=honest_fraction,
        )


def check_confidence(confidence: float) -> None:
    """Reject a confidence outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ParameterError(f"The confidence must lie between 0 and 1, not {confidence:g}.", confidence=confidence)


def check_open_unit(name: str, value: float) -> None:
    """Reject a parameter outside (0, 1), such as a risk or a share, and NaN."""
    if not 0 < value < 1:
        raise ParameterError(f"The {name} must lie strictly between 0 and 1, not {value}.", **{name: value})


def _shown(value: object) -> str:
    """A wrong value in an error: of a table or a column only its type, since its rows are private."""
    if value is None or isinstance(value, (str, bytes, Number, np.generic)):
        return repr(value)
    return f"an object of type {type(value).__name__}"
