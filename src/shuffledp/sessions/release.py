"""One release: choose a protocol for a prepared question, and run one round of it."""

from __future__ import annotations

from typing import Any, TypedDict

from shuffledp.checks import check_target, check_users
from shuffledp.errors import ParameterError
from shuffledp.estimate import Estimate
from shuffledp.planning import Question, plan
from shuffledp.planning.question import as_collected
from shuffledp.protocols.protocol import Protocol, check_estimator
from shuffledp.protocols.registry import PROTOCOLS, find
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.sessions.prepared import Prepared

BEST = "best"
"""The name that stands for the best protocol."""
_PLACEHOLDER_USERS = 2


class ReleaseOptions(TypedDict, total=False):
    """How a question is answered."""

    protocol: str
    """The name of the protocol; by default the best one for the target."""
    trust: str
    """Who is trusted: ``shuffled`` (the default), ``local`` or ``central``; limits the choice of the best protocol."""
    calibration: str
    """``tight`` (the default) or ``paper``, for a named protocol."""
    honest_fraction: float
    """The fraction of users who follow the protocol; 1 by default."""
    estimator: str | None
    """The name of the estimator; by default that of the protocol."""
    route: str
    """``auto``, ``messages`` or ``counts``: how the round is carried out; the distribution is the same."""
    source: RandomSource
    """The source of random bits; a seeded one is for tests only and is not private."""


def check_release(question: str, *, epsilon: float, delta: float, **options: Any) -> None:
    """Check the target and the options of a release of the named question, before data are read."""
    check_target(epsilon, delta)
    check_users(_PLACEHOLDER_USERS, options.get("honest_fraction", 1.0))
    name, estimator = options.get("protocol", BEST), options.get("estimator")
    if name != BEST:
        protocols = [find(question, name)]
        trust = options.get("trust")
        if trust is not None and protocols[0].trust != trust:
            raise ParameterError(f"{name} is a protocol of the {protocols[0].trust} model, not of the {trust} one.")
    else:
        protocols = [find(question, protocol_name) for protocol_name in PROTOCOLS[question]]
        if options.get("calibration", "tight") != "tight":
            raise ParameterError(
                "The best protocol is chosen with its calibration; to use the paper's constants, name a protocol."
            )
    if estimator is not None:
        names = (estimator_name for protocol in protocols for estimator_name in protocol.estimators)
        check_estimator(estimator, tuple(dict.fromkeys(names)))


def choose_protocol(
    question: Question,
    *,
    epsilon: float,
    delta: float,
    protocol: str = BEST,
    trust: str = "shuffled",
    calibration: str = "tight",
    honest_fraction: float = 1.0,
    estimator: str | None = None,
) -> Protocol:
    """The named protocol, or the best one, calibrated for the question and the target."""
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "honest_fraction": honest_fraction}
    if protocol != BEST:
        kind = find(question.question, protocol)
        return question.answered_by(kind.calibrate(**question.settings(), **target, calibration=calibration))
    best = plan(question, **target, trust=trust).best
    if estimator is not None and estimator not in best.estimators and best.question != question.question:
        best = plan(as_collected(question), **target, trust=trust).best  # has further estimators
    if estimator is not None and estimator not in best.estimators:
        raise ParameterError(
            f"There is no estimator {estimator!r} of {best.name}, the best protocol, which has "
            f"{', '.join(best.estimators)}. Choose one of these, or name a protocol (`protocol=NAME`)."
        )
    return best


def run_prepared(
    prepared: Prepared,
    protocol: Protocol,
    *,
    estimator: str | None = None,
    route: str = "auto",
    source: RandomSource = SYSTEM,
) -> Estimate:
    """One round of the protocol over the users of the prepared question."""
    chosen = estimator or protocol.estimators[0]
    return prepared.finish(prepared.run(protocol, prepared.data, estimator=chosen, route=route, source=source))


def release(
    prepared: Prepared,
    *,
    epsilon: float,
    delta: float,
    estimator: str | None = None,
    route: str = "auto",
    source: RandomSource = SYSTEM,
    **options: Any,
) -> Estimate:
    """One release that meets the target; ``options`` choose the protocol."""
    protocol = choose_protocol(prepared.question, epsilon=epsilon, delta=delta, estimator=estimator, **options)
    return run_prepared(prepared, protocol, estimator=estimator, route=route, source=source)
