"""Identification of a support by a histogram protocol: the protocol, its privacy target and the decision rule.

There are four ways to simulate a round. An item that nobody holds is called empty.

- *exact zeros*: empty items are estimated as exactly 0, so only held items are simulated;
- *order statistics*: the scores of items are independent with a known distribution, so of the empty items only the
  largest scores are drawn;
- *listed*: the tally of all items, empty ones included, over a domain that is small enough to enumerate;
- *messages*: the same, with every message made, permuted and counted.

The last two have the distribution of the first two, without relying on what is known of empty items.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError, ShuffledpError, UnknownNameError
from shuffledp.lab.problems.exact_zeros import exact_zeros
from shuffledp.lab.problems.largest import largest_scores
from shuffledp.lab.problems.listed import ListedDomain
from shuffledp.lab.problems.problem import Instance, Problem, describe_domain_size
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.registry import PROTOCOLS, find
from shuffledp.randomness import RandomSource

RULES = ("shown", "largest", "paper")
"""Report items with a positive estimate; the h largest estimates; or, as in Claim 14, estimates of at least t + 1."""
ROUTES = ("auto", "listed", "messages")
"""Simulate as little as the protocol allows; the tally of the whole domain; or all messages of the whole domain."""
MAX_LISTED = 1 << 22
"""Maximum size of a domain that is enumerated."""


_LEAST_EPSILON = 0.005


class Identifier(Protocol):
    """A calibrated protocol together with a rule that decides which items to report."""

    @property
    def route(self) -> str:
        """The way a round is simulated: ``exact zeros``, ``order statistics``, ``listed`` or ``messages``."""

    @property
    def simulated_items(self) -> int:
        """The number of items whose noise is simulated one by one."""

    @property
    def protocol(self) -> HistogramProtocol:
        """The calibrated protocol, over the items that are simulated."""

    @property
    def success_at_least(self) -> float:
        """A proven lower bound on the probability that all needed items are identified."""

    def identify(self, instance: Instance, counts: NDArray[np.int64], source: RandomSource) -> tuple[Any, ...]:
        """The items that one round reports; ``counts`` are the numbers of users who hold each item of the support."""

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:
        """The number of simulated rounds, out of ``rounds``, in which all needed items are identified.

        Samples and noise of held items come from ``generator``, with floating-point precision.
        """


@dataclass(frozen=True, kw_only=True)
class Method:
    """A registered histogram protocol, its privacy target, and the rule that selects items."""

    epsilon: float
    delta: float
    protocol: str = "balcer-cheu"
    calibration: str = "tight"
    rule: str = ""
    """One of ``RULES``; if empty, ``shown`` where empty items are exactly 0, else ``largest``."""
    route: str = "auto"
    """One of ``ROUTES``."""

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        if self.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"epsilon must be at least {_LEAST_EPSILON:g} to solve problems, not {self.epsilon:g}: "
                "sample sizes for smaller values take too long to compute.",
                epsilon=self.epsilon,
            )
        object.__setattr__(self, "rule", self.rule or ("shown" if self.kind.exact_zeros else "largest"))
        if self.rule not in RULES:
            raise UnknownNameError(f"There is no rule {self.rule!r}; choose one of {', '.join(RULES)}.", rule=self.rule)
        if self.route not in ROUTES:
            raise UnknownNameError(
                f"There is no route {self.route!r}; choose one of {', '.join(ROUTES)}.", route=self.route
            )
        if self.rule == "paper" and not issubclass(self.kind, BalcerCheuHistogram):
            raise ParameterError(f"The rule 'paper' is that of balcer-cheu, not of {self.protocol}; use another rule.")
        if self.rule == "shown" and not self.kind.exact_zeros:
            raise ParameterError(
                f"With {self.protocol} empty items can have positive estimates, so the rule 'shown' would report "
                "them; use the rule 'largest'."
            )

    @property
    def kind(self) -> type[HistogramProtocol]:
        """The class of the protocol."""
        kind = find("histogram", self.protocol)
        assert issubclass(kind, HistogramProtocol)  # noqa: S101 - what the registry has under histogram
        return kind

    @property
    def trust(self) -> str:
        """The trust model: shuffled, local or central."""
        return self.kind.trust

    def identifier(self, problem: Problem, users: int) -> Identifier:
        """The identifier for this problem with the protocol calibrated for this number of users.

        Raises the error of the calibration, or an error that names protocols which can handle the domain.
        """
        self.check_domain(problem)
        return _identifier(self, problem, users)

    @property
    def lists_domain(self) -> bool:
        """Whether the protocol is run over the whole domain: as the route says, or because it must be."""
        return self.route != "auto" or (self.rule == "largest" and not self.kind.independent_categories)

    def check_domain(self, problem: Problem) -> None:
        """Reject a domain that this method would have to enumerate and that is too large for it."""
        if not self.lists_domain:
            return
        if problem.domain_size is None or problem.domain_size > MAX_LISTED:
            if self.route != "auto":
                raise InfeasibleError(
                    f"The route {self.route!r} simulates every item of the domain, and {describe_domain_size(problem)} "
                    f"items are too many; at most {MAX_LISTED:,} are listed. Use a smaller domain or the route 'auto'.",
                    domain_size=problem.domain_size,
                )
            suitable = ", ".join(_protocols_without_listing())
            raise InfeasibleError(
                f"{self.protocol} must be run over the whole domain, and {describe_domain_size(problem)} items are too "
                f"many to list; at most {MAX_LISTED:,} are listed. Protocols that need not list it: {suitable}.",
                domain_size=problem.domain_size,
            )


def _protocols_without_listing() -> list[str]:
    """Protocols that need not run over the whole domain, those that never report an empty item first."""
    kinds = {name: kind for name, kind in PROTOCOLS["histogram"].items() if issubclass(kind, HistogramProtocol)}
    exact = [name for name, kind in kinds.items() if kind.exact_zeros]
    return exact + [name for name, kind in kinds.items() if kind.independent_categories and name not in exact]


@lru_cache(maxsize=256)
def _identifier(method: Method, problem: Problem, users: int) -> Identifier:
    """The identifier with its calibrated protocol; cached, since searches and rounds use the same numbers of users."""
    size = problem.domain_size if method.lists_domain else problem.support_size
    protocol = _calibrated(replace(method, rule="", route="auto"), users, size or problem.support_size)
    if isinstance(protocol, ShuffledpError):
        raise type(protocol)(str(protocol), **protocol.values)
    if method.lists_domain:
        return ListedDomain(protocol, problem, method.rule, messages=method.route == "messages")
    if method.rule != "largest":
        return exact_zeros(protocol, problem, method.rule)
    return largest_scores(protocol, problem)


@lru_cache(maxsize=1024)
def _calibrated(method: Method, users: int, size: int) -> HistogramProtocol | ShuffledpError:
    """The protocol, or why there is none: problems of one size share calibrations, and failed ones are not repeated."""
    try:
        return method.kind.calibrate(
            users=users,
            domain_size=size,
            epsilon=method.epsilon,
            delta=method.delta,
            calibration=method.calibration,
            **method.kind.independent_options,  # only some categories are simulated
        )
    except (InfeasibleError, ConditionError) as error:
        return type(error)(str(error), **error.values)  # without the traceback, which would keep many objects in memory
