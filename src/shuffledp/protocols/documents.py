"""Conversion of protocols to JSON documents and back, with exact parameters.

A dyadic probability becomes {"numerator", "bits"}, a fraction "a/b", and every other number itself. When reading, a
number may also be a string: the shortest decimal of a double, or an integer in hexadecimal. So a device rebuilds
exactly the protocol that was planned, and recomputes its guarantee.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import types
import typing
from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from shuffledp.domain import Categories, Interval, Strings
from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.randomness.dyadic import Dyadic

if TYPE_CHECKING:
    from shuffledp.protocols.protocol import Protocol

VERSIONS = (1, 2, 3)
"""Versions of the parameters of a protocol, of which earlier programs do not know the later ones: 2 if they are
clusters of pairs or graded atoms, 3 with carriers."""
MAX_BITS = 128
"""Maximum number of bits of a probability, of either part of a fraction, and of an integer."""
MAX_ENTRIES = 1 << 17
"""Maximum length of a list in a document; no protocol that a task can have needs more than half of it."""
_MANTISSA_BITS = 53
_FRACTION = re.compile(r"-?[0-9]{1,39}/[0-9]{1,39}")  # 2^128 has 39 digits
_STATED_BY_GUARANTEE = ("epsilon", "delta", "calibration")


def to_document(protocol: Protocol) -> dict[str, Any]:
    """The protocol as a JSON-compatible dictionary of its name and exact parameters; see ``from_document``.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=10_000, epsilon=1.0, delta=1e-6)
    >>> sdp.from_document(sdp.to_document(protocol)) == protocol
    True
    """
    return {
        "version": protocol.document_version,
        "protocol": f"{protocol.question}/{protocol.name}",
        "parameters": protocol.document_of(_fields(protocol)),
    }


def from_document(document: Mapping[str, Any]) -> Protocol:
    """The protocol of a ``document`` made by ``to_document``; anything missing, unknown or out of range is refused."""
    from shuffledp.protocols.registry import find_qualified

    if not isinstance(document, Mapping) or set(document) != {"version", "protocol", "parameters"}:
        raise ParameterError("A protocol's document has the keys version, protocol and parameters.")
    version = document["version"]
    if isinstance(version, bool):
        raise ParameterError(f"The version of a protocol's document must be an integer, not {version!r}.")
    if version not in VERSIONS:
        raise ParameterError(
            f"This document has version {version!r}; this program reads {' and '.join(map(str, VERSIONS))}.",
            reason="version",
        )
    kind = find_qualified(str(document["protocol"]))
    parameters = document["parameters"]
    if not isinstance(parameters, Mapping):
        raise ParameterError(f"The parameters of {kind.__name__} must be an object, not {parameters!r}.")
    protocol: Protocol = _build(kind, kind.fields_of(parameters))
    if version != protocol.document_version:
        raise ParameterError(
            f"The parameters of {kind.__name__} are of version {protocol.document_version}, not {version}.",
            reason="version",
        )
    return protocol


def public_parameters(protocol: Protocol) -> dict[str, Any]:
    """The parameters for people: probabilities also as decimal numbers, without names of categories."""
    shown: dict[str, Any] = {}
    for field in (field for field in dataclasses.fields(protocol) if field.init):
        value = getattr(protocol, field.name)
        if isinstance(value, Categories) or value is None:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, Dyadic):
            shown |= {key: part for key, part in _displayed_fields(value).items() if key not in _STATED_BY_GUARANTEE}
        else:
            shown[field.name] = _displayed(value)
    return shown


def _displayed_fields(value: Any) -> dict[str, Any]:
    return {field.name: _displayed(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _displayed(value: Any) -> Any:
    """The value of a field for people: as JSON, a probability also as a decimal number."""
    if isinstance(value, Dyadic):
        return {"value": float(value), "numerator": value.numerator, "bits": value.bits}
    return _encoded(value)


def _fields(value: Any) -> dict[str, Any]:
    """The encoded fields, by their names in documents."""
    return {_name(field): _encoded(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}


def _name(field: dataclasses.Field[Any]) -> str:
    """The field's name in documents, which is stable even if the field is renamed."""
    return str(field.metadata.get("document", field.name))


