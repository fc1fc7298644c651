"""Checks that any protocol must pass, on an instance of few users and a small domain.

Distributions are enumerated from the protocol's own table of reports. The samplers are compared with them
statistically; the guarantee and the predicted error are computed without sampling.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.protocol import Protocol
from shuffledp.shuffling import permute
from shuffledp.testing.distributions import Table, divergence, divergences, neighbours
from shuffledp.testing.statistics import ALPHA, p_value
from shuffledp.testing.subject import Subject

_EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_LARGEST_MISSING = 1e-4

CheckResult = tuple[bool, str]
"""Whether a check passed, and details."""


@dataclass(frozen=True)
class Check:
    """The result of one check: its ``name``, whether it ``passed``, and a ``detail`` for people."""

    name: str
    passed: bool
    detail: str


class ConformanceError(ShuffledpError):
    """A protocol failed a check of the conformance kit; ``checks`` has the results of all checks."""

    def __init__(self, checks: list[Check]) -> None:
        failed = [check for check in checks if not check.passed]
        super().__init__("; ".join(f"{check.name}: {check.detail}" for check in failed))
        self.checks = checks


def check_protocol(
    protocol: Protocol,
    *,
    values: Sequence[Any] | None = None,
    samples: int = 20_000,
    alpha: float = ALPHA,
    only: Collection[str] | None = None,
) -> list[Check]:
    """Run every check of the conformance kit on a small protocol; raises ConformanceError if any fails.

    The protocol should have two to four users, two or three values, and so much noise that every
    outcome occurs: ``BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.9)``. ``values`` are the inputs
    to try, by default all of a small domain, or three positions of an interval. ``samples`` is the number of reports
    drawn for statistical tests, whose level is ``alpha``. ``only`` names the checks to run.

    >>> protocol = sdp.BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.9)
    >>> [check.passed for check in sdp.check_protocol(protocol, only=["tallies add up in any order"])]
    [True]
    """
    subject = Subject(protocol, tuple(values) if values is not None else protocol.inputs(between=True), samples, alpha)
    checks = [
        _checked(name, check(subject))
        for name, check in CHECKS.items()
        if (only is None or name in only)
        and not (name == _UNBIASED and subject.estimator not in ("unbiased", "projected"))
        and not (name == _EXACT_ERROR and not protocol.exact_error)
    ]
    if not all(check.passed for check in checks):
        raise ConformanceError(checks)
    return checks


def _checked(name: str, result: CheckResult) -> Check:
    passed, detail = result
    return Check(name, bool(passed), detail)


def _tables_are_distributions(subject: Subject) -> CheckResult:
    sums = [float(sum(pmf.values())) for pmf in subject.report_pmfs]
    widths = {len(copies) for pmf in subject.report_pmfs for copies in pmf}
    good = all(1 - _LARGEST_MISSING <= total <= 1 + 1e-9 for total in sums)
    return good and widths == {subject.protocol.message_format.codes}, f"probabilities sum to {sums}"


def _randomize_matches(subject: Subject) -> CheckResult:
    """``randomize``, one report at a time."""
    p_values = []
    for value in subject.values:
        reports = [subject.protocol.randomize(value) for _ in range(subject.samples // 20)]
        ends = np.cumsum([0, *(len(report) for report in reports)])
        p_values.append(_p(_multisets(subject, np.concatenate(reports), ends), subject.reports[value]))
    return min(p_values) > subject.alpha, f"least p-value {min(p_values):.2g} of {len(p_values)} values"


def _randomize_all_matches(subject: Subject) -> CheckResult:
    """``randomize_all``, report by report."""
    p_values = []
    for value in subject.values:
        messages = subject.protocol.randomize_all(np.array([value] * subject.samples))
        if messages.offsets is None or len(messages.offsets) != subject.samples + 1:
            return False, "the messages have no offsets per user"
        p_values.append(_p(_multisets(subject, messages.values, messages.offsets), subject.reports[value]))
    return min(p_values) > subject.alpha, f"least p-value {min(p_values):.2g} of {len(p_values)} values"


def _multisets(subject: Subject, messages: NDArray[Any], offsets: NDArray[Any]) -> NDArray[np.int64]:
    """For each report the integer that encodes its multiset of messages; reports begin at ``offsets``."""
    checked = subject.protocol.message_format.check(messages)
    weights = subject.alphabet.weights[subject.protocol.message_format.code(checked)]
    sums = np.concatenate(([0], np.cumsum(weights)))
    return np.asarray(sums[offsets[1:]] - sums[offsets[:-1]], dtype=np.int64)


def _messages_match(subject: Subject) -> CheckResult:
    """The distribution of the released tally, drawn message by message."""

    def draw(data: tuple[Any, ...], rounds: int) -> list[tuple[int, ...]]:
        messages = subject.protocol.randomize_all(np.array(data * rounds))
        borders = _offsets(messages)[:: subject.users]
        tallies: dict[bytes, Tally] = {}  # equal sequences of messages are tallied once
        released = []
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            sent = messages.values[start:end]
            key = sent.tobytes()
            if key not in tallies:
                tallies[key] = subject.protocol.tally(Messages(sent, subject.users))
            released.append(tuple(subject.protocol.release(tallies[key]).counts.tolist()))
        return released

    return _rounds(subject, draw)


def _offsets(messages: Messages) -> NDArray[np.int64]:
    if messages.offsets is None:
        raise ParameterError("randomize_all must return messages with offsets per user.")
    return messages.offsets


def _sample_tally_matches(subject: Subject) -> CheckResult:
    """The distribution of the released tally, drawn by ``sample_tally``."""

    def draw(data: tuple[Any, ...], rounds: int) -> list[tuple[int, ...]]:
        summary = subject.summary(data)
        return [tuple(subject.protocol.sample_tally(summary).counts.tolist()) for _ in range(rounds)]

    return _rounds(subject, draw)


def _rounds(subject: Subject, draw: Callable[[tuple[Any, ...], int], list[tuple[int, ...]]]) -> CheckResult:
    p_values = []
    for data in subject.data_sets[:2]:
        pmf = subject.released_pmf(data)
        drawn = Counter(draw(data, subject.samples // 8))
        p_values.append(_p_of_counts([drawn.get(key, 0) for key in pmf], list(pmf.values()), drawn.total()))
        if p_values[-1] <= subject.alpha:  # one data set is enough to fail
            break
    return min(p_values) > subject.alpha, f"least p-value {min(p_values):.2g}"


def _lengths_are_independent_of_values(subject: Subject) -> CheckResult:
    """The number of messages has the same distribution whatever the value."""
    lengths = []
    for value in subject.values:
        table = subject.reports[value]
        lengths.append(np.bincount(subject.alphabet.size(table.outcomes), weights=table.masses))
    same = all(len(other) == len(lengths[0]) and np.allclose(other, lengths[0], atol=1e-9) for other in lengths)
    return same, f"lengths {np.flatnonzero(lengths[0]).tolist()}"


def _cost_is_exact(subject: Subject) -> CheckResult:
    tables = subject.reports.values()
    sizes = [subject.alphabet.size(table.outcomes) for table in tables]
    expected = max(float(size @ table.masses) for size, table in zip(sizes, tables, strict=True))
    largest = max(int(size.max()) for size in sizes)
    fewest = min(int(size.min()) for size in sizes)
    cost, maximum = subject.protocol.cost, subject.protocol.cost.max_messages_per_user
    good = (
        subject.protocol.min_messages_per_user <= fewest
        and abs(expected - cost.messages_per_user) <= 0.01 * cost.messages_per_user
        and (maximum is None or largest <= maximum)
        and subject.protocol.message_format.bits == cost.bits_per_message
    )
    return good, f"{expected:.4g} messages expected, {fewest} at least, {largest} at most"


def _guarantee_holds(subject: Subject) -> CheckResult:
    """The divergence of all neighbouring data sets is at most what the guarantee claims."""
    guarantee = subject.protocol.guarantee
    claimed = {epsilon: guarantee.delta_at(epsilon) for epsilon in (*_EPSILONS, guarantee.epsilon)}
    worst, where = -1.0, ""
    for first, second, curves in _views(subject):
        for epsilon, exact in zip(claimed, divergences(curves[0], curves[1], tuple(claimed)), strict=True):
            excess = exact - claimed[epsilon]
            if excess > worst:
                worst, where = excess, f"delta {exact:.4g} at epsilon {epsilon:.4g} for {first} against {second}"
    if np.isfinite(guarantee.local_epsilon):
        for first in subject.values:
            for second in subject.values:
                curves = [_as_mapping(subject.reports[value]) for value in (first, second)]
                excess = divergence(curves[0], curves[1], guarantee.local_epsilon)
                if excess > worst:
                    worst, where = excess, f"local epsilon {guarantee.local_epsilon:.4g} for {first} against {second}"
    return worst <= 1e-10, where


def _views(subject: Subject) -> Any:
    """Pairs of neighbouring data sets with the distributions of the view of the least trusted party.

    Dishonest users, as many as the guarantee allows, send arbitrary reports. A party that sees all messages can remove
    theirs, so only the messages of honest users count; for released tallies, every choice of reports is tried.
    """
    if subject.protocol.trust == "local":
        for first in subject.values:
            for second in subject.values:
                yield first, second, tuple(_as_mapping(subject.reports[value]) for value in (first, second))
        return
    honest = min(subject.users, subject.protocol.guarantee.honest_users)
    if subject.released_only:
        dishonest = list(combinations_with_replacement(subject.possible_reports, subject.users - honest))
        for pair in neighbours(subject.values, honest):
            for sent in dishonest:
                yield *pair, tuple(subject.released_pmf(data, sent) for data in pair)
        return
    distributions: dict[tuple[Any, ...], Any] = {}
    for pair in neighbours(subject.values, honest):
        keys = [tuple(sorted(data)) for data in pair]
        for key in keys:
            if key not in distributions:
                distributions[key] = _as_mapping(subject.messages_pmf(key))
        yield *pair, tuple(distributions[key] for key in keys)


def _as_mapping(table: Table) -> dict[int, float]:
    return dict(zip(table.outcomes.tolist(), table.masses.tolist(), strict=True))


def _is_unbiased(subject: Subject) -> CheckResult:
    worst, where = 0.0, "every data set"
    for data in subject.data_sets:
        numbers, masses = _estimates(subject, data)
        bias = float(np.max(np.abs(masses @ numbers / masses.sum() - subject.truth(data))))
        if bias > worst:
            worst, where = bias, f"off by {bias:.3g} on average for {data}"
    return worst < 1e-6 * subject.protocol.unit or worst < _tolerance(subject), where


def _error_is_predicted(subject: Subject) -> CheckResult:
    """The exact mean squared error of every data set equals the predicted one."""
    worst, where = 0.0, "every data set"
    for data in subject.data_sets:
        numbers, masses = _estimates(subject, data)
        exact = float(masses @ np.mean((numbers - subject.truth(data)) ** 2, axis=1)) / masses.sum()
        predicted = subject.protocol.expected_error_of(np.array(data)).rmse ** 2
        difference = abs(exact - predicted) / max(predicted, 1e-9)
        if difference > worst:
            worst, where = difference, f"{exact:.6g} against {predicted:.6g} for {data}"
    return worst < 1e-6 or worst < _tolerance(subject), where


def _tolerance(subject: Subject) -> float:
    """The relative tolerance of moments, which is larger if tails were left out of the tables."""
    truncated = any(table.missing > 1e-12 for table in subject.reports.values())
    return 0.02 if truncated else 1e-6


def _estimates(subject: Subject, data: tuple[Any, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All possible estimates of a round over this data, and their probabilities."""
    pmf = {counts: mass for counts, mass in subject.released_pmf(data).items() if mass > 1e-12}
    return np.array([subject.estimate_of(counts) for counts in pmf]), np.array(list(pmf.values()))


