"""The noise of Balcer and Cheu's protocols: every user leaves a token out with a small probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shuffledp.errors import InfeasibleError, ParameterError, UnknownNameError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.calibration import CALIBRATIONS, check_users, honest_count, paper_noise, tight_noise
from shuffledp.privacy.guarantee import ComposableCurve, Guarantee, check_claim, check_target, least_epsilon
from shuffledp.randomness import Dyadic

__all__ = ["TokenNoise"]

CurveOf = Callable[[Binomial], ComposableCurve]


@dataclass(frozen=True)
class TokenNoise:
    """The public parameters of the noise, and the target that they were chosen for."""

    users: int
    absence: Dyadic
    """The probability, 1 - p in the paper, of leaving a noise token out; exactly what is sampled."""
    epsilon: float
    delta: float
    honest_fraction: float = 1.0
    calibration: str = "given"

    def __post_init__(self) -> None:
        check_users(self.users, self.honest_fraction)
        check_claim(self.epsilon, self.delta)
        if not 0 < self.absence.numerator < 1 << self.absence.bits:
            raise ParameterError(f"The absence probability {self.absence} must lie strictly between 0 and 1.")
        if honest_count(self.users, self.honest_fraction) < 1:
            raise ParameterError("The honest fraction leaves no honest user.", honest_fraction=self.honest_fraction)

    @classmethod
    def calibrate(
        cls,
        *,
        users: int,
        epsilon: float,
        delta: float,
        calibration: str,
        honest_fraction: float,
        curve_of: CurveOf,
        coordinates: int,
    ) -> TokenNoise:
        """The least noise for the target when only the honest users add any."""
        check_target(epsilon, delta)
        check_users(users, honest_fraction)
        honest = honest_count(users, honest_fraction)
        if honest < 2:
            raise ParameterError(
                f"{honest_fraction:g} of {users:,} users leaves {honest} honest; at least 2 are needed.", honest=honest
            )
        if calibration == "tight":
            absence = tight_noise(honest, epsilon, delta, curve_of)
        elif calibration == "paper":
            absence = paper_noise(honest, epsilon, delta, coordinates=coordinates)
        else:
            raise UnknownNameError(
                f"There is no calibration {calibration!r}; choose one of {', '.join(CALIBRATIONS)}.",
                calibration=calibration,
            )
        return cls(users, absence, float(epsilon), float(delta), float(honest_fraction), calibration)

    @classmethod
    def given(
        cls, *, users: int, absence: float | Dyadic, delta: float, honest_fraction: float, curve_of: CurveOf
    ) -> TokenNoise:
        """Noise chosen by hand; epsilon is the least one that holds with delta."""
        check_users(users, honest_fraction)
        exact = absence if isinstance(absence, Dyadic) else Dyadic.at_least(absence)
        epsilon = least_epsilon(curve_of(Binomial(honest_count(users, honest_fraction), exact)), delta)
        if epsilon == float("inf"):
            raise InfeasibleError(
                f"With absence probability {exact} no epsilon holds at delta = {delta:g}: "
                "one nearer to 1/2 makes more noise.",
                absence=exact,
                delta=delta,
            )
        return cls(users, exact, epsilon, delta, honest_fraction)

    @property
    def honest_users(self) -> int:
        """How many users the guarantee relies on."""
        return honest_count(self.users, self.honest_fraction)

    def guarantee(self, curve_of: CurveOf, *, theorem: str) -> Guarantee:
        """The guarantee, recomputed from the parameters; it refuses to claim what does not hold."""
        curve = curve_of(Binomial(self.honest_users, self.absence))
        achieved = curve.delta_at(self.epsilon)
        if not achieved <= self.delta:
            raise ParameterError(
                f"These parameters give delta = {achieved:.4g} at epsilon = {self.epsilon:g}, "
                f"which is more than the claimed {self.delta:g}.",
                achieved=achieved,
                claimed=self.delta,
            )
        proof = f"Balcer and Cheu 2020, {theorem}" if self.calibration == "paper" else "exact divergence of the noise"
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            users=self.users,
            honest_users=self.honest_users,
            curve=curve,
            theorem=proof,
        )

    def parameters(self) -> dict[str, Any]:
        """The parameters, as JSON; the probability also as the exact fraction that is sampled."""
        return {
            "users": self.users,
            "absence_probability": float(self.absence),
            "absence_numerator": self.absence.numerator,
            "absence_bits": self.absence.bits,
            "honest_fraction": self.honest_fraction,
        }
