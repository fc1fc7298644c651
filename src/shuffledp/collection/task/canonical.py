"""Canonical JSON: signed documents have exactly one encoding, the same in every language.

A document consists of objects, lists, strings, booleans, null and integers below 2^53. Keys are ASCII and sorted, there
is no white space, the encoding is UTF-8. Other numbers are strings: the shortest decimal that reads back as the same
double, or a large integer in hexadecimal (0x...).
"""

from __future__ import annotations

import json
import re
from typing import Any

from shuffledp.errors import ParameterError

LARGEST_NUMBER = (1 << 53) - 1
_MOST_DIGITS = len(str(-LARGEST_NUMBER))
_MAX_DEPTH = 32
_SURROGATE = re.compile("[\ud800-\udfff]")


def portable(value: Any) -> Any:
    """The value with every number that is not an integer below 2^53 as a string."""
    if isinstance(value, dict):
        return {key: portable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(part) for part in value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_NUMBER:
        return hex(value)  # converting to decimal takes quadratic time
    return value


def canonical(document: Any) -> bytes:
    """The canonical encoding of a document."""
    _check(document, 0)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def parse_canonical(content: bytes, *, max_bytes: int) -> Any:
    """The document of these bytes; refused unless they are its canonical encoding."""
    if len(content) > max_bytes:
        raise ParameterError(f"The document has {len(content):,} bytes; at most {max_bytes:,} are read.")
    try:
        document = json.loads(
            content.decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_refuse,
            parse_int=_integer,
        )
    except RecursionError:
        raise ParameterError("The document is nested too deeply.") from None
    except ValueError as error:
        raise ParameterError(f"The document is not valid JSON of the expected form: {error}.") from None
    if canonical(document) != content:
        raise ParameterError(
            "The document is not in canonical form: sorted keys, UTF-8, no white space before, inside or after it."
        )
    return document


def _check(value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ParameterError("The document is nested too deeply.")
    if isinstance(value, dict):
        for key, part in value.items():
            if not (isinstance(key, str) and key.isascii()):
                raise ParameterError(f"A key of a signed document must be an ASCII string, not {key!r}.")
            _check(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            _check(part, depth + 1)
    elif isinstance(value, str):
        if _SURROGATE.search(value):
            raise ParameterError("A string in a signed document is not valid Unicode.")
    elif isinstance(value, int):
        if abs(value) > LARGEST_NUMBER:
            raise ParameterError(f"The number {value} is too large for a signed document; write it as a string.")
    elif value is not None:
        raise ParameterError(f"A signed document cannot contain {type(value).__name__}.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice")
    return document


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} characters; write it as a string")
    return int(digits)


def _refuse(number: str) -> Any:
    raise ValueError(f"the number {number} is not allowed; write it as a string")