def _tallies_add(subject: Subject) -> CheckResult:
    """A tally depends only on the multiset of messages: parts add up, and the order has no effect."""
    protocol = subject.protocol
    messages = [protocol.randomize_all(np.array([value] * subject.users)) for value in subject.values]
    total = protocol.tally(messages[0])
    for part in messages[1:]:
        total = total + protocol.tally(part)
    joined = np.concatenate([part.values for part in messages])
    permute(joined)
    together = protocol.tally(Messages(joined, subject.users * len(subject.values)))
    same = total == together or (
        protocol.modular_tally
        and total.users == together.users
        and np.array_equal(protocol.observed(total), protocol.observed(together))
    )
    return same, f"{total.counts.tolist()[:20]}"


def _honest_users_are_counted(subject: Subject) -> CheckResult:
    """The messages of honest users never look like those of fewer users."""
    for data in subject.data_sets:
        messages = subject.protocol.randomize_all(np.array(data * 20))
        tally = subject.protocol.tally(messages)
        limit = subject.protocol.most_users(tally, len(messages))
        if limit is not None and limit < len(data) * 20:
            return False, f"at most {limit:,} of {len(data) * 20:,} users for {data}"
        plausible = subject.protocol.without_excess(tally)
        if plausible != tally:
            return False, f"honest messages of {data} are dropped"
    return True, f"{len(subject.data_sets)} data sets"


