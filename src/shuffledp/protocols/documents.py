"""A protocol as a JSON document and back: every public parameter, exactly.

Dyadic probabilities become {"numerator", "bits"}, fractions "a/b", and every other number itself (or, read only, its
text: the shortest decimal of a double, a whole number in hexadecimal), so that a device rebuilds just the protocol
that was planned, and recomputes its guarantee.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from shuffledp.domain import Categories, Interval
from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.randomness.dyadic import Dyadic

__all__ = ["from_document", "public_parameters", "to_document"]

VERSION = 1
_FRACTION = re.compile(r"-?[0-9]{1,4000}/[0-9]{1,4000}")
_SAID_ELSEWHERE = ("epsilon", "delta", "calibration")


def to_document(protocol: Any) -> dict[str, Any]:
    """The protocol by name, with its exact parameters."""
    return {
        "version": VERSION,
        "protocol": f"{protocol.question}/{protocol.name}",
        "parameters": _fields(protocol),
    }


def from_document(document: Mapping[str, Any]) -> Any:
    """The protocol that ``to_document`` wrote; anything missing, unknown or out of range is refused."""
    from shuffledp.protocols.registry import find_qualified

    if not isinstance(document, Mapping) or set(document) != {"version", "protocol", "parameters"}:
        raise ParameterError("A protocol's document has the keys version, protocol and parameters.")
    if document["version"] != VERSION:
        raise ParameterError(
            f"This document has version {document['version']!r}; this program reads {VERSION}.", reason="version"
        )
    kind: Any = find_qualified(str(document["protocol"]))
    return _build(kind, document["parameters"])


def public_parameters(protocol: Any) -> dict[str, Any]:
    """The parameters for a person to read: probabilities also as decimal numbers, no names of categories."""
    shown: dict[str, Any] = {}
    for field in (field for field in dataclasses.fields(protocol) if field.init):
        value = getattr(protocol, field.name)
        if isinstance(value, Categories) or value is None:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, Dyadic):
            shown |= {
                key: part for key, part in _shown(value).items() if key not in ("epsilon", "delta", "calibration")
            }
        else:
            shown[field.name] = _plain(value)
    return shown


def _shown(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Dyadic):
        return {"value": float(value), "numerator": value.numerator, "bits": value.bits}
    return _encoded(value)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _encoded(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}


def _encoded(value: Any) -> Any:
    if isinstance(value, Dyadic):
        return {"numerator": value.numerator, "bits": value.bits}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Categories):
        return list(value.names)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return [_encoded(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ParameterError(f"A parameter of type {type(value).__name__} has no form in JSON.")


def _build(kind: Any, content: Any) -> Any:
    if not isinstance(content, Mapping):
        raise ParameterError(f"The parameters of {kind.__name__} must be an object, not {content!r}.")
    hints = typing.get_type_hints(kind, localns=_NAMES)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    if set(content) != set(fields):
        wrong = ", ".join(sorted(set(content) ^ set(fields)))
        raise ParameterError(f"The parameters of {kind.__name__} are missing or unknown: {wrong}.")
    try:
        return kind(**{name: _decoded(hints[name], value, name) for name, value in content.items()})
    except ShuffledpError:
        raise
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ParameterError(f"The parameters of {kind.__name__} cannot be read: {error}.") from None


def _decoded(hint: Any, value: Any, name: str) -> Any:
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None:
        if type(None) in choices:
            return None
        raise ParameterError(f"The parameter {name} is missing.")
    for choice in choices:
        if choice is not type(None):
            return _as(choice, value, name)
    raise ParameterError(f"The parameter {name} cannot be read.")


def _as(kind: Any, value: Any, name: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)
        each = inner[0] if len(inner) == 2 and inner[1] is Ellipsis else None
        if not isinstance(value, list) or (each is None and len(value) != len(inner)):
            raise ParameterError(
                f"The parameter {name} must be a list of {'some' if each else len(inner)}, not {value!r}."
            )
        return tuple(_decoded(each or inner[place], part, name) for place, part in enumerate(value))
    if kind is Fraction and isinstance(value, str):
        if not _FRACTION.fullmatch(value):  # "1e99999999" would be one as well, and take hours
            raise ParameterError(f"The parameter {name} must be a fraction like 3/4, not {value[:60]!r}.")
        return Fraction(value)
    if kind is Categories and isinstance(value, list):
        return Categories.of(value)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value)
    if isinstance(value, str) and kind in (int, float):
        return _from_text(kind, value, name)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise ParameterError(f"The parameter {name} must be {getattr(kind, '__name__', kind)}, not {value!r}.")


def _from_text(kind: Any, text: str, name: str) -> Any:
    """A number as documents write it that must survive other languages: shortest decimal, or hexadecimal."""
    try:
        number: Any = int(text, 16) if kind is int else float(text)
    except ValueError:
        number = None
    if number is None or (hex(number) if kind is int else repr(number)) != text:
        raise ParameterError(f"The parameter {name} must be a number, not {text[:60]!r}.")
    return number


_NAMES = {"Categories": Categories, "Interval": Interval, "Dyadic": Dyadic, "Fraction": Fraction}
