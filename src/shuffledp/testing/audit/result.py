"""The result of an audit: lower bounds on epsilon and the claim, as a sentence, JSON and a figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shuffledp.figures import curves
from shuffledp.privacy.audit import Evidence
from shuffledp.privacy.guarantee import Guarantee

_OTHER_DELTAS = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Finding:
    """One event, the data sets, and how often it occurred under each."""

    event: str
    data_sets: str
    evidence: Evidence


@dataclass(frozen=True)
class AuditPoint:
    """The lower bound on epsilon and the claimed epsilon at one delta."""

    delta: float
    epsilon_at_least: float
    epsilon_claimed: float

    @property
    def exposed(self) -> bool:
        """Whether the lower bound exceeds the claim."""
        return self.epsilon_at_least > self.epsilon_claimed

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; an infinite claim becomes null."""
        claimed = self.epsilon_claimed if math.isfinite(self.epsilon_claimed) else None
        return {"delta": self.delta, "epsilon_at_least": self.epsilon_at_least, "epsilon_claimed": claimed}


@dataclass(frozen=True)
class AuditResult:
    """The result of ``audit``: lower bounds on epsilon that were measured, and the claimed guarantee.

    ``exposed`` says whether a bound exceeds the claim; ``sentence()`` is the result in words. ``protocol``,
    ``question`` and ``model`` name what was audited, ``guarantee`` is its claim at ``delta``, ``findings`` are the
    events with their bounds, from ``trials`` rounds under each data set, which hold together with probability
    ``confidence``. ``planted`` describes a planted fault.
    """

    protocol: str
    question: str
    model: str
    guarantee: Guarantee
    delta: float
    confidence: float
    """The probability that all bounds hold simultaneously."""
    trials: int
    """Rounds under each of the two data sets, not counting training rounds."""
    findings: tuple[Finding, ...]
    planted: str = ""
    """A description of the planted fault."""

    @property
    def epsilon_at_least(self) -> float:
        """The lower bound at the audited delta."""
        return self.points[0].epsilon_at_least

    @property
    def epsilon_claimed(self) -> float:
        """The claimed epsilon at the audited delta."""
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
        """The event with the largest bound at the audited delta, or at the delta at which the claim fails."""
        return self._best(self._worst.delta)

    def delta_at(self, epsilon: float) -> float:
        """The lower bound on delta at this epsilon."""
        return max(finding.evidence.delta_at(epsilon) for finding in self.findings)

    def sentence(self) -> str:
        """The result as a sentence."""
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
        """A figure of the claimed and the audited curve, as .png, .svg or .html."""
        widest = 1.15 * max([1e-3, self._finite_claim(), *(point.epsilon_at_least for point in self.points)])
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
        """The point at the first delta at which the claim fails, else at the audited delta."""
        return next((point for point in self.points if point.exposed), self.points[0])

    def _finite_claim(self) -> float:
        return self.epsilon_claimed if math.isfinite(self.epsilon_claimed) else 0.0


def _claimed(guarantee: Guarantee, delta: float) -> float:
    return guarantee.epsilon if delta == guarantee.delta else guarantee.epsilon_at(delta)