def _packing_round_trips(subject: Subject) -> CheckResult:
    """Packing into bytes and unpacking returns the same messages."""
    form = subject.protocol.message_format
    sent = subject.protocol.randomize_all(np.array(subject.values * 20)).values
    packed = form.pack(sent)
    back = form.unpack(packed)
    return packed.shape == (len(sent), form.size) and np.array_equal(back, sent), f"{form.size} bytes each"


def _document_round_trips(subject: Subject) -> CheckResult:
    """Writing to JSON and reading returns the same protocol with the same guarantee."""
    original = subject.protocol
    document = json.loads(json.dumps(to_document(original), allow_nan=False))
    copy = from_document(document)
    json.dumps(original.parameters(), allow_nan=False)
    same = copy == original and copy.guarantee.to_json() == original.guarantee.to_json()
    return same, f"{len(json.dumps(document))} characters"


def _p(codes: NDArray[np.int64], distribution: Table) -> float:
    outcomes, counts = np.unique(codes, return_counts=True)
    observed = dict(zip(outcomes.tolist(), counts.tolist(), strict=True))
    return _p_of_counts(
        [observed.get(outcome, 0) for outcome in distribution.outcomes.tolist()],
        distribution.masses.tolist(),
        len(codes),
    )


def _p_of_counts(counts: Sequence[int], masses: Sequence[float], total: int) -> float:
    """The p-value; outcomes outside the table count towards the tail that was left out of it."""
    outside, missing = total - sum(counts), max(0.0, 1 - sum(masses))
    if missing < 1e-12:
        return 0.0 if outside else p_value(counts, masses)
    return p_value([*counts, outside], [*masses, missing])


_UNBIASED = "estimates are right on average"
_EXACT_ERROR = "the predicted error is the exact one"

CHECKS: Mapping[str, Callable[[Subject], CheckResult]] = {
    "report_pmf is a distribution": _tables_are_distributions,
    "randomize has its distribution": _randomize_matches,
    "randomize_all has its distribution": _randomize_all_matches,
    "messages have the distribution of the round": _messages_match,
    "sample_tally has the distribution of the round": _sample_tally_matches,
    "the number of messages says nothing of the value": _lengths_are_independent_of_values,
    "the cost is as promised": _cost_is_exact,
    "the guarantee holds exactly": _guarantee_holds,
    _UNBIASED: _is_unbiased,
    _EXACT_ERROR: _error_is_predicted,
    "tallies add up in any order": _tallies_add,
    "honest users are counted": _honest_users_are_counted,
    "messages survive packing": _packing_round_trips,
    "the protocol survives its document": _document_round_trips,
}
"""Every check by name."""