def _encoded(value: Any) -> Any:
    """The value of a field as JSON."""
    if isinstance(value, Dyadic):
        return {"numerator": value.numerator, "bits": value.bits}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Categories):
        return list(value.names)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return [_encoded(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ParameterError(f"A parameter of type {type(value).__name__} cannot be written as JSON.")


def _build(kind: type[Any], content: Any) -> Any:
    """An object of the dataclass from its encoded fields."""
    if not isinstance(content, Mapping):
        raise ParameterError(f"The parameters of {kind.__name__} must be an object, not {content!r}.")
    hints = _types(typing.cast("Hashable", kind))
    fields = {_name(field): field.name for field in dataclasses.fields(kind) if field.init}
    if set(content) != set(fields):
        wrong = ", ".join(sorted(set(content) ^ set(fields)))
        raise ParameterError(f"The parameters of {kind.__name__} are missing or unknown: {wrong}.")
    try:
        return kind(**{fields[name]: _decoded(hints[fields[name]], value, name) for name, value in content.items()})
    except ShuffledpError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ParameterError(f"The parameters of {kind.__name__} cannot be read: {error}.") from None


@lru_cache(maxsize=256)
def _types(kind: Any) -> dict[str, Any]:
    """The types of the fields; cached, because evaluating annotations is slow."""
    return typing.get_type_hints(kind, localns=_FIELD_TYPES)


def _decoded(hint: Any, value: Any, name: str) -> Any:
    """The value of the field with this type hint, from its JSON value."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None:
        if type(None) in choices:
            return None
        raise ParameterError(f"The parameter {name} is missing.")
    for choice in choices:
        if choice is not type(None) and (len(choices) == 1 or _may_be(choice, value)):
            return _converted(choice, value, name)
    raise ParameterError(f"The parameter {name} cannot be read.")


def _may_be(kind: Any, value: Any) -> bool:
    """Whether the value has the keys of the dataclass; another type is decided by its own conversion."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, Mapping)):
        return True
    return set(value) == {_name(field) for field in dataclasses.fields(kind) if field.init}


def _converted(kind: Any, value: Any, name: str) -> Any:
    """The JSON value as an object of the type; ParameterError if it is not one."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)
        item_type = inner[0] if len(inner) == 2 and inner[1] is Ellipsis else None
        if isinstance(value, list) and len(value) > MAX_ENTRIES:
            raise ParameterError(f"The parameter {name} has {len(value):,} entries, more than {MAX_ENTRIES:,}.")
        if not isinstance(value, list) or (item_type is None and len(value) != len(inner)):
            expected = "a list" if item_type else f"a list of {len(inner)}"
            raise ParameterError(f"The parameter {name} must be {expected}, not {value!r}.")
        return tuple(_decoded(item_type or inner[position], part, name) for position, part in enumerate(value))
    if kind is Fraction and isinstance(value, str):
        if not _FRACTION.fullmatch(value):  # Fraction("1e99999999") would be accepted and take hours
            raise ParameterError(f"The parameter {name} must be a fraction like 3/4, not {value[:60]!r}.")
        fraction = Fraction(value)
        for part in map(int, value.split("/")):
            _check_number(part, name)
        return fraction
    if kind is Categories and isinstance(value, list):
        return Categories.of(value)
    if kind is Dyadic:
        return _probability(value, name)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _build(kind, value)
    if isinstance(value, str) and kind in (int, float):
        value = _from_string(kind, value, name)
    if kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(value, name)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise ParameterError(f"The parameter {name} must be {getattr(kind, '__name__', kind)}, not {value!r}.")


def _probability(content: Any, name: str) -> Dyadic:
    """A probability over a power of two such that it, or one minus it, is exact as a double.

    Only the smaller of the two needs to be exact: accountants use both as separate numbers, and the larger one is
    correct to one unit in the last place.
    """
    if isinstance(content, Mapping) and isinstance(bits := content.get("bits"), int) and bits > MAX_BITS:
        raise ParameterError(f"The probability {name} has {bits:,} bits; a document has at most {MAX_BITS}.")
    probability: Dyadic = _build(Dyadic, content)
    sides = probability.numerator, probability.complement.numerator
    if min(map(_significant_bits, sides)) > _MANTISSA_BITS:
        raise ParameterError(
            f"The probability {name}, near {float(probability):.6g}, is not exact as a double: of its numerator and "
            f"2^bits minus its numerator, at least one must have at most {_MANTISSA_BITS} significant bits."
        )
    return probability


def _significant_bits(number: int) -> int:
    return number.bit_length() - ((number & -number).bit_length() - 1) if number else 0


def _check_number(number: float, name: str) -> None:
    """Reject infinite, NaN and subnormal numbers, and integers of more than 128 bits."""
    if isinstance(number, int):
        if abs(number) > 1 << MAX_BITS:
            raise ParameterError(f"The parameter {name} has {number.bit_length():,} bits, more than {MAX_BITS}.")
    elif not (number == 0 or sys.float_info.min <= abs(number) < math.inf):
        raise ParameterError(f"The parameter {name} must be 0 or a normal finite number, not {number!r}.")


def _from_string(kind: Any, string: str, name: str) -> Any:
    """A number written as a string for other languages: shortest decimal, or hexadecimal for integers."""
    try:
        number: Any = int(string, 16) if kind is int else float(string)
    except ValueError:
        number = None
    if number is None or (hex(number) if kind is int else repr(number)) != string:
        raise ParameterError(f"The parameter {name} must be a number, not {string[:60]!r}.")
    return number


_FIELD_TYPES = {
    "Categories": Categories,
    "Interval": Interval,
    "Strings": Strings,
    "Dyadic": Dyadic,
    "Fraction": Fraction,
}
