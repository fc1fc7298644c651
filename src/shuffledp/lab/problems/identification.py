"""How a histogram protocol identifies a support: which protocol, at which target, by which rule.

Three routes lead to the reported items, and the protocol decides which one is taken:

- *exact zeros*: empty items are estimated to be 0 for certain, so only held items are touched;
- *order statistics*: every item has an independent score of a known distribution, so of all empty items only the
largest scores
  are drawn;
- *listed*: any other protocol, over a domain that can be listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError, ParameterError, UnknownNameError
from shuffledp.lab.problems.exact_zeros import exact_zeros
from shuffledp.lab.problems.largest import largest_scores
from shuffledp.lab.problems.listed import ListedDomain
from shuffledp.lab.problems.problem import Instance, Problem, domain_words
from shuffledp.privacy.guarantee import check_target
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.questions import HistogramProtocol
from shuffledp.protocols.registry import PROTOCOLS, find
from shuffledp.randomness import RandomSource

RULES = ("shown", "largest", "paper")
"""Report what is estimated to be positive; the h largest estimates; or, as in Claim 14, estimates of t + 1 and more."""
MOST_LISTED = 1 << 22
"""The largest domain that is listed."""


_LEAST_EPSILON = 0.005


class Identifier(Protocol):
    """A protocol calibrated for some number of users, which reports items."""

    @property
    def route(self) -> str:
        """How empty items are dealt with."""

    @property
    def protocol(self) -> HistogramProtocol:
        """The calibrated protocol, over the items that are touched."""

    @property
    def success_at_least(self) -> float:
        """A proven lower bound on the probability that everything needed is identified."""

    def identify(self, instance: Instance, counts: NDArray[np.int64], source: RandomSource) -> tuple[Any, ...]:
        """The items that one round reports, if so many users hold each item of the support."""

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:
        """In how many of so many simulated rounds everything needed is identified.

        Samples and noise of held items come from ``generator``, to the precision of floats.
        """


@dataclass(frozen=True, kw_only=True)
class Method:
    """A registered histogram protocol, the privacy it is calibrated for, and the rule that picks items."""

    epsilon: float
    delta: float
    protocol: str = "balcer-cheu"
    calibration: str = "tight"
    rule: str = ""
    """One of ``RULES``; if empty, ``shown`` where empty items are exactly 0, else ``largest``."""

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        if self.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"Problems are solved for epsilon from {_LEAST_EPSILON:g} on, not {self.epsilon:g}: "
                "the sample sizes of smaller ones take too long to compute.",
                epsilon=self.epsilon,
            )
        object.__setattr__(self, "rule", self.rule or ("shown" if self.kind.exact_zeros else "largest"))
        if self.rule not in RULES:
            raise UnknownNameError(f"There is no rule {self.rule!r}; choose one of {', '.join(RULES)}.", rule=self.rule)
        if self.rule == "paper" and not issubclass(self.kind, BalcerCheuHistogram):
            raise ParameterError(f"The rule paper is that of balcer-cheu, not of {self.protocol}; use another rule.")
        if self.rule == "shown" and not self.kind.exact_zeros:
            raise ParameterError(
                f"With {self.protocol} empty items can have positive estimates, so the rule shown would report them; "
                "use the rule largest."
            )

    @property
    def kind(self) -> type[HistogramProtocol]:
        """The class of the protocol."""
        kind = find("histogram", self.protocol)
        assert issubclass(kind, HistogramProtocol)  # noqa: S101 - what the registry has under histogram
        return kind

    @property
    def model(self) -> str:
        """Who is trusted: shuffled, local or central."""
        return self.kind.model

    def identifier(self, problem: Problem, users: int) -> Identifier:
        """The protocol calibrated for so many users and this problem.

        What cannot be had raises the error of the calibration, or says which protocols can.
        """
        self.check_domain(problem)
        return _identifier(self, problem, users)

    @property
    def lists_domain(self) -> bool:
        """Whether the protocol must be run over the whole domain."""
        return self.rule == "largest" and not self.kind.independent_categories

    def check_domain(self, problem: Problem) -> None:
        """Refuse a domain that this method would have to list and cannot."""
        if not self.lists_domain:
            return
        if problem.domain_size is None or problem.domain_size > MOST_LISTED:
            able = ", ".join(_able_without_listing())
            raise InfeasibleError(
                f"{self.protocol} must be run over the whole domain, and {domain_words(problem)} items are too many "
                f"to list; at most {MOST_LISTED:,} are listed. Protocols that need not list it: {able}.",
                domain_size=problem.domain_size,
            )


def _able_without_listing() -> list[str]:
    """Protocols that need not be run over the whole domain, those that never show an empty item first."""
    kinds = {name: kind for name, kind in PROTOCOLS["histogram"].items() if issubclass(kind, HistogramProtocol)}
    exact = [name for name, kind in kinds.items() if kind.exact_zeros]
    return exact + [name for name, kind in kinds.items() if kind.independent_categories and name not in exact]


@lru_cache(maxsize=256)
def _identifier(method: Method, problem: Problem, users: int) -> Identifier:
    """Kept, since searches and repeated rounds come back to the same numbers of users."""
    protocol = method.kind.calibrate(
        users=users,
        domain_size=problem.domain_size if method.lists_domain else problem.support_size,
        epsilon=method.epsilon,
        delta=method.delta,
        calibration=method.calibration,
    )
    if method.rule != "largest":
        return exact_zeros(protocol, problem, method.rule)
    return ListedDomain(protocol, problem) if method.lists_domain else largest_scores(protocol, problem)
