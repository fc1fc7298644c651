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
    """The cap, where the protocol has no largest number of messages."""


def over(numerator: int, bits: int) -> Document:
    """The probability numerator / 2^bits."""
    return {"numerator": numerator if numerator < 1 << 53 else hex(numerator), "bits": bits}


def terms(users: int, epsilon: str, delta: str, honest_fraction: str = "1.0") -> Document:
    """The users, and a claim that holds."""
    return {
        "users": users,
        "epsilon": epsilon,
        "delta": delta,
        "honest_fraction": honest_fraction,
        "calibration": "given",
    }


def local(epsilon: str) -> Document:
    """The same of a protocol that is private for each user alone."""
    return terms(2, epsilon, "0.0")


def categories(size: int, *names: str) -> Document:
    """A domain with or without names."""
    return {"domain_size": size, "categories": list(names) or None}


def interval(lower: str, upper: str, *, whole: bool = False) -> Document:
    """The numbers of a sum."""
    return {"domain": {"lower": lower, "upper": upper, "whole": whole}}


NOISE = {"ratio": over(3, 2), "flood_shape": "3/1", "flood_ratio": over(3, 2)}
QUARTER, HALF, EIGHTH = over(1, 2), over(1, 1), over(1, 3)
USUAL = over(0xAC366F34B0CD4000, 64)
