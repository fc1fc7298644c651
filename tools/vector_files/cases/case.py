"""The data type of a randomizer case, and functions to write cases with."""

from __future__ import annotations

from dataclasses import dataclass

from vector_files import Document


@dataclass(frozen=True)
class Case:
    """A protocol with parameters, and the values whose reports are listed."""

    name: str
    protocol: str
    parameters: Document
    values: tuple[int | str, ...]
    messages_per_report: int | None = None
    """The maximum number of messages per report, for protocols without one of their own."""


def over(numerator: int, bits: int) -> Document:
    """The probability numerator / 2^bits."""
    return {"numerator": numerator if numerator < 1 << 53 else hex(numerator), "bits": bits}


def terms(users: int, epsilon: str, delta: str, honest_fraction: str = "1.0") -> Document:
    """The target of a protocol: users, epsilon, delta, honest fraction."""
    return {
        "users": users,
        "epsilon": epsilon,
        "delta": delta,
        "honest_fraction": honest_fraction,
        "calibration": "given",
    }


def local(epsilon: str) -> Document:
    """The target of a local protocol."""
    return terms(2, epsilon, "0.0")


def categories(size: int, *names: str) -> Document:
    """A domain with or without names."""
    return {"domain_size": size, "categories": list(names) or None}


def interval(lower: str, upper: str, *, whole: bool = False) -> Document:
    """The interval of the values of a sum."""
    return {"domain": {"lower": lower, "upper": upper, "whole": whole}}


NOISE = {"ratio": over(3, 2), "flood_shape": "3/1", "flood_ratio": over(3, 2)}
QUARTER, HALF, EIGHTH = over(1, 2), over(1, 1), over(1, 3)
USUAL = over(0xAC366F34B0CD4000, 64)
