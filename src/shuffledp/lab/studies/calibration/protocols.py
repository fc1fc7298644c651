"""Error and messages of the other shuffled protocols, by the constants of their papers and by the tight calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shuffledp.domain import Interval
from shuffledp.errors import ConditionError
from shuffledp.lab.studies.checks import Check, at_most
from shuffledp.protocols.registry import PROTOCOLS

SETTING: dict[str, Any] = {"users": 1_000_000, "epsilon": 0.9, "delta": 1e-6}
"""A target at which the conditions of nearly all theorems hold."""
CATEGORIES = 100
_DOMAIN_OF_QUESTION: dict[str, dict[str, Any]] = {
    "count": {},
    "histogram": {"domain_size": CATEGORIES},
    "sum": {"domain": Interval(0.0, 1.0)},
}


def protocols_of_two_calibrations() -> Iterator[tuple[str, str]]:
    """Question and name of shuffled protocols for counts, histograms and sums that have the paper's constants too."""
    for question in _DOMAIN_OF_QUESTION:
        for name, kind in PROTOCOLS[question].items():
            if kind.trust == "shuffled" and "paper" in kind.calibrations:
                yield question, name


def protocol_row(question: str, name: str) -> dict[str, Any]:
    """Predicted error, messages and true delta by either calibration; None where the theorem does not hold."""
    row: dict[str, Any] = {"question": question, "protocol": f"{question}/{name}"}
    for calibration in ("tight", "paper"):
        try:
            row |= {f"{calibration}_{key}": value for key, value in _predicted(question, name, calibration).items()}
        except ConditionError:
            row |= {f"{calibration}_rmse": None, f"{calibration}_messages": None, f"{calibration}_true_delta": None}
    if row["paper_rmse"] is not None:
        row["rmse_ratio"] = row["paper_rmse"] / row["tight_rmse"]
        row["message_ratio"] = row["paper_messages"] / row["tight_messages"]
    return row


def _predicted(question: str, name: str, calibration: str) -> dict[str, float]:
    kind = PROTOCOLS[question][name]
    protocol = kind.calibrate(**SETTING, **_DOMAIN_OF_QUESTION[question], calibration=calibration)
    # counts that a threshold sets to 0 say little about the noise
    estimator = "unbiased" if "unbiased" in kind.estimators else ""
    return {
        "rmse": protocol.expected_error(estimator=estimator).rmse,
        "messages": protocol.cost.messages_per_user,
        "true_delta": protocol.guarantee.delta_at(SETTING["epsilon"]),
    }


def checks_of_protocol(row: dict[str, Any]) -> list[Check]:
    """Both calibrations are as private as claimed, and the tight one has no more error."""
    checks = []
    for calibration in ("tight", "paper"):
        where = f"{row['protocol']}, {calibration} noise"
        if row[f"{calibration}_rmse"] is not None:
            checks.append(at_most("The claimed delta holds", where, row[f"{calibration}_true_delta"], SETTING["delta"]))
    if row["paper_rmse"] is not None:
        claim = "No more error than by the paper's constants"
        checks.append(at_most(claim, row["protocol"], row["tight_rmse"], row["paper_rmse"] * (1 + 1e-12)))
    return checks
