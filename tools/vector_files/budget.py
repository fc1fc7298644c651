"""Test vectors of the budget of a device: totals of sampled curves, records, and what reports do to them."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from shuffledp.collection.device.budget import AuthorBudget, DeviceBudget
from shuffledp.collection.device.spending import Record, Spending
from shuffledp.collection.wire.keys import SigningKey, to_base64
from shuffledp.errors import PolicyError
from shuffledp.privacy.sampled_curves import SampledCurve, SampledTotal
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import AUTHOR, STRANGER, secret_of

_TOLERANCE = 1e-9
_DIGITS = 12


@dataclass(frozen=True)
class _Response:
    """The curve of binary randomized response, with a delta added: in closed form."""

    epsilon: float
    delta: float

    def delta_at(self, epsilon: float) -> float:
        whole = 1 + math.exp(self.epsilon)
        return min(1.0, self.delta + max(0.0, (math.exp(self.epsilon) - math.exp(epsilon)) / whole))

    def sampled(self) -> SampledCurve:
        return SampledCurve.of(self, epsilon=self.epsilon, delta=self.delta)


_CURVES = {
    "one": _Response(1.0, 0.0),
    "half, with a delta": _Response(0.5, 1e-7),
    "a tenth": _Response(0.1, 1e-9),
    "beyond the samples": _Response(4.0, 1e-8),
}
_RELEASES = {name: response.sampled() for name, response in _CURVES.items()}


def budget_file() -> Document:
    """The content of v2/budget.json."""
    return {
        "about": "The budget of a device: totals of curves, records of what was spent, what a report does to them.",
        "tolerance": repr(_TOLERANCE),
        "curves": [
            {
                "name": name,
                "epsilon": repr(curve.epsilon),
                "delta": repr(curve.delta),
                "samples": to_base64(_RELEASES[name].deltas.astype("<f4").tobytes()),
            }
            for name, curve in _CURVES.items()
        ],
        "totals": [_total(names) for names in _COMPOSED],
        "charges": _charges(),
        "damaged": _damaged(),
    }


_COMPOSED = (
    (),
    ("one",),
    ("one",) * 2,
    ("half, with a delta",) * 12,
    ("a tenth",) * 52,
    ("one", "half, with a delta", "a tenth"),
    ("beyond the samples",),
    ("beyond the samples", "a tenth", "one"),
)


def _shown(value: float) -> str:
    return repr(float(f"{value:.{_DIGITS - 1}e}"))


def _total(names: tuple[str, ...]) -> Document:
    total = SampledTotal.of(_RELEASES[name] for name in names)
    return {
        "curves": list(names),
        "epsilons": {repr(delta): _shown(total.epsilon_at(delta)) for delta in (1e-5, 1e-6)},
        "deltas": {repr(epsilon): _shown(total.delta_at(epsilon)) for epsilon in (0.5, 2.0)},
    }


def _empty() -> Record:
    return Record(secret_of("key of a record"), date(2026, 1, 1))


def _charge(
    record: Record,
    budget: DeviceBudget,
    *,
    curve: str,
    now: str,
    closes: str,
    name: str = "A question",
    author: SigningKey,
) -> tuple[Document, Record]:
    task = replace(task_of("histogram/k-rr"), name=name, opens=_time("2026-01-01"), closes=_time(closes))
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "budget").write_bytes(record.to_bytes())
        spending = Spending(directory, budget)
        outcome: dict[str, Any]
        try:
            spending.charge(task, author.public, _RELEASES[curve], _time(now))
            after = spending.read()
            outcome = {"after": after.to_bytes().decode()}
        except PolicyError as error:
            after = record
            outcome = {"refused": str(error), "possible": error.values["possible"]}
    limits = {
        "epsilon": repr(budget.epsilon),
        "delta": repr(budget.delta),
        "window_days": budget.window_days,
        "authors": {
            key: {"epsilon": None if own.epsilon is None else repr(own.epsilon), "series": own.series}
            for key, own in budget.authors.items()
        },
    }
    case = {
        "before": record.to_bytes().decode(),
        "limits": limits,
        "task": task.id.hex(),
        "author": author.public.id,
        "closes": closes,
        "now": now,
        "curve": curve,
        **outcome,
    }
    return case, after


def _time(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def _charges() -> list[Document]:
    total = DeviceBudget(epsilon=2.2, delta=1e-6, window_days=100)
    by_author = replace(total, epsilon=100.0, authors={AUTHOR.public.id: AuthorBudget(epsilon=1.5)})
    few_series = replace(total, epsilon=100.0, authors={AUTHOR.public.id: AuthorBudget(series=2)})
    spring = {"closes": "2026-12-01", "author": AUTHOR}
    steps: list[tuple[str, DeviceBudget, dict[str, Any]]] = [
        ("the first report", total, {"curve": "one", "now": "2026-03-01", **spring}),
        ("the second", total, {"curve": "half, with a delta", "now": "2026-03-09", **spring}),
        ("one too many", total, {"curve": "one", "now": "2026-03-10", **spring}),
        ("a small one fits", total, {"curve": "a tenth", "now": "2026-03-10", **spring}),
        ("a task that is too large alone", total, {"curve": "beyond the samples", "now": "2026-03-10", **spring}),
        ("another limit of the author", by_author, {"curve": "one", "now": "2026-03-10", **spring}),
        ("another author", by_author, {"curve": "one", "now": "2026-03-10", **spring, "author": STRANGER}),
        ("another series", few_series, {"curve": "one", "now": "2026-03-11", **spring, "name": "Another"}),
        ("a third series", few_series, {"curve": "one", "now": "2026-03-12", **spring, "name": "A third"}),
        ("a clock that runs back", few_series, {"curve": "a tenth", "now": "2026-02-01", **spring}),
        ("a clock far ahead", total, {"curve": "one", "now": "2026-12-31", "closes": "2026-04-01", "author": AUTHOR}),
        ("after the window", total, {"curve": "one", "now": "2026-08-01", **spring}),
    ]
    record, cases = _empty(), []
    for name, budget, options in steps:
        case, record = _charge(record, budget, **options)
        cases.append({"name": name, **case})
    return cases


def _damaged() -> list[Document]:
    good = _charges()[0]["after"]
    changes = {
        "a shorter curve": good.replace('"curve":"', '"curve":"AAAA'),
        "another day": good.replace("2026-03-01", "2026-03-02"),
        "another key": good.replace('"key":"', '"key":"A'),
        "no entries": good.replace('"entries":[', '"entries":[],"more":['),
        "cut off": good[:-10],
        "nothing": "",
        "another version": good.replace('"version":1', '"version":2'),
    }
    return [{"name": name, "content": content} for name, content in changes.items()]
