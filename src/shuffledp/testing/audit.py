"""An audit: run the real randomizer and the real shuffler many times, and see what an adversary can tell.

The result is a lower bound on epsilon that holds with a stated confidence, whatever the theory says. If it
exceeds the claim, the claim is wrong. If it does not, that proves nothing: an audit finds gross faults,
in code as well as in proofs, and cannot replace either.

One user is replaced in a few data sets that are bad for them. What the adversary sees of a round is summed up
in a few numbers. An event of these numbers is learned from training rounds and counted in fresh ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, ShuffledpError, UnknownNameError
from shuffledp.figures import curves
from shuffledp.model import Messages, Tally
from shuffledp.privacy.audit import Event, Evidence, check_confidence, learn_event
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.shuffling import permute as permute_uniformly

__all__ = ["FAULTS", "AuditPoint", "AuditResult", "Fault", "Finding", "audit", "plant"]

Permute = Callable[[NDArray[Any]], None]
Progress = Callable[[float], None]
Rows = NDArray[np.int64]

_SECONDS = 5.0
_PATIENCE = 120.0
_FEWEST_TRIALS, _MOST_TRIALS = 400, 100_000
_MOST_TRAINING = 6_000
_NUMBERS_AT_A_TIME = 1 << 21
_MOST_NUMBERS_A_ROUND = 20_000_000
_MOST_CODES = 1 << 20
_MOST_CODES_TALLIED = 4096
_MOST_ENTRIES = 4
_PILOT_ROUNDS = 300
_OTHER_DELTAS = (0.001, 0.01, 0.1)
_LEARNED_DELTAS = (0.01, 0.1)


@dataclass(frozen=True)
class Finding:
    """One event, of which data sets, and how often it was seen."""

    event: str
    data_sets: str
    evidence: Evidence


@dataclass(frozen=True)
class AuditPoint:
    """At this delta, epsilon is at least the one and claimed to be at most the other."""

    delta: float
    epsilon_at_least: float
    epsilon_claimed: float

    @property
    def exposed(self) -> bool:
        """Both cannot be true."""
        return self.epsilon_at_least > self.epsilon_claimed

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; an infinite claim becomes null."""
        claimed = self.epsilon_claimed if math.isfinite(self.epsilon_claimed) else None
        return {"delta": self.delta, "epsilon_at_least": self.epsilon_at_least, "epsilon_claimed": claimed}


