"""The audit: simulate rounds with the real randomizer and shuffler, and bound epsilon from below.

The lower bound holds with a stated confidence, independent of the theory. If it exceeds the claim, the claim is false;
if it does not, nothing is proven. An audit detects gross faults in code and proofs, and replaces neither tests nor
proofs.

One user is replaced in a few data sets that are likely to be the worst. The adversary's view of a round is reduced
to a few numbers. An event of these numbers is learned from training rounds and counted in fresh ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shuffledp.checks import check_confidence, check_delta
from shuffledp.errors import ParameterError
from shuffledp.privacy.audit import Event, Evidence, learn_event
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.protocol import Protocol
from shuffledp.testing.audit.experiment import (
    Experiment,
    Permute,
    Progress,
    Rows,
    Ticker,
    in_steps,
    neighbouring_pairs,
    shown,
)
from shuffledp.testing.audit.result import AuditResult, Finding

_SECONDS = 5.0
_MAX_SECONDS = 120.0
_FEWEST_TRIALS, _MAX_TRIALS = 400, 100_000
_MAX_TRAINING = 6_000
_MAX_NUMBERS_PER_ROUND = 20_000_000
_LEARNED_DELTAS = (0.01, 0.1)


def audit(
    protocol: Protocol,
    *,
    trials: int | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    data: tuple[Sequence[Any], Sequence[Any]] | None = None,
    permute: Permute | None = None,
    progress: Progress | None = None,
    planted: str = "",
) -> AuditResult:
    """Run a protocol many times, and compare a lower bound on its epsilon with its guarantee.

    ``trials`` is the number of rounds under each of two neighbouring data sets, by default as many as take a few
    seconds. ``delta`` is that of the bound, by default the guarantee's, and ``confidence`` its confidence level.
    ``data`` are two data sets, as randomizers take them, that differ in one user; by default several pairs are tried
    that are likely to be the worst. ``permute`` replaces the shuffler, ``progress`` is called with the fraction that is
    done, and ``planted`` describes a planted fault.

    A round has as many users as the guarantee needs honest ones: an adversary can subtract the messages of the others.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=100, epsilon=1.0, delta=1e-3)
    >>> sdp.audit(protocol, trials=400, confidence=1 - 1e-9).exposed
    False
    """
    check_confidence(confidence)
    guarantee: Guarantee = protocol.guarantee
    audited = guarantee.delta if delta is None else delta
    if audited != guarantee.delta:
        check_delta(audited)
    if trials is not None and trials < 10:
        raise ParameterError(f"An audit needs at least 10 trials, not {trials}.", trials=trials)
    _check_size(protocol, guarantee.honest_users)
    experiments = [Experiment(protocol, pair, permute) for pair in neighbouring_pairs(protocol, data)]
    plan = _Plan.affordable(experiments) if trials is None else _Plan.given(trials)
    learned_deltas = [audited, *(larger for larger in _LEARNED_DELTAS if larger > audited)]
    risk = (1 - confidence) / len(learned_deltas)
    tick = Ticker(progress, 2 * (plan.trials + len(experiments) * plan.training))
    experiment, choices = _learn(experiments, learned_deltas, risk, plan, tick)
    return AuditResult(
        protocol=protocol.name,
        question=protocol.question,
        model=protocol.trust,
        guarantee=guarantee,
        delta=audited,
        confidence=confidence,
        trials=plan.trials,
        findings=tuple(_count(experiment, choices, plan.trials, risk, tick)),
        planted=planted,
    )


def _check_size(protocol: Protocol, users: int) -> None:
    """Refuse rounds that are too large to be run hundreds of times."""
    numbers = users * max(1.0, protocol.cost.messages_per_user) * protocol.message_format.columns
    if numbers > _MAX_NUMBERS_PER_ROUND:
        raise ParameterError(
            f"A round of {users:,} users has about {numbers:,.0f} numbers, too many to run it hundreds of times. "
            "Audit the same protocol with fewer users.",
            users=users,
        )


@dataclass(frozen=True)
class _Plan:
    """Numbers of rounds under each data set: for training, with every pair, and for counting, with the chosen pair."""

    training: int
    trials: int

    @classmethod
    def given(cls, trials: int) -> _Plan:
        """A third as many training rounds, within limits."""
        return cls(min(_MAX_TRAINING, max(200, trials // 3)), trials)

    @classmethod
    def affordable(cls, experiments: list[Experiment]) -> _Plan:
        """As many rounds as take a few seconds on this machine."""
        experiment = experiments[0]
        views = experiment.sample(experiment.pair.first, 2)  # fills caches before timing
        view = next(iter(views))
        learning = _seconds_per_round(lambda rounds: experiment.sample(experiment.pair.first, rounds))
        counting = _seconds_per_round(lambda rounds: experiment.sample(experiment.pair.first, rounds, only={view}))
        if 2 * _FEWEST_TRIALS * counting > _MAX_SECONDS:
            raise ParameterError(
                f"A round takes {counting:.2g} s here, too long for an audit of at least {2 * _FEWEST_TRIALS} rounds. "
                "Audit the same protocol with fewer users, or set the number of trials.",
                seconds_per_round=counting,
            )
        training = int(0.4 * _SECONDS / (2 * len(experiments) * learning))
        trials = int(0.6 * _SECONDS / (2 * counting))
        return cls(
            min(max(training, _FEWEST_TRIALS // 2), _MAX_TRAINING), min(max(trials, _FEWEST_TRIALS), _MAX_TRIALS)
        )


def _seconds_per_round(run: Callable[[int], Any]) -> float:
    rounds, seconds = 1, 0.0
    while seconds < 0.05:
        rounds *= 4
        start = time.perf_counter()
        run(rounds)
        seconds = time.perf_counter() - start
    return seconds / rounds


@dataclass(frozen=True)
class _Choice:
    """An event of a view, likelier under the second data set if ``swapped``, and the expected bound on epsilon."""

    view: str
    event: Event
    swapped: bool
    expected_epsilon: float


def _learn(
    experiments: list[Experiment], deltas: list[float], risk: float, plan: _Plan, tick: Ticker
) -> tuple[Experiment, list[_Choice]]:
    """The pair of data sets with the largest expected bound at the first delta, and its best event for each delta."""
    candidates = []
    for experiment in experiments:
        pair = experiment.pair
        samples = [experiment.sample(data, plan.training, tick=tick) for data in (pair.first, pair.second)]
        candidates.append((experiment, [_best_event(samples, delta, risk, plan.trials) for delta in deltas]))
    return max(candidates, key=lambda candidate: [choice.expected_epsilon for choice in candidate[1]])


def _best_event(samples: list[dict[str, Rows]], delta: float, risk: float, trials: int) -> _Choice:
    """The event with the largest expected bound, of all views, in both directions."""
    choices = []
    for view in samples[0]:
        for swapped in (False, True):
            one, other = (sample[view] for sample in (samples[::-1] if swapped else samples))
            learned = learn_event(one, other, delta=delta, risk=risk, trials=trials)
            choices.append(_Choice(view, learned.event, swapped, learned.expected_epsilon))
    return max(choices, key=lambda choice: choice.expected_epsilon)


def _count(experiment: Experiment, choices: list[_Choice], trials: int, risk: float, tick: Ticker) -> Iterator[Finding]:
    """Count each event in the same fresh rounds."""
    hits = np.zeros((len(choices), 2), dtype=np.int64)
    columns: dict[str, int] = {}
    for side, data in enumerate((experiment.pair.first, experiment.pair.second)):
        for rounds in in_steps(trials, experiment.chunk):
            views = experiment.sample(data, rounds, only={choice.view for choice in choices}, tick=tick)
            columns = {view: rows.shape[1] for view, rows in views.items()}
            for index, choice in enumerate(choices):
                hits[index, side] += np.count_nonzero(choice.event.occurred(views[choice.view]))
    for choice, counts in zip(choices, hits.tolist(), strict=True):
        likely, other = counts[::-1] if choice.swapped else counts
        likelier, less_likely = map(shown, experiment.pair.values[::-1] if choice.swapped else experiment.pair.values)
        yield Finding(
            choice.event.describe(experiment.labels(choice.view, columns[choice.view])),
            f"{experiment.pair.others}; the event is likelier if one user holds {likelier} than {less_likely}",
            Evidence(likely, trials, other, trials, risk),
        )
