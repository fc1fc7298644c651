"""An audit: run the real randomizer and the real shuffler many times, and see what an adversary can tell.

The result is a lower bound on epsilon that holds with a stated confidence, whatever the theory says. If it
exceeds the claim, the claim is wrong. If it does not, that proves nothing: an audit finds gross faults,
in code as well as in proofs, and cannot replace either.

One user is replaced in a few data sets that are bad for them. What the adversary sees of a round is summed up
in a few numbers. An event of these numbers is learned from training rounds and counted in fresh ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shuffledp.checks import check_confidence
from shuffledp.errors import ParameterError
from shuffledp.privacy.audit import Event, Evidence, learn_event
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.protocol import Protocol
from shuffledp.testing.audit.result import AuditResult, Finding
from shuffledp.testing.audit.scene import Permute, Progress, Rows, Scene, Ticker, in_steps, neighbouring_pairs, shown

_SECONDS = 5.0
_PATIENCE = 120.0
_FEWEST_TRIALS, _MOST_TRIALS = 400, 100_000
_MOST_TRAINING = 6_000
_NUMBERS_AT_A_TIME = 1 << 21
_MOST_NUMBERS_A_ROUND = 20_000_000
_PILOT_ROUNDS = 300
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
    """A lower bound on the epsilon of a protocol from rounds that are really run, against what it claims.

    ``trials`` is the number of rounds under each of two neighbouring data sets, by default as many as take some
    seconds. ``data`` are the two data sets if you want to choose them: values (as randomizers take them) that differ in
    one user. ``permute`` replaces the shuffler.

    A round has as many users as the guarantee needs honest ones: an adversary can subtract what others sent.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=100, epsilon=1.0, delta=1e-3)
    >>> sdp.audit(protocol, trials=400, confidence=1 - 1e-9).exposed
    False
    """
    check_confidence(confidence)
    guarantee: Guarantee = protocol.guarantee
    audited = guarantee.delta if delta is None else delta
    if not (0 < audited < 1 or audited == guarantee.delta):
        raise ParameterError(f"delta must lie strictly between 0 and 1, not {audited}.", delta=audited)
    if trials is not None and trials < 10:
        raise ParameterError(f"An audit needs at least 10 trials, not {trials}.", trials=trials)
    _check_size(protocol, guarantee.honest_users)
    scenes = [Scene(protocol, pair, permute) for pair in neighbouring_pairs(protocol, data)]
    plan = _Plan.affordable(scenes) if trials is None else _Plan.given(trials)
    learned_deltas = [audited, *(each for each in _LEARNED_DELTAS if each > audited)]
    risk = (1 - confidence) / len(learned_deltas)
    tick = Ticker(progress, 2 * (plan.trials + len(scenes) * plan.training))
    scene, choices = _learn(scenes, learned_deltas, risk, plan, tick)
    return AuditResult(
        protocol=protocol.name,
        question=protocol.question,
        model=protocol.trust,
        guarantee=guarantee,
        delta=audited,
        confidence=confidence,
        trials=plan.trials,
        findings=tuple(_count(scene, choices, plan.trials, risk, tick)),
        planted=planted,
    )


def _check_size(protocol: Protocol, users: int) -> None:
    """Refuse rounds that are too large to be run hundreds of times."""
    numbers = users * max(1.0, protocol.cost.messages_per_user) * protocol.message_format.columns
    if numbers > _MOST_NUMBERS_A_ROUND:
        raise ParameterError(
            f"A round of {users:,} users has about {numbers:,.0f} numbers, too many to run it hundreds of times. "
            "Audit the same protocol with fewer users.",
            users=users,
        )


@dataclass(frozen=True)
class _Plan:
    """Rounds under each data set: to learn from, for every pair of data sets, and to count events in, for one."""

    training: int
    trials: int

    @classmethod
    def given(cls, trials: int) -> _Plan:
        """A third as many to learn from, within limits."""
        return cls(min(_MOST_TRAINING, max(200, trials // 3)), trials)

    @classmethod
    def affordable(cls, scenes: list[Scene]) -> _Plan:
        """What takes a few seconds on this machine."""
        scene = scenes[0]
        views = scene.sample(scene.pair.first, 2)  # whatever is made once is made now
        learning = _seconds_a_round(lambda rounds: scene.sample(scene.pair.first, rounds))
        counting = _seconds_a_round(lambda rounds: scene.sample(scene.pair.first, rounds, only={next(iter(views))}))
        if 2 * _FEWEST_TRIALS * counting > _PATIENCE:
            raise ParameterError(
                f"A round takes {counting:.2g} s here, too long for an audit of at least {2 * _FEWEST_TRIALS} rounds. "
                "Audit the same protocol with fewer users, or say how many trials you have the time for.",
                seconds_per_round=counting,
            )
        training = int(0.4 * _SECONDS / (2 * len(scenes) * learning))
        trials = int(0.6 * _SECONDS / (2 * counting))
        return cls(
            min(max(training, _FEWEST_TRIALS // 2), _MOST_TRAINING), min(max(trials, _FEWEST_TRIALS), _MOST_TRIALS)
        )


def _seconds_a_round(run: Callable[[int], Any]) -> float:
    rounds, seconds = 1, 0.0
    while seconds < 0.05:
        rounds *= 4
        start = time.perf_counter()
        run(rounds)
        seconds = time.perf_counter() - start
    return seconds / rounds


@dataclass(frozen=True)
class _Choice:
    """An event of what is seen, likelier under the second data set if ``swapped``, and what it promises."""

    view: str
    event: Event
    swapped: bool
    promise: float


def _learn(
    scenes: list[Scene], deltas: list[float], risk: float, plan: _Plan, tick: Ticker
) -> tuple[Scene, list[_Choice]]:
    """The pair of data sets that promises the most at the first delta, and its best event for each delta."""
    found = []
    for scene in scenes:
        samples = [scene.sample(data, plan.training, tick=tick) for data in (scene.pair.first, scene.pair.second)]
        found.append((scene, [_best_event(samples, delta, risk, plan.trials) for delta in deltas]))
    return max(found, key=lambda each: [choice.promise for choice in each[1]])


def _best_event(samples: list[dict[str, Rows]], delta: float, risk: float, trials: int) -> _Choice:
    """Of all views, in both directions."""
    choices = []
    for view in samples[0]:
        for swapped in (False, True):
            one, other = (sample[view] for sample in (samples[::-1] if swapped else samples))
            learned = learn_event(one, other, delta=delta, risk=risk, trials=trials)
            choices.append(_Choice(view, learned.event, swapped, learned.promise))
    return max(choices, key=lambda choice: choice.promise)


def _count(scene: Scene, choices: list[_Choice], trials: int, risk: float, tick: Ticker) -> Iterator[Finding]:
    """Count each event in the same fresh rounds."""
    seen = np.zeros((len(choices), 2), dtype=np.int64)
    columns: dict[str, int] = {}
    for side, data in enumerate((scene.pair.first, scene.pair.second)):
        for rounds in in_steps(trials, scene.chunk):
            views = scene.sample(data, rounds, only={choice.view for choice in choices}, tick=tick)
            columns = {view: rows.shape[1] for view, rows in views.items()}
            for place, choice in enumerate(choices):
                seen[place, side] += np.count_nonzero(choice.event.occurred(views[choice.view]))
    for choice, hits in zip(choices, seen.tolist(), strict=True):
        likely, other = hits[::-1] if choice.swapped else hits
        held, not_held = map(shown, scene.pair.values[::-1] if choice.swapped else scene.pair.values)
        yield Finding(
            choice.event.words(scene.labels(choice.view, columns[choice.view])),
            f"{scene.pair.others}; the event is likelier if one user holds {held} than {not_held}",
            Evidence(likely, trials, other, trials, risk),
        )