@dataclass(frozen=True)
class AuditResult:
    """What was claimed, and what was found."""

    protocol: str
    question: str
    model: str
    guarantee: Guarantee
    delta: float
    confidence: float
    """That all findings are right, together."""
    trials: int
    """Rounds under each of both data sets, besides those that the events were learned from."""
    findings: tuple[Finding, ...]
    planted: str = ""
    """The fault that was planted, in words."""

    @property
    def epsilon_at_least(self) -> float:
        """The lower bound at the audited delta."""
        return self.points[0].epsilon_at_least

    @property
    def epsilon_claimed(self) -> float:
        """What the guarantee says at the audited delta."""
        return self.points[0].epsilon_claimed

    @property
    def exposed(self) -> bool:
        """Whether the claim is false, with the stated confidence, at any delta."""
        return any(point.exposed for point in self.points)

    @cached_property
    def points(self) -> tuple[AuditPoint, ...]:
        """The audited delta, and some larger ones."""
        deltas = [self.delta, *(delta for delta in _OTHER_DELTAS if delta > self.delta)]
        return tuple(
            AuditPoint(delta, self._best(delta).evidence.epsilon_at(delta), _claimed(self.guarantee, delta))
            for delta in deltas
        )

    @property
    def finding(self) -> Finding:
        """What shows the most at the audited delta; or, if the claim fails only elsewhere, there."""
        return self._best(self._worst.delta)

    def delta_at(self, epsilon: float) -> float:
        """Delta is at least this, at this epsilon."""
        return max(finding.evidence.delta_at(epsilon) for finding in self.findings)

    def sentence(self) -> str:
        """The verdict in plain words."""
        worst = self._worst
        at = f" at delta = {worst.delta:.3g}" if worst.delta > 0 else ""
        sure = f"{100 * self.confidence:.10g}% confidence"
        bound = f"epsilon is at least {worst.epsilon_at_least:.4g}{at} with {sure}"
        if self.exposed:
            return f"EXPOSED: {bound}, but claimed is {worst.epsilon_claimed:.4g}. The claim is false."
        return f"{bound[0].upper()}{bound[1:]}; claimed is {worst.epsilon_claimed:.4g}: consistent."

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        finding, worst = self.finding, self._worst
        evidence = finding.evidence
        return {
            "protocol": self.protocol,
            "question": self.question,
            "model": self.model,
            "planted_fault": self.planted or None,
            "claim": self.guarantee.to_json(),
            "delta": self.delta,
            "epsilon_at_least": self.epsilon_at_least,
            "epsilon_claimed": self.points[0].to_json()["epsilon_claimed"],
            "exposed": self.exposed,
            "confidence": self.confidence,
            "trials": self.trials,
            "shown_at_delta": worst.delta,
            "event": finding.event,
            "data_sets": finding.data_sets,
            "hits": [evidence.hits, evidence.other_hits],
            "rates": [evidence.hits / evidence.trials, evidence.other_hits / evidence.other_trials],
            "curve": [point.to_json() for point in self.points],
        }

    def figure(self, suffix: str) -> bytes:
        """The claimed curve and the audited one, as .png, .svg or .html: the second may not rise above the first."""
        widest = 1.15 * max([1e-3, self._plain_claim(), *(point.epsilon_at_least for point in self.points)])
        grid = [widest * step / 120 for step in range(121)]
        lowest = min([1e-5, *([self.delta / 10] if self.delta > 0 else [])])
        claimed = [(epsilon, self.guarantee.delta_at(epsilon)) for epsilon in grid]
        audited = [(epsilon, self.delta_at(epsilon)) for epsilon in grid]
        lines = {
            "claimed: at most": [point for point in claimed if point[1] > lowest],
            "audited: at least": [point for point in audited if point[1] > lowest],
        }
        planted = [f"PLANTED FAULT: {self.planted}."] if self.planted else []
        return curves(
            suffix,
            lines=lines,
            title=f"Audit of {self.question}/{self.protocol}: {'EXPOSED' if self.exposed else 'consistent'}",
            x_title="epsilon",
            y_title="delta",
            caption=[*planted, self.sentence(), f"{self.trials:,} rounds under each of two neighbouring data sets."],
        )

    def _best(self, delta: float) -> Finding:
        return max(self.findings, key=lambda finding: finding.evidence.epsilon_at(delta))

    @property
    def _worst(self) -> AuditPoint:
        """The audited delta, unless the claim fails only at another."""
        return next((point for point in self.points if point.exposed), self.points[0])

    def _plain_claim(self) -> float:
        return self.epsilon_claimed if math.isfinite(self.epsilon_claimed) else 0.0


def _claimed(guarantee: Guarantee, delta: float) -> float:
    return guarantee.epsilon if delta == guarantee.delta else guarantee.epsilon_at(delta)


