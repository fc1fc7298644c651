"""Noise by omitted tokens: the common base of Balcer and Cheu's count and histogram.

Every user sends a noise token of each category, and omits each with a small probability.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from shuffledp.checks import check_users
from shuffledp.domain import Domain
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.balcer_cheu import paper_noise, tight_noise
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.calibration import honest_count
from shuffledp.privacy.guarantee import ComposableCurve, Guarantee, least_epsilon
from shuffledp.protocols.parts.postprocessing import ESTIMATORS, TokenAnalysis
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain


@dataclass(frozen=True)
class TokenProtocol(Protocol):
    """A protocol whose noise is a binomial number of omitted tokens; it can also be built from a given noise."""

    estimators: ClassVar[tuple[str, ...]] = tuple(ESTIMATORS)
    theorem: ClassVar[str]
    """The theorem of Balcer and Cheu behind the paper's calibration."""
    changed_categories: ClassVar[int]
    """Number of token counts that change if one user is replaced."""

    absence: Dyadic
    """The probability of omitting a noise token (1 - p in the paper), exactly as it is sampled."""

    def __post_init__(self) -> None:
        check_users(self.target.users, self.target.honest_fraction)
        check_uncertain("absence", self.absence)

    @classmethod
    @abstractmethod
    def curve_of(cls, noise: Binomial) -> ComposableCurve:
        """The privacy curve, given the distribution of the number of tokens that honest users omit."""

    @classmethod
    @abstractmethod
    def of_absence(cls, target: Target, absence: Dyadic, *domain: Any) -> Self:
        """The protocol with this noise, over the domain that ``for_target`` takes."""

    @classmethod
    def with_noise(
        cls, *, users: int, absence: float | Dyadic, delta: float, honest_fraction: float = 1.0, **domain: Any
    ) -> Self:
        """The protocol with a given probability of omitting a noise token; epsilon follows from delta.

        The domain is given as for ``calibrate``.
        """
        check_users(users, honest_fraction)
        exact = absence if isinstance(absence, Dyadic) else Dyadic.at_least(absence)
        epsilon = least_epsilon(cls.curve_of(Binomial(honest_count(users, honest_fraction), exact)), delta)
        if epsilon == float("inf"):
            raise InfeasibleError(
                f"With absence probability {exact} no epsilon holds at delta = {delta:g}: "
                "choose one closer to 1/2, which gives more noise.",
                absence=exact,
                delta=delta,
            )
        parts: tuple[Domain, ...] = cls.domain_arguments(**domain)
        return cls.of_absence(Target(users, epsilon, delta, honest_fraction), exact, *parts)

    @classmethod
    def least_absence(cls, target: Target) -> Dyadic:
        """The least noise that meets the target with the noise of honest users only."""
        if target.calibration == "paper":
            return paper_noise(target.honest_users, target.epsilon, target.delta, coordinates=cls.changed_categories)
        return tight_noise(target.honest_users, target.epsilon, target.delta, cls.curve_of)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, computed from the probability that is sampled."""
        curve = self.curve_of(Binomial(self.target.honest_users, self.absence))
        proof = f"Balcer and Cheu 2020, {self.theorem}" if self.target.calibration == "paper" else None
        return self.target.guarantee(curve, theorem=proof or "exact divergence of the noise")

    @classmethod
    def document_of(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The target and the absence probability together, under ``noise``."""
        users, *rest = fields["terms"].items()
        others = {name: value for name, value in fields.items() if name not in ("terms", "absence")}
        return {"noise": dict([users, ("absence", fields["absence"]), *rest]), **others}

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of ``document_of``; anything else is refused."""
        noise = document.get("noise")
        if not isinstance(noise, Mapping) or "absence" not in noise or not {"terms", "absence"}.isdisjoint(document):
            raise ParameterError(f"The parameters of {cls.__name__} have the target and the absence under noise.")
        others = {name: value for name, value in document.items() if name != "noise"}
        target = {name: value for name, value in noise.items() if name != "absence"}
        return {"terms": target, "absence": noise["absence"], **others}

    def token_analysis(self, users: int, categories: int, estimator: str) -> TokenAnalysis:
        """The analysis of the token counts of ``users`` users."""
        return TokenAnalysis(Binomial(users, self.absence), categories, estimator)

    def _noise_parameters(self) -> dict[str, Any]:
        """The parameters of the noise, as JSON; the probability also as the exact fraction that is sampled."""
        return {
            "users": self.target.users,
            "absence_probability": float(self.absence),
            "absence_numerator": self.absence.numerator,
            "absence_bits": self.absence.bits,
            "honest_fraction": self.target.honest_fraction,
        }
