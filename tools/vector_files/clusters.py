"""Test vectors of clustered pairs: version 2 of the parameters of ``correlated-noise``, with the pmf of reports."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from typing import Any

from shuffledp.messages import MessageFormat
from shuffledp.protocols.documents import from_document
from vector_files import Document
from vector_files.cases.case import HALF, Case, categories, over, terms
from vector_files.randomizers import (
    TOLERANCE,
    Codes,
    Pmf,
    guarantee_of,
    listed,
    masses_of_share,
    own_messages,
    six_digits,
)

_THREE_QUARTERS = over(3, 2)
CASES = (
    Case(
        "signed, clusters of one to three pairs",
        "count/correlated-noise",
        {
            "terms": terms(2, "1.0", "0.9"),
            "ratio": _THREE_QUARTERS,
            "cluster_rate": "3/2",
            "clusters": [[1, 1, 3], [2, 3, 1]],
            "singles": "0/1",
            "encoding": "signed",
        },
        (0, 1),
        7,
    ),
    Case(
        "unary, clusters of two pairs",
        "count/correlated-noise",
        {
            "terms": terms(5, "1.0", "0.9", "0.4"),
            "ratio": _THREE_QUARTERS,
            "cluster_rate": "1/1",
            "clusters": [[2, 2, 5]],
            "singles": "0/1",
            "encoding": "unary",
        },
        (0, 1),
        5,
    ),
    Case(
        "two categories, clusters and singles",
        "histogram/correlated-noise",
        {
            "terms": terms(1, "1.0", "0.95"),
            "ratio": HALF,
            "cluster_rate": "5/4",
            "clusters": [[1, 1, 1], [3, 3, 2]],
            "singles": "1/3",
            **categories(2, "yes", "no"),
        },
        (0, 1),
        4,
    ),
    Case(
        "a single category, no singles",
        "histogram/correlated-noise",
        {
            "terms": terms(2, "1.0", "0.9"),
            "ratio": _THREE_QUARTERS,
            "cluster_rate": "2/1",
            "clusters": [[1, 2, 4294967296]],
            "singles": "0/1",
            **categories(1),
        },
        (0,),
        6,
    ),
    Case(
        "as calibrated",
        "count/correlated-noise",
        {
            "terms": terms(400, "1.0", "2e-06", "0.75"),
            "ratio": over(0xA33B993A39755800, 64),
            "cluster_rate": "2249/125",
            "clusters": [[8, 17, 1]],
            "singles": "0/1",
            "encoding": "signed",
        },
        (),
        300,
    ),
    Case(
        "as calibrated",
        "histogram/correlated-noise",
        {
            "terms": terms(400, "1.0", "2e-06", "0.75"),
            "ratio": over(0xA33B993A39755800, 64),
            "cluster_rate": "2097/125",
            "clusters": [[8, 17, 1]],
            "singles": "0/1",
            **categories(5),
        },
        (),
        300,
    ),
    Case(
        "with singles, as calibrated",
        "histogram/correlated-noise",
        {
            "terms": terms(400, "1.0", "2e-06"),
            "ratio": over(181, 8),
            "cluster_rate": "27/2",
            "clusters": [[3, 3, 222], [4, 4, 168], [5, 5, 493], [6, 6, 118]],
            "singles": "96/25",
            **categories(5),
        },
        (),
        100,
    ),
)


def cluster_file() -> Document:
    """The content of clusters.json."""
    return {
        "about": "Correlated noise with clusters of pairs, and the exact law of its reports. Most hide far too little.",
        "tolerance": TOLERANCE,
        "randomizers": [_document(case) for case in CASES],
    }


def _document(case: Case) -> Document:
    content = {"version": 2, "protocol": case.protocol, "parameters": case.parameters}
    protocol: Any = from_document(content)
    form: MessageFormat = protocol.message_format
    return {
        "name": f"{case.protocol}, {case.name}",
        "protocol": content,
        "message_format": {"bounds": [hex(bound) for bound in form.bounds], "flags": form.flags, "size": form.size},
        "messages_per_report": case.messages_per_report,
        "capped": True,
        "guarantee": guarantee_of(protocol),
        "chance_of_more": six_digits(protocol.chance_of_more_messages(case.messages_per_report)),
        "reports": [_report(case, protocol, value) for value in case.values],
    }


def _report(case: Case, protocol: Any, value: Any) -> Document:
    most = case.messages_per_report or 0
    pmf, too_long = capped(own_messages(protocol, value), protocol, most)
    return {"value": value, "chance_of_more": six_digits(too_long), "law": listed(pmf, protocol.message_format)}


def capped(own: Pmf, protocol: Any, most: int) -> tuple[Pmf, float]:
    """The distribution of a report given that it fits, and the probability that it does not.

    A Poisson number has probabilities m^k / k! times e^-m. The factor is the same in all of them, so that it cancels
    in the distribution given that the report fits; what is left are fractions.
    """
    sharers, flood = protocol.shares.planned, protocol.flood
    pmf, exponent = own, Fraction(0)
    for cell in range(protocol.message_format.codes // 2):
        plus, minus = 2 * cell, 2 * cell + 1
        for sign in (plus, minus):
            masses = masses_of_share(Fraction(1, sharers), protocol.ratio, most + 1)
            pmf = _added(pmf, (sign,), masses, most)
        groups = [((plus,), flood.singles)] if flood.singles else []
        groups += [((plus, minus) * size, rate) for size, rate in flood.rates]
        for codes, rate in groups:
            mean = rate / sharers
            pmf = _added(pmf, codes, [mean**k / math.factorial(k) for k in range(most + 1)], most)
            exponent += mean
    total = sum(pmf.values(), start=Fraction(0))
    return {codes: mass / total for codes, mass in pmf.items()}, 1 - float(total) * math.exp(-float(exponent))


def _added(pmf: Pmf, codes: Codes, masses: Iterable[Fraction], most: int) -> Pmf:
    """The pmf with a number of copies of these messages, as far as they fit."""
    longer: Pmf = {}
    for (before, chance), (copies, mass) in product(pmf.items(), enumerate(masses)):
        if len(before) + copies * len(codes) <= most:
            both = tuple(sorted(before + copies * codes))
            longer[both] = longer.get(both, Fraction(0)) + chance * mass
    return longer
