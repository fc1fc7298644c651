"""One shuffled message per user: errors of histograms and counts against the lower bounds with constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shuffledp.figures import Curve, Panel
from shuffledp.lab.bounds.single_message import (
    any_histogram_error_lower,
    count_error_closed_form,
    count_error_lower,
    histogram_error_lower,
)
from shuffledp.lab.studies.checks import Check, at_least, at_most, quantile, rarely
from shuffledp.lab.studies.study import Figure, Settings, curve_figure
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.registry import find

EPSILON, DELTA, FAILURE = 1.0, 1e-6, 0.05
_USERS = 10_000
_MANY = 1_000_000
_HISTOGRAMS = {"shuffled-k-rr": "one message", "solh": "one message", "cheu": "a bit for each category"}
_MAX_MEASURED = 1_000
_EXPONENTS = (10, 30, 100, 300, 1000, 1200, 3000)

Row = dict[str, Any]


def histograms(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The largest error of a histogram, computed and measured, against the lower bounds."""
    rows: list[Row] = []
    checks: list[Check] = []
    sizes = settings.pick((10, 1_000), (10, 100, 1_000, 10_000))
    for size in settings.steps(sizes):
        any_model = any_histogram_error_lower(math.log(size), EPSILON, DELTA, users=_USERS, failure=FAILURE)
        one_message = histogram_error_lower(_USERS, math.log(size), EPSILON, DELTA, failure=FAILURE)
        for name in (*_HISTOGRAMS, "balcer-cheu"):
            protocol = find("histogram", name).calibrate(users=_USERS, epsilon=EPSILON, delta=DELTA, domain_size=size)
            assert isinstance(protocol, HistogramProtocol)  # noqa: S101
            error = protocol.expected_error(confidence=1 - FAILURE).max_error
            row: Row = {"protocol": name, "users": _USERS, "domain_size": size, "error": error}
            row |= {"any_model_at_least": any_model, "one_message_at_least": one_message, "measured": None}
            where = f"{name}, {_USERS:,} users, {size:,} categories"
            bound = max(any_model, one_message) if protocol.cost.max_messages_per_user == 1 else any_model
            checks.append(at_least("Largest error of a histogram, against its lower bound", where, error, bound))
            if size <= _MAX_MEASURED:
                errors = _rounds(protocol, size, settings.pick(20, 60), settings)
                row["measured"] = quantile(errors, 1 - FAILURE)[0]
                failures = int(np.count_nonzero(errors > error))
                checks.append(
                    rarely(
                        "The computed largest error is exceeded in 5 of 100 rounds at most",
                        where,
                        failures=failures,
                        rounds=len(errors),
                        at_most=FAILURE,
                    )
                )
            rows.append(row)
    return rows, checks


def _rounds(protocol: HistogramProtocol, size: int, rounds: int, settings: Settings) -> Any:
    counts = np.zeros(size, dtype=np.int64)
    counts[:2] = _USERS // 2
    return np.array(
        [
            np.abs(protocol.estimate(protocol.sample_tally(counts, source=settings.source)).counts - counts).max()
            for _ in range(rounds)
        ]
    )


def separation() -> tuple[list[Row], list[Check]]:
    """From which domain on no single-message histogram reaches the error of Theorem 12, which has several messages."""
    flat = find("histogram", "balcer-cheu").calibrate(
        users=_MANY, epsilon=EPSILON, delta=DELTA, domain_size=_MANY
    )  # as many categories as users: the error is the same in every larger domain
    error = flat.expected_error(confidence=1 - FAILURE).max_error
    rows = [
        {
            "log10_domain_size": exponent,
            "one_message_at_least": histogram_error_lower(
                _MANY, exponent * math.log(10), EPSILON, DELTA, failure=FAILURE
            ),
            "any_model_at_least": any_histogram_error_lower(
                exponent * math.log(10), EPSILON, DELTA, users=_MANY, failure=FAILURE
            ),
            "theorem_12": error,
        }
        for exponent in _EXPONENTS
    ]
    where = f"{_MANY:,} users, 10^{rows[-1]['log10_domain_size']} categories"
    return rows, [
        at_most(
            "Theorem 12 errs less than any single-message histogram", where, error, rows[-1]["one_message_at_least"]
        )
    ]