def audit(
    protocol: Any,
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
    """
    check_confidence(confidence)
    guarantee: Guarantee = protocol.guarantee
    audited = guarantee.delta if delta is None else delta
    if not (0 < audited < 1 or audited == guarantee.delta):
        raise ParameterError(f"delta must lie strictly between 0 and 1, not {audited}.", delta=audited)
    if trials is not None and trials < 10:
        raise ParameterError(f"An audit needs at least 10 trials, not {trials}.", trials=trials)
    _check_size(protocol, guarantee.honest_users)
    scenes = [_Scene(protocol, pair, permute) for pair in _pairs(protocol, data)]
    plan = _Plan.affordable(scenes) if trials is None else _Plan.given(trials)
    learned_deltas = [audited, *(each for each in _LEARNED_DELTAS if each > audited)]
    risk = (1 - confidence) / len(learned_deltas)
    tick = _Ticker(progress, 2 * (plan.trials + len(scenes) * plan.training))
    scene, choices = _learn(scenes, learned_deltas, risk, plan, tick)
    return AuditResult(
        protocol=protocol.name,
        question=protocol.question,
        model=protocol.model,
        guarantee=guarantee,
        delta=audited,
        confidence=confidence,
        trials=plan.trials,
        findings=tuple(_count(scene, choices, plan.trials, risk, tick)),
        planted=planted,
    )


def _check_size(protocol: Any, users: int) -> None:
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
    def affordable(cls, scenes: list[_Scene]) -> _Plan:
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


@dataclass
class _Ticker:
    """Rounds done, as a fraction."""

    report: Progress | None
    total: int
    done: int = 0

    def __call__(self, rounds: int) -> None:
        self.done += rounds
        if self.report is not None:
            self.report(min(1.0, self.done / self.total))


@dataclass(frozen=True)
class _Choice:
    """An event of what is seen, likelier under the second data set if ``swapped``, and what it promises."""

    view: str
    event: Event
    swapped: bool
    promise: float


def _learn(
    scenes: list[_Scene], deltas: list[float], risk: float, plan: _Plan, tick: _Ticker
) -> tuple[_Scene, list[_Choice]]:
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


def _count(scene: _Scene, choices: list[_Choice], trials: int, risk: float, tick: _Ticker) -> Iterator[Finding]:
    """Count each event in the same fresh rounds."""
    seen = np.zeros((len(choices), 2), dtype=np.int64)
    columns: dict[str, int] = {}
    for side, data in enumerate((scene.pair.first, scene.pair.second)):
        for rounds in _steps(trials, scene.chunk):
            views = scene.sample(data, rounds, only={choice.view for choice in choices}, tick=tick)
            columns = {view: rows.shape[1] for view, rows in views.items()}
            for place, choice in enumerate(choices):
                seen[place, side] += np.count_nonzero(choice.event.occurred(views[choice.view]))
    for choice, hits in zip(choices, seen.tolist(), strict=True):
        likely, other = hits[::-1] if choice.swapped else hits
        held, not_held = map(_shown, scene.pair.values[::-1] if choice.swapped else scene.pair.values)
        yield Finding(
            choice.event.words(scene.labels(choice.view, columns[choice.view])),
            f"{scene.pair.others}; the event is likelier if one user holds {held} than {not_held}",
            Evidence(likely, trials, other, trials, risk),
        )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _steps(total: int, step: int) -> Iterator[int]:
    for start in range(0, total, step):
        yield min(step, total - start)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two data sets that differ in one user."""

    first: NDArray[Any]
    second: NDArray[Any]
    target: int
    others: str

    @property
    def values(self) -> tuple[Any, Any]:
        return self.first[self.target].item(), self.second[self.target].item()


def _pairs(protocol: Any, data: tuple[Sequence[Any], Sequence[Any]] | None) -> list[_Pair]:
    """The data sets to try: those given, or some that are bad for the user who is replaced."""
    if data is not None:
        return [_given(protocol, *data)]
    if protocol.question == "sum":
        values: list[Any] = [0.0, 1.0]
    elif protocol.domain_size < 2:
        raise ParameterError("A domain of one value has no neighbouring data sets; there is nothing to audit.")
    else:
        values = list(range(protocol.domain_size))
    first, last = values[0], values[-1]
    if protocol.model == "local":
        pairs = [(first, last), (first, values[1])] if len(values) > 2 else [(first, last)]
        return [_Pair(np.array([one]), np.array([other]), 0, "a single report") for one, other in pairs]
    rest = protocol.guarantee.honest_users - 1
    configurations = {f"all others hold {_shown(value)}": [value] * rest for value in (first, last, values[1])}
    if rest > 1:
        configurations["others hold all values in turn"] = [values[place % len(values)] for place in range(rest)]
    return [
        _Pair(np.array([first, *others]), np.array([last, *others]), 0, words)
        for words, others in configurations.items()
    ]


def _given(protocol: Any, first: Sequence[Any], second: Sequence[Any]) -> _Pair:
    one, other = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != other.shape or np.count_nonzero(one != other) != 1:
        raise ParameterError("The two data sets must be lists of equal length that differ in exactly one user.")
    target = int(np.flatnonzero(one != other)[0])
    if protocol.model == "local":
        return _Pair(one[[target]], other[[target]], 0, "a single report")
    if len(one) < protocol.guarantee.honest_users:
        raise ParameterError(
            f"The guarantee rests on {protocol.guarantee.honest_users:,} users; the data sets have {len(one):,}."
        )
    return _Pair(one, other, target, "others as given")


@dataclass(eq=False)
class _Scene:
    """Rounds over two neighbouring data sets, and what the adversary sees of them.

    Any function of what is seen is fair; which ones are looked at only decides how much is found.
    """

    protocol: Any
    pair: _Pair
    permute: Permute | None
    _tables: dict[str, NDArray[np.int64]] | None = field(default=None, init=False)

    @property
    def users(self) -> int:
        return len(self.pair.first)

    @property
    def _numbers_a_round(self) -> float:
        columns = self.protocol.message_format.columns
        return float(self.users * max(1.0, self.protocol.cost.messages_per_user) * columns)

    @property
    def chunk(self) -> int:
        """Rounds at a time that fit the memory."""
        return max(1, int(_NUMBERS_AT_A_TIME / self._numbers_a_round))

    @property
    def released_only(self) -> bool:
        """Whether the adversary sees no messages, but what a trusted party releases."""
        return self.protocol.model == "central" or bool(getattr(self.protocol, "trusts_shuffler", False))

    def labels(self, view: str, columns: int) -> list[str]:
        """A name for each number of a view."""
        place = _PLACE if view.endswith(_PLACE) else ""
        plain = view.removesuffix(_PLACE)
        if plain == _KINDS:
            return [f"messages typical of value {_shown(value)}{place}" for value in self.pair.values]
        if columns == 1:
            return [view]
        if self.protocol.question == "histogram" and np.array_equal(self._entries, self.pair.values):
            return [f"count of value {value}{place}" for value in self.pair.values]
        return [f"number {entry + 1} of {view}" for entry in self._entries]

    def sample(
        self, data: NDArray[Any], rounds: int, *, only: set[str] | None = None, tick: _Ticker | None = None
    ) -> dict[str, Rows]:
        """What is seen of so many rounds: per view a row of numbers each."""
        parts = []
        for some in _steps(rounds, self.chunk):
            parts.append(self._seen(data, some, only))
            if tick is not None:
                tick(some)
        return {view: np.concatenate([part[view] for part in parts]) for view in parts[0]}

    def _seen(self, data: NDArray[Any], rounds: int, only: set[str] | None) -> dict[str, Rows]:
        messages: Messages = self.protocol.randomize_all(np.tile(data, rounds))
        if messages.offsets is None:
            raise ParameterError("The randomizer does not say which user sent which message; it cannot be audited.")
        borders = messages.offsets[:: self.users]
        # a permutation does not change what is counted, so fresh rounds are shuffled where their order is looked at
        if self.permute is not None or only is None or any(view.endswith(_PLACE) for view in only):
            self._shuffle(messages, borders)
        if self.released_only:
            return {_RELEASED: self._numbers(messages, borders[:-1], borders[1:])}
        return self._views(messages, borders, only)

    def _shuffle(self, messages: Messages, borders: NDArray[np.int64]) -> None:
        """Each round on its own, in place."""
        if self.protocol.model != "shuffled":
            return
        permute = self.permute or permute_uniformly
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            Messages(messages.values[start:end], self.users).mixed(permute)

    def _views(self, messages: Messages, borders: NDArray[np.int64], only: set[str] | None) -> dict[str, Rows]:
        """Numbers of messages that tell the two values apart, what the analyzer counts, and the length of the round."""
        if self._tables is None:
            self._tables = self._learn_tables()
        views: dict[str, Rows] = {}
        codes = self.protocol.message_format.code(messages.values) if self._tables else None
        for name in (_KINDS, _SCORE, _NUMBERS):
            table = self._tables.get(name)
            places = {name: (borders[:-1], borders[1:])}
            if self.protocol.model == "shuffled" and name != _KINDS:
                places[name + _PLACE] = self._place(borders)
            for view, (starts, ends) in places.items():
                if only is not None and view not in only:
                    continue
                if table is not None:
                    views[view] = _sums(table[codes], starts, ends)
                elif name == _NUMBERS:
                    views[view] = self._numbers(messages, starts, ends)
        if only is None or _LENGTH in only:
            views[_LENGTH] = np.diff(borders)[:, np.newaxis]
        return views

    def _place(self, borders: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """From where to where the target's messages stand, if nothing is shuffled and nobody sends many."""
        each = self.protocol.cost.messages_per_user
        start = np.minimum(borders[:-1] + round(self.pair.target * each), borders[1:])
        return start, np.minimum(start + max(1, round(each)), borders[1:])

    def _learn_tables(self) -> dict[str, NDArray[np.int64]]:
        """Per view what each message adds to it, by the message's code; none where there are too many codes."""
        codes = self.protocol.message_format.codes
        if codes > _MOST_CODES:
            return {}
        reports = int(min(4000, max(50, _NUMBERS_AT_A_TIME / max(1.0, self.protocol.cost.messages_per_user))))
        copies = [self._copies(value, reports) for value in (self.pair.first, self.pair.second)]
        difference = copies[0] - copies[1]
        clear = np.abs(difference) > 3 * np.sqrt(copies[0] + copies[1])
        scores = np.where(clear, np.round(4 * np.log((copies[0] + 1) / (copies[1] + 1))), 0).astype(np.int64)
        kinds = np.column_stack((clear & (difference > 0), clear & (difference < 0))).astype(np.int64)
        tables = {_KINDS: kinds, _SCORE: scores[:, np.newaxis]}
        counted = self._tallied_table(codes)
        return tables if counted is None else tables | {_NUMBERS: counted}

    def _copies(self, data: NDArray[Any], reports: int) -> NDArray[np.int64]:
        """How often each message occurs in so many reports of the target's value."""
        sent = self.protocol.randomize_all(np.repeat(data[self.pair.target], reports))
        format_ = self.protocol.message_format
        return np.bincount(format_.code(sent.values), minlength=format_.codes)

    def _tallied_table(self, codes: int) -> NDArray[np.int64] | None:
        """What the analyzer counts of each single message, if that adds up to what it counts of a round."""
        if codes > _MOST_CODES_TALLIED:
            return None
        every = Messages(self.protocol.message_format.message(np.arange(codes)), codes)
        try:
            table = self._numbers(every, np.arange(codes), np.arange(1, codes + 1))
            some = self.protocol.randomize_all(self.pair.first)
            whole = self._numbers(some, np.array([0]), np.array([len(some)]))
        except ShuffledpError:
            return None
        added = table[self.protocol.message_format.code(some.values)].sum(axis=0)
        return table if np.array_equal(added, whole[0]) else None

    def _numbers(self, messages: Messages, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """What the analyzer counts, or the trusted party releases, of the messages from .. to: entries that matter."""
        rows = [
            self._counted(messages.values[start:end])[self._entries]
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), -1)

    def _counted(self, values: NDArray[Any]) -> NDArray[Any]:
        tally: Tally = self.protocol.release(self.protocol.tally(Messages(values, self.users)))
        observed = getattr(self.protocol, "observed", None)
        counted: NDArray[Any] = tally.counts if self.released_only or observed is None else observed(tally)
        return counted

    @cached_property
    def _entries(self) -> NDArray[np.int64]:
        """The two values' of a histogram; all of few entries; else those that differ most in a few rounds."""
        length = len(self._counted(self.protocol.randomize_all(self.pair.first).values))
        if self.protocol.question == "histogram" and length == self.protocol.domain_size:
            return np.array(self.pair.values)
        if length <= _MOST_ENTRIES:
            return np.arange(length)
        samples = []
        for data in (self.pair.first, self.pair.second):
            rounds = [self._counted(self.protocol.randomize_all(data).values) for _ in range(_PILOT_ROUNDS)]
            samples.append(np.array(rounds, dtype=np.float64))
        gap = np.abs(samples[0].mean(axis=0) - samples[1].mean(axis=0))
        spread = np.sqrt(samples[0].var(axis=0) + samples[1].var(axis=0)) + 1e-9
        return np.sort(np.argsort(-gap / spread, kind="stable")[:_MOST_ENTRIES])


_KINDS = "messages typical of either value"
_SCORE = "the messages' sum of learned scores"
_NUMBERS = "what the analyzer counts"
_RELEASED = "what is released"
_LENGTH = "the number of messages in the round"
_PLACE = " at the user's place"


def _sums(numbers: Rows, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
    """The sums of rows from .. to."""
    totals = np.zeros((len(numbers) + 1, numbers.shape[1]), dtype=np.int64)
    np.cumsum(numbers, axis=0, out=totals[1:])
    summed: Rows = totals[ends] - totals[starts]
    return summed


@dataclass(frozen=True)
class Fault:
    """A protocol, or a shuffler, that is broken on purpose; the claim stays as it was."""

    name: str
    words: str
    protocol: Any
    permute: Permute | None = None

    def audit(self, **options: Any) -> AuditResult:
        """Audit the broken copy; the result says that the fault was planted."""
        return audit(self.protocol, permute=self.permute, planted=self.words, **options)


FAULTS = {
    "clear-last-value": "users who hold the last value all send the same report",
    "little-noise": "the noise is enough only for five times the claimed epsilon, at a delta of a quarter",
    "tenfold-users": "the noise is enough only for ten times as many users",
    "no-shuffle": "the shuffler leaves all messages in the order of the users",
    "clear-release": "the trusted party releases what it counted without noise",
}
"""Every fault that can be planted, by name."""


class _Planted:
    """A protocol with some of its parts replaced."""

    def __init__(self, protocol: Any, **parts: Any) -> None:
        self._protocol = protocol
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        return self._parts[name] if name in self._parts else getattr(self._protocol, name)


def plant(protocol: Any, fault: str) -> Fault:
    """A broken copy that an audit must expose; refuses a fault that this protocol cannot have."""
    if fault not in FAULTS:
        raise UnknownNameError(f"There is no fault {fault!r}; choose one of {', '.join(FAULTS)}.", fault=fault)
    possible = _possible(protocol)
    if fault not in possible:
        raise ParameterError(
            f"{protocol.question}/{protocol.name} cannot have the fault {fault}; choose one of {', '.join(possible)}.",
            fault=fault,
        )
    words = FAULTS[fault]
    if fault == "no-shuffle":
        return Fault(fault, words, protocol, lambda messages: None)  # noqa: ARG005
    if fault == "clear-release":
        return Fault(fault, words, _Planted(protocol, release=_clear_release))
    if fault == "clear-last-value":
        return Fault(fault, words, _Planted(protocol, randomize_all=_clear_last_value(protocol)))
    weaker = _for_more_users(protocol) if fault == "tenfold-users" else _with_little_noise(protocol)
    return Fault(fault, words, _Planted(weaker, guarantee=protocol.guarantee, users=protocol.users))


def _possible(protocol: Any) -> list[str]:
    if protocol.model == "central":
        return ["little-noise", "clear-release"]
    if protocol.model == "local" or getattr(protocol, "trusts_shuffler", False):
        return ["clear-last-value", "little-noise"]
    return ["clear-last-value", "little-noise", "tenfold-users", "no-shuffle"]


def _clear_release(tally: Tally, **_: Any) -> Tally:
    return Tally(tally.counts, tally.users, tally.secure, released=True)


def _for_more_users(protocol: Any) -> Any:
    return _recalibrated(protocol, users=10 * protocol.users)


def _with_little_noise(protocol: Any) -> Any:
    guarantee: Guarantee = protocol.guarantee
    return _recalibrated(protocol, epsilon=5 * guarantee.epsilon, delta=max(0.25, guarantee.delta))


def _recalibrated(protocol: Any, **changes: Any) -> Any:
    """The same protocol for other users, or another target."""
    guarantee: Guarantee = protocol.guarantee
    settings: dict[str, Any] = {
        "users": protocol.users,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta or 1e-6,  # pure protocols ask for one, and do not use it
    }
    if guarantee.trust != "local":
        settings["honest_fraction"] = guarantee.honest_users / guarantee.users
    if protocol.question == "histogram":
        settings["domain_size"] = protocol.domain_size
    elif protocol.question == "sum":
        settings["domain"] = protocol.domain
    return type(protocol).calibrate(**(settings | changes))


def _clear_last_value(protocol: Any) -> Callable[..., Messages]:
    """Users who hold the last value send the report of it that is most common in a sample."""
    last = 1.0 if protocol.question == "sum" else protocol.domain_size - 1
    drawn = protocol.randomize_all(np.repeat(np.array([last]), 300))
    reports = [drawn.values[start:end] for start, end in zip(drawn.offsets[:-1], drawn.offsets[1:], strict=True)]
    sent = [np.sort(report, axis=0).tobytes() for report in reports]
    clear = reports[max(range(len(sent)), key=[sent.count(each) for each in sent].__getitem__)].copy()

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages: Messages = protocol.randomize_all(values, **options)
        if messages.offsets is None:
            return messages
        held = np.asarray(values) == last
        lengths = np.where(held, len(clear), np.diff(messages.offsets))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        replaced = np.repeat(held, lengths)
        broken = np.empty((int(offsets[-1]), *messages.values.shape[1:]), dtype=messages.values.dtype)
        broken[replaced] = clear[np.tile(np.arange(len(clear)), np.count_nonzero(held))]
        broken[~replaced] = messages.values[np.repeat(~held, np.diff(messages.offsets))]
        return Messages(broken, messages.users, offsets, messages.secure)

    return randomize_all
