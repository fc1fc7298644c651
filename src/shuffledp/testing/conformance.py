"""Checks that any protocol must pass, on an instance of few users and a small domain.

Laws are enumerated exactly from the protocol's own table of reports; the samplers are held against
them statistically, the guarantee and the predicted error without any sampling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.model import Protocol, Tally
from shuffledp.shuffling import permute
from shuffledp.testing.laws import Law, divergence, neighbours, tally_law
from shuffledp.testing.statistics import ALPHA, p_value

__all__ = ["Check", "ConformanceError", "check_protocol"]

_EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_LARGEST_TABLE = 100_000


@dataclass(frozen=True)
class Check:
    """One property, whether it holds, and what was found."""

    name: str
    passed: bool
    detail: str


class ConformanceError(ShuffledpError):
    """A protocol is not what it says; the failed checks are in ``checks``."""

    def __init__(self, checks: list[Check]) -> None:
        failed = [check for check in checks if not check.passed]
        super().__init__("; ".join(f"{check.name}: {check.detail}" for check in failed))
        self.checks = checks


def check_protocol(protocol: Protocol, *, samples: int = 20_000, alpha: float = ALPHA) -> list[Check]:
    """Run every check; raises ConformanceError with all that fail, else returns what was found.

    The protocol should have two to four users, two or three values and so much noise that every
    outcome occurs: ``BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.9)``.
    """
    laws = [protocol.report_law(index) for index in range(protocol.domain_size)]
    if max(map(len, laws)) ** protocol.users > _LARGEST_TABLE:
        raise ParameterError("The protocol is too large to enumerate; use fewer users or a smaller domain.")
    checks = [
        _tables_are_laws(protocol, laws),
        _sampler("randomize has its law", protocol, laws, _literal, samples // 4, alpha),
        _sampler("randomize_all has its law", protocol, laws, _vectorised, samples, alpha),
        _rounds("messages have the law of the round", protocol, laws, _by_messages, samples // 2, alpha),
        _rounds("sample_tally has the law of the round", protocol, laws, _by_counts, samples // 2, alpha),
        _lengths_say_nothing(laws),
        _cost_is_kept(protocol, laws),
        _guarantee_holds(protocol, laws),
        _error_is_predicted(protocol, laws),
        _tallies_add(protocol),
    ]
    if not all(check.passed for check in checks):
        raise ConformanceError(checks)
    return checks


def _tables_are_laws(protocol: Protocol, laws: Sequence[Law]) -> Check:
    sums = [sum(law.values()) for law in laws]
    widths = {len(report) for law in laws for report in law}
    good = all(total == 1 for total in sums) and widths == {protocol.message_values}
    return Check("report_law is a law", good, f"probabilities sum to {[str(total) for total in sums]}")


Draw = Callable[[Protocol, int, int], "Counter[tuple[int, ...]]"]


def _literal(protocol: Protocol, index: int, samples: int) -> Counter[tuple[int, ...]]:
    return Counter(_copies(protocol, protocol.randomize(index)) for _ in range(samples))


def _vectorised(protocol: Protocol, index: int, samples: int) -> Counter[tuple[int, ...]]:
    messages = protocol.randomize_all(np.full(samples, index, dtype=np.int64))
    if messages.offsets is None or len(messages.offsets) != samples + 1:
        return Counter()
    parts = np.split(messages.values, messages.offsets[1:-1])
    return Counter(_copies(protocol, part) for part in parts)


def _sampler(name: str, protocol: Protocol, laws: Sequence[Law], draw: Draw, samples: int, alpha: float) -> Check:
    worst = min(_p(draw(protocol, index, samples), law) for index, law in enumerate(laws))
    return Check(name, worst > alpha, f"least p-value {worst:.2g} of {len(laws)} values")


Run = Callable[[Protocol, "NDArray[np.int64]"], Tally]


def _by_messages(protocol: Protocol, indices: NDArray[np.int64]) -> Tally:
    return protocol.tally(protocol.randomize_all(indices).mixed(permute))


def _by_counts(protocol: Protocol, indices: NDArray[np.int64]) -> Tally:
    return protocol.sample_tally(np.bincount(indices, minlength=protocol.domain_size))


def _rounds(name: str, protocol: Protocol, laws: Sequence[Law], run: Run, samples: int, alpha: float) -> Check:
    """The whole table of tallies on a mixed and on a uniform data set."""
    p_values = []
    for data in (np.arange(protocol.users) % protocol.domain_size, np.zeros(protocol.users, dtype=np.int64)):
        law = _visible(protocol, tally_law([laws[index] for index in data.tolist()]))
        seen = Counter(tuple(run(protocol, data).counts.tolist()) for _ in range(samples))
        p_values.append(_p(seen, law))
    return Check(name, min(p_values) > alpha, f"least p-value {min(p_values):.2g}")


def _lengths_say_nothing(laws: Sequence[Law]) -> Check:
    """The number of messages has the same law whatever the value."""
    lengths = []
    for law in laws:
        table: Counter[int] = Counter()
        for report, share in law.items():
            table[sum(report)] += share  # type: ignore[assignment]
        lengths.append({length: share for length, share in table.items() if share})
    same = all(table == lengths[0] for table in lengths)
    return Check("the number of messages says nothing of the value", same, f"lengths {sorted(lengths[0])}")


def _cost_is_kept(protocol: Protocol, laws: Sequence[Law]) -> Check:
    expected = max(sum(sum(report) * float(share) for report, share in law.items()) for law in laws)
    largest = max(sum(report) for law in laws for report in law)
    cost = protocol.cost
    good = (
        expected <= cost.messages_per_user * (1 + 1e-9)
        and largest <= cost.max_messages_per_user
        and protocol.message_values <= 1 << cost.bits_per_message
    )
    return Check("the cost is as promised", good, f"{expected:.4g} messages expected, {largest} at most")


def _guarantee_holds(protocol: Protocol, laws: Sequence[Law]) -> Check:
    """No pair of neighbouring data sets is told apart better than the guarantee allows."""
    worst, where = -1.0, ""
    for first, second in neighbours(protocol.domain_size, protocol.users):
        seen = [_visible(protocol, tally_law([laws[index] for index in data])) for data in (first, second)]
        for epsilon in (*_EPSILONS, protocol.guarantee.epsilon):
            exact = float(divergence(seen[0], seen[1], epsilon))
            excess = exact - protocol.guarantee.delta_at(epsilon)
            if excess > worst:
                worst, where = excess, f"delta {exact:.4g} at epsilon {epsilon:.4g} for {first} against {second}"
    return Check("the guarantee holds exactly", worst <= 1e-12, where)


def _error_is_predicted(protocol: Protocol, laws: Sequence[Law]) -> Check:
    """The exact mean squared error of every data set equals the predicted one."""
    worst, where = 0.0, "all data sets"
    for data in combinations_with_replacement(range(protocol.domain_size), protocol.users):
        counts = np.bincount(data, minlength=protocol.domain_size)
        exact = predicted = 0.0
        for tally, share in _visible(protocol, tally_law([laws[index] for index in data])).items():
            estimate = protocol.estimate(Tally(np.array(tally), protocol.users))
            exact += float(share) * float(np.mean((_numbers(estimate) - _targets(protocol, counts)) ** 2))
        predicted = protocol.expected_error(counts=_targets(protocol, counts)).rmse ** 2
        if abs(exact - predicted) > worst:
            worst, where = abs(exact - predicted), f"{exact:.4g} against {predicted:.4g} for {data}"
    return Check("the predicted error is the exact one", worst < 1e-6, where)


def _tallies_add(protocol: Protocol) -> Check:
    messages = [protocol.randomize_all(np.full(protocol.users, index)) for index in range(protocol.domain_size)]
    parts = [protocol.tally(each) for each in messages]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    joined = np.concatenate([each.values for each in messages])
    together = protocol.tally(type(messages[0])(joined, protocol.users * protocol.domain_size))
    return Check("tallies add up", total == together, f"{total.counts.tolist()}")


def _copies(protocol: Protocol, report: NDArray[Any]) -> tuple[int, ...]:
    return tuple(np.bincount(report, minlength=protocol.message_values).tolist())


def _visible(protocol: Protocol, law: Law) -> Law:
    """The law of the tally, which may leave out padding that says nothing."""
    width = len(protocol.sample_tally(np.bincount([0] * protocol.users, minlength=protocol.domain_size)).counts)
    if any(len(seen) != width for seen in law):
        return {seen[:width]: share for seen, share in law.items()}
    return law


def _p(seen: Counter[tuple[int, ...]], law: Law) -> float:
    if not seen or not set(seen) <= set(law):
        return 0.0
    return p_value([seen.get(outcome, 0) for outcome in law], [float(share) for share in law.values()])


def _numbers(estimate: Any) -> NDArray[np.float64]:
    return np.atleast_1d(estimate.counts if hasattr(estimate, "counts") else estimate.value)


def _targets(protocol: Protocol, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is estimated: every count, or for a binary sum the count of ones."""
    return counts[1:] if protocol.question == "count" else counts
