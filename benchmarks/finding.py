"""The result of a benchmark: one measured number, its bound, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    what: str
    measured: str
    detail: str = ""
    bound: str = ""
    margin: float | None = None
    """How many times better than the bound; below 1 the bound is missed. None where there is no bound."""

    @property
    def verdict(self) -> str:
        """Whether the bound holds, and the margin."""
        if self.margin is None:
            return "-"
        return f"{'pass' if self.margin >= 1 else 'FAIL'} ({self.margin:.2g}x)"

    @property
    def missed(self) -> bool:
        """Whether there is a bound and it is violated."""
        return self.margin is not None and self.margin < 1


def at_least(what: str, ratio: float, bound: float, detail: str = "") -> Finding:
    """A ratio that must not be smaller than the bound."""
    return Finding(what, f"{ratio:.2f}x", detail, f">= {bound:g}x", ratio / bound)


def at_most(what: str, value: float, bound: float, unit: str, detail: str = "") -> Finding:
    """A quantity that must not be larger than the bound."""
    return Finding(what, f"{value:.3g} {unit}", detail, f"<= {bound:g} {unit}", bound / max(value, 1e-12))


def completed(what: str, finished: int, rounds: int, detail: str = "") -> Finding:
    """Rounds that must all finish, for instance with little memory."""
    return Finding(what, f"{finished} of {rounds}", detail, f"all {rounds}", finished / rounds)


def report(what: str, measured: str, detail: str = "") -> Finding:
    """A number without a bound."""
    return Finding(what, measured, detail)


def seconds(duration: float) -> str:
    """A duration in the unit that fits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if duration >= scale:
            return f"{duration / scale:.3g} {unit}"
    return f"{duration * 1e9:.3g} ns"


def megabytes(size: float) -> str:
    """An amount of memory."""
    return f"{size / 1e6:.0f} MB"