def counts(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The error of a single-message count against its lower bound, over delta."""
    rows: list[Row] = []
    checks: list[Check] = []
    for delta in settings.steps(settings.pick((1e-3, 1e-9), (1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12))):
        bound = count_error_lower(_MANY, EPSILON, delta)
        protocol = find("count", "cheu").calibrate(users=_MANY, epsilon=EPSILON, delta=delta)
        assert isinstance(protocol, CountProtocol)  # noqa: S101
        error = protocol.expected_error().rmse
        rows.append(
            {
                "delta": delta,
                "users": _MANY,
                "rmse": error,
                "at_least": bound,
                "closed_form": count_error_closed_form(_MANY, EPSILON, delta),
            }
        )
        checks.append(
            at_least(
                "Single-message count: error against Omega(sqrt(log(1/delta))) with its constant",
                f"{_MANY:,} users, epsilon {EPSILON:g}, delta {delta:g}",
                error,
                bound,
            )
        )
    return rows, checks


def histogram_figure(rows: list[Row], separated: list[Row]) -> Figure:
    """Largest errors against the size of the domain, and the bounds in domains that cannot be listed."""
    curves = []
    for name in (*_HISTOGRAMS, "balcer-cheu"):
        chosen = [row for row in rows if row["protocol"] == name]
        curves.append(Curve(name, [(row["domain_size"], row["error"]) for row in chosen], "computed"))
    one = [row for row in rows if row["protocol"] == "solh"]
    curves.append(
        Curve("any model, lower bound", [(row["domain_size"], row["any_model_at_least"]) for row in one], "formula")
    )
    far = [
        Curve("balcer-cheu", [(row["log10_domain_size"], row["theorem_12"]) for row in separated], "computed"),
        Curve(
            "one message, lower bound",
            [(row["log10_domain_size"], row["one_message_at_least"]) for row in separated],
            "formula",
        ),
        Curve(
            "any model, lower bound",
            [(row["log10_domain_size"], row["any_model_at_least"]) for row in separated],
            "formula",
        ),
    ]
    return curve_figure(
        "Left: largest error of histograms against the number of categories, far above the lower bound of any model. "
        "Right: the lower bound for one message grows with the logarithm of the domain and passes the flat error of "
        "Theorem 12.",
        panels_shown=[
            Panel(f"{_USERS:,} users, against d", curves),
            Panel(f"{_MANY:,} users, against log10(d)", far),
        ],
        title="Histograms of one shuffled message: errors and lower bounds",
        x_title="categories d, or log10(d)",
        y_title="largest error (users)",
        caption=[
            f"epsilon = {EPSILON:g}, delta = {DELTA:g}; the error that 95 of 100 rounds stay below. Dashed: proven "
            "lower bounds.",
            "cheu sends a bit for each category, balcer-cheu about a message for each: several messages.",
        ],
        name="one-message",
        size=(340, 320),
    )


def count_figure(rows: list[Row]) -> Figure:
    """The error of a single-message count against delta."""
    ordered = rows[::-1]
    return curve_figure(
        "Error of a count of one shuffled message against delta, and its lower bound: both grow like the square root "
        "of the logarithm of 1/delta.",
        panels_shown=[
            Panel(
                "",
                [
                    Curve("cheu (one message)", [(row["delta"], row["rmse"]) for row in ordered], "computed"),
                    Curve("lower bound", [(row["delta"], row["at_least"]) for row in ordered], "formula"),
                ],
            )
        ],
        title="Counts of one shuffled message: the price of a small delta",
        x_title="delta",
        y_title="root mean squared error (users)",
        caption=[f"{_MANY:,} users, epsilon = {EPSILON:g}. Dashed: no single-message protocol errs less."],
        name="count",
        size=(520, 320),
    )
