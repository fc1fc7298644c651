"""Test vectors of randomizers: the exact pmf of a report, for every protocol of tasks with small parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from shuffledp.errors import ConditionError
from shuffledp.messages import MessageFormat
from shuffledp.protocols.documents import from_document
from shuffledp.randomness import Dyadic
from vector_files import Document
from vector_files.cases import CASES, Case

TOLERANCE = "1e-05"
"""Relative, of numbers that are rounded to six digits; and 1e-12 where that is less."""
_EPSILONS = ("0.5", "1.0", "2.0")
_NEXT_TO_NOTHING = 1e-12
_FIRST = 6  # masses of a share that are listed

Codes = tuple[int, ...]
"""Messages by their codes, sorted."""
Pmf = dict[Codes, Fraction]
Part = tuple[Codes, Fraction, Dyadic]
"""Messages that are sent together, and shape and ratio of the number of their copies in one report."""


def randomizer_file() -> Document:
    """The content of randomizers.json."""
    return {
        "about": "Protocols with small parameters and the exact law of their reports. Most hide far too little.",
        "tolerance": TOLERANCE,
        "randomizers": [case_document(case) for case in CASES],
    }


def six_digits(number: float) -> str:
    """Rounded to the digits that do not depend on the machine; a negligible number becomes 0."""
    return repr(float(f"{number:.5e}")) if number >= _NEXT_TO_NOTHING else "0.0"


def case_document(case: Case) -> Document:
    """The parameters of a case, what follows from them, and the pmfs of its reports."""
    content = {"version": 1, "protocol": case.protocol, "parameters": case.parameters}
    protocol: Any = from_document(content)
    form: MessageFormat = protocol.message_format
    most = protocol.cost.max_messages_per_user
    made: Document = {
        "name": f"{case.protocol}, {case.name}",
        "protocol": content,
        "message_format": {"bounds": [hex(bound) for bound in form.bounds], "flags": form.flags, "size": form.size},
        "messages_per_report": case.messages_per_report if most is None else most,
        "capped": most is None,
        "guarantee": guarantee_of(protocol),
    }
    parts = _parts(protocol)
    if parts:
        made["shares"] = [_share(form, part, exact=bool(case.values)) for part in parts]
    return made | {"reports": [_report(case, protocol, value, parts) for value in case.values]}


def guarantee_of(protocol: Any) -> Document | None:
    """The values derived from the parameters, without the cap; None if no theorem covers them."""
    try:
        guarantee = protocol.guarantee
    except ConditionError:
        return None
    local = guarantee.local_epsilon
    return {
        "honest_users": guarantee.honest_users,
        "local_epsilon": six_digits(local) if math.isfinite(local) else None,
        "deltas": {epsilon: six_digits(guarantee.delta_at(float(epsilon))) for epsilon in _EPSILONS},
    }


def _report(case: Case, protocol: Any, value: int | str, parts: tuple[Part, ...]) -> Document:
    text = protocol.question == "strings"
    index = value if isinstance(value, int) else protocol.domain.encode(value if text else float(value))
    form: MessageFormat = protocol.message_format
    made: Document = {"value": value}
    if protocol.question == "sum":
        made["levels"] = {str(level): _text(share) for level, share in _levels(protocol, index).items()}
    if protocol.question == "quantiles":
        made["bin"] = index
    if text:
        length, word = protocol.tree.word(index)
        made |= {"length": length, "word": hex(word), "buckets": protocol.tree.cells([(length, word)])[0].tolist()}
    if case.messages_per_report is not None:
        pmf, chance = _capped(own_messages(protocol, index), parts, case.messages_per_report)
        return made | {"chance_of_more": _text(chance), "law": listed(pmf, form)}
    if protocol.name != "split-and-mix":
        return made | {"law": listed(_counted(protocol.report_pmf(index)), form)}
    return made | ({"law": listed(_split(protocol, index), form)} if protocol.share == 1 else {})


def _counted(pmf: Mapping[tuple[int, ...], Any]) -> Pmf:
    """The pmf of the protocol, with copies of each code expanded."""
    if not all(isinstance(mass, (int, Fraction)) for mass in pmf.values()):
        raise TypeError("This distribution is not exact.")
    found: Pmf = {}
    for copies, mass in pmf.items():
        codes = tuple(code for code, count in enumerate(copies) for _ in range(count))
        found[codes] = found.get(codes, Fraction(0)) + mass
    return found


def listed(pmf: Pmf, form: MessageFormat) -> dict[str, str]:
    """Packed messages in hexadecimal, sorted, with their probability."""
    if sum(pmf.values()) != 1:
        raise ValueError(f"The probabilities add up to {sum(pmf.values())}.")
    packed = [row.tobytes().hex() for row in form.pack(form.message(np.arange(form.codes)))]
    listed = {" ".join(sorted(packed[code] for code in codes)): _text(mass) for codes, mass in pmf.items() if mass}
    return dict(sorted(listed.items()))


def _text(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _parts(protocol: Any) -> tuple[Part, ...]:
    """The negative binomial noise of one report, if it has any."""
    if protocol.name == "correlated-noise":
        flood = getattr(protocol, "flood", protocol)
        honest = protocol.target.honest_users
        found: list[Part] = []
        for cell in range(protocol.message_format.codes // 2):
            plus, minus = 2 * cell, 2 * cell + 1
            found += [((sign,), Fraction(1, honest), protocol.ratio) for sign in (plus, minus)]
            found.append(((plus, minus), flood.flood_shape / honest, flood.flood_ratio))
        return tuple(found)
    if protocol.name == "almost-central":
        honest = protocol.target.honest_users
        staying = [((sign,), Fraction(1), protocol.noise.ratio) for sign in (1, -1)]
        atoms = [(atom.members, shape, ratio) for atom, shape, ratio in protocol.noise.flooding]
        lowest = _lowest(protocol)
        return tuple(
            (tuple(sorted(member - lowest for member in members)), shape / honest, ratio)
            for members, shape, ratio in (*staying, *atoms)
        )
    if protocol.name == "split-and-mix":
        return (((), protocol.share, protocol.ratio),)
    return ()


def _lowest(protocol: Any) -> int:
    return int(min(-1, *(min(atom.members) for atom, _, _ in protocol.noise.flooding)))


def own_messages(protocol: Any, value: Any) -> Pmf:
    """The distribution of the messages other than noise."""
    if protocol.name == "almost-central":
        return {(level + 1 - _lowest(protocol),): share for level, share in _levels(protocol, value).items()}
    if protocol.question == "histogram":
        return {(2 * value,): Fraction(1)}
    if protocol.question == "quantiles":
        return {tuple(2 * node for node in protocol.tree.nodes_of(np.array([value]))[0].tolist()): Fraction(1)}
    if protocol.encoding == "unary":
        return {(0,) * value: Fraction(1)}
    return {(1 - value,): Fraction(1)}


def _levels(protocol: Any, place: float) -> dict[int, Fraction]:
    """The distribution of the level to which a position in the interval is rounded."""
    levels = {"cheu": "bits", "duchi": ""}.get(protocol.name, "levels")
    number = getattr(protocol, levels) if levels else 1
    scaled = place * number
    if levels and protocol.domain.steps is not None and number % protocol.domain.steps == 0:
        scaled = round(scaled)
    lower = math.floor(scaled)
    rest = Fraction(scaled) - lower
    return {level: share for level, share in ((lower, 1 - rest), (lower + 1, rest)) if share}


def _capped(own: Pmf, parts: Iterable[Part], most: int) -> tuple[Pmf, Fraction]:
    """The distribution of a report given that it is not longer than the cap, and the probability that it is longer."""
    pmf = own
    for codes, shape, ratio in parts:
        masses = masses_of_share(shape, ratio, most + 1)
        longer: Pmf = {}
        for (before, chance), (copies, mass) in product(pmf.items(), enumerate(masses)):
            if len(before) + copies * len(codes) <= most:
                both = tuple(sorted(before + copies * codes))
                longer[both] = longer.get(both, Fraction(0)) + chance * mass
        pmf = longer
    total = sum(pmf.values(), start=Fraction(0))
    return {codes: mass / total for codes, mass in pmf.items()}, 1 - total


def _split(protocol: Any, place: float) -> Pmf:
    """Geometric noise modulo the modulus, and all ways to split what is left; of no other noise it is a fraction."""
    modulus, ratio = protocol.modulus, protocol.ratio.fraction
    one_sided = [(1 - ratio) * ratio**k / (1 - ratio**modulus) for k in range(modulus)]
    noisy = dict.fromkeys(range(modulus), Fraction(0))
    levels = _levels(protocol, place).items()
    for (level, share), (plus, p), (minus, q) in product(levels, enumerate(one_sided), enumerate(one_sided)):
        noisy[(level + plus - minus) % modulus] += share * p * q
    pmf: Pmf = {}
    for shares in product(range(modulus), repeat=protocol.messages):
        codes = tuple(sorted(shares))
        mass = noisy[sum(shares) % modulus] / modulus ** (protocol.messages - 1)
        pmf[codes] = pmf.get(codes, Fraction(0)) + mass
    return pmf


def _share(form: MessageFormat, part: Part, *, exact: bool) -> Document:
    """One negative binomial number: its mean, its variance, and its first probabilities if they are rational."""
    codes, shape, ratio = part
    messages = form.pack(form.message(np.array(codes, dtype=np.int64)))
    odds = ratio.fraction / ratio.complement.fraction
    return {
        "messages": sorted(row.tobytes().hex() for row in messages),
        "shape": _text(shape),
        "ratio": _text(ratio.fraction),
        "probabilities": [_text(mass) for mass in masses_of_share(shape, ratio, _FIRST)] if exact else [],
        "mean": _text(shape * odds),
        "variance": _text(shape * odds / ratio.complement.fraction),
    }


def masses_of_share(shape: Fraction, ratio: Dyadic, length: int) -> list[Fraction]:
    """Pr[K = k] = C(k + shape - 1, k) (1 - ratio)^shape ratio^k for k below the length."""
    masses = [_power(ratio.complement.fraction, shape)]
    for k in range(length - 1):
        masses.append(masses[-1] * ratio.fraction * (k + shape) / (k + 1))
    return masses


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """The exact power, which must be a fraction."""
    root = Fraction(*(round(part ** (1 / exponent.denominator)) for part in (base.numerator, base.denominator)))
    if root**exponent.denominator != base:
        raise ValueError(f"{base} to the power of {exponent} is not a fraction.")
    return root**exponent.numerator
