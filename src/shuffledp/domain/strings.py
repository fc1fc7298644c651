r"""Domains of strings over a public alphabet, of which nobody lists the values.

An alphabet is written like ``a-z0-9_``: a range stands for its symbols in the order of their code points, and ``\-``
and ``\\`` are a hyphen and a backslash. ``lowercase``, ``hostname`` and ``bytes`` are names of alphabets; a backslash
before such a word spells it out as symbols. With ``bytes``, any text is a string of bytes, in UTF-8.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain.domain import Domain
from shuffledp.domain.values import as_sequence, displayed, is_missing
from shuffledp.errors import DomainError
from shuffledp.text_values import string_of

BYTES = "bytes"
PRESETS = {"lowercase": "a-z", "hostname": r"a-z0-9\-.", BYTES: BYTES}
"""Alphabets by name."""
MAX_SYMBOLS = 1 << 16
MAX_WORD_BITS = 512
"""Maximum bits of a word, the number of a string among the strings of its length."""
_MAX_LENGTH = 512
_LEAST_RANGE = 3
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHOWN = 40


@dataclass(frozen=True)
class Strings(Domain):
    r"""Strings of at most ``max_length`` symbols of a public ``alphabet``, such as ``a-z``, ``hostname`` or ``bytes``.

    Devices normalize a string before anything else: ``trim`` removes white space around it, ``nfc`` composes
    characters (Unicode NFC), ``case_fold`` removes differences of case. A string that is still outside the domain is
    refused, or counts as the empty string with ``other``, so that every user reports once.

    >>> words = sdp.Strings("a-z", 24, case_fold=True)
    >>> words.encode("B"), words.string(2)
    (2, 'b')
    >>> sdp.Strings(r"a-c\-", 8).symbols
    'abc-'
    """

    alphabet: str
    max_length: int
    trim: bool = False
    nfc: bool = False
    case_fold: bool = False
    other: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.alphabet, str):
            raise DomainError(f"An alphabet is a string such as 'a-z', not {self.alphabet!r}.")
        symbols = parse_alphabet(self.alphabet)
        object.__setattr__(self, "alphabet", BYTES if symbols is None else alphabet_pattern(symbols))
        length = self.max_length
        if not isinstance(length, (int, np.integer)) or isinstance(length, bool) or not 0 <= length <= _MAX_LENGTH:
            raise DomainError(f"max_length must be an integer from 0 to {_MAX_LENGTH}, not {length!r}.")
        object.__setattr__(self, "max_length", int(length))
        if self.word_bits(self.max_length) > MAX_WORD_BITS:
            longest = max(m for m in range(_MAX_LENGTH) if self.word_bits(m) <= MAX_WORD_BITS)
            raise DomainError(
                f"Strings of {length} symbols out of {self.radix:,} take {self.word_bits(self.max_length):,} bits, "
                f"more than {MAX_WORD_BITS}: give a max_length of at most {longest}, or hash longer values.",
                max_length=length,
            )

    @cached_property
    def symbols(self) -> str | None:
        """The symbols in their order; None for bytes."""
        return parse_alphabet(self.alphabet)

    @property
    def radix(self) -> int:
        """The number of symbols."""
        return 256 if self.symbols is None else len(self.symbols)

    def class_size(self, length: int) -> int:
        """The number of strings of this length."""
        return int(self.radix**length)

    def word_bits(self, length: int) -> int:
        """The number of bits of a word, the number of a string among the strings of this length."""
        return (self.class_size(length) - 1).bit_length()

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The index of the first string of each length, and the number of all strings."""
        return (0, *accumulate(self.class_size(length) for length in range(self.max_length + 1)))

    @property
    def size(self) -> int:
        """The number of strings."""
        return self._starts[-1]

    @property
    def description(self) -> str:
        """The values of the domain in a few words."""
        if self.symbols is None:
            return f"text of at most {self.max_length} bytes in UTF-8"
        return f"strings of at most {self.max_length} symbols of {self.alphabet!r}"

    def normalized(self, text: str) -> str:
        """The string as devices normalize it; it may still be outside the domain."""
        if self.trim:
            text = text.strip()
        if self.nfc or self.case_fold:
            text = unicodedata.normalize("NFC", text) if self.nfc else text
            text = text.casefold() if self.case_fold else text
            text = unicodedata.normalize("NFC", text) if self.nfc else text
        return text

    def find(self, value: object) -> int | None:
        """The index of a value: strings by length, then in the order of the alphabet; None if it is not in the domain.

        With ``other``, every string outside the domain has the index 0, that of the empty string.
        """
        text = _text_of(value)
        if text is None:
            return None
        number = self._number(self.normalized(text))
        return 0 if number is None and self.other else number

    def _number(self, text: str) -> int | None:
        """The index of a normalized string; None if it is too long or has other symbols."""
        if self.symbols is None:
            try:
                content = text.encode()
            except UnicodeEncodeError:  # a lone surrogate
                return None
            return None if len(content) > self.max_length else self._starts[len(content)] + int.from_bytes(content)
        if len(text) > self.max_length:
            return None
        if 2 <= self.radix <= len(_DIGITS):
            digits = text.translate(self._digits)
            if "!" in digits:
                return None
            return self._starts[len(text)] + (int(digits, self.radix) if digits else 0)
        number = 0
        for symbol in text:
            position = self._positions.get(symbol)
            if position is None:
                return None
            number = number * self.radix + position
        return self._starts[len(text)] + number

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {symbol: position for position, symbol in enumerate(self.symbols or "")}

    @cached_property
    def _digits(self) -> _Digits:
        return _Digits((ord(symbol), _DIGITS[position]) for symbol, position in self._positions.items())

    def parse(self, text: str) -> str:
        """The string as it is counted."""
        return self._known_string(self.encode(text))

    def encode(self, value: object) -> int:
        """The index of one value."""
        index = self.find(value)
        if index is None:
            raise DomainError(f"{_shown(value)} is not in the domain: {self.description}.{_advice(value)}")
        return index

    def encode_all(self, values: Iterable[Any]) -> NDArray[Any]:
        """The index of each value, as 64-bit integers, or as Python integers if some need more bits."""
        column = as_sequence(values)
        if isinstance(column, np.ndarray) and column.ndim != 1:
            raise DomainError(f"Values must be a flat array, not one of {column.ndim} dimensions.", ndim=column.ndim)
        known: dict[Any, int | None] = {}
        outside, example = 0, None
        indices: list[int] = []
        for value in column.tolist() if isinstance(column, np.ndarray) else column:
            key = (type(value), value)
            if key not in known:
                known[key] = self.find(value)
            index = known[key]
            if index is None:
                outside, example = outside + 1, value if outside == 0 else example
            else:
                indices.append(index)
        if outside:
            raise DomainError(
                f"{outside:,} of {len(column):,} values are not {self.description} (for example {_shown(example)})."
                f"{_advice(example)}",
                count=outside,
            )
        return self.index_array(indices)

    def index_array(self, indices: list[int]) -> NDArray[Any]:
        """Indices as an array of the type that this domain needs."""
        return np.array(indices, dtype=self.index_type)

    @property
    def index_type(self) -> type[Any]:
        """The type of arrays of indices: int64, or Python's integers if there are too many strings for it."""
        return np.int64 if self.size <= 1 << 63 else object

    def length_and_number(self, index: int) -> tuple[int, int]:
        """The length of the string with this index, and its number among the strings of that length."""
        length = next(length for length, end in enumerate(self._starts[1:]) if index < end)
        return length, index - self._starts[length]

    def index_of(self, length: int, number: int) -> int:
        """The index of a string by its length and its number among the strings of that length."""
        return self._starts[length] + number

    def string(self, index: int) -> str | None:
        """The string with this index; None if its bytes are not UTF-8."""
        length, number = self.length_and_number(index)
        if self.symbols is None:
            try:
                return number.to_bytes(length, "big").decode()
            except UnicodeDecodeError:
                return None
        text = []
        for _ in range(length):
            number, position = divmod(number, self.radix)
            text.append(self.symbols[position])
        return "".join(reversed(text))

    def _known_string(self, index: int) -> str:
        text = self.string(index)
        assert text is not None  # noqa: S101 - the index of a string
        return text

    def is_named(self, text: str) -> bool:
        """Whether the string is a value other than the empty one, which may stand for strings outside the domain."""
        number = self._number(self.normalized(text))
        return number is not None and number > 0


class _Digits(dict[int, str]):
    """A table for ``str.translate`` that marks unknown symbols."""

    def __missing__(self, key: int) -> str:
        return "!"


def parse_alphabet(alphabet: str) -> str | None:
    r"""The symbols of an alphabet in their order; None for ``bytes``.

    >>> parse_alphabet(r"a-d\-_")
    'abcd-_'
    """
    alphabet = PRESETS.get(alphabet, alphabet)
    if alphabet == BYTES:
        return None
    tokens = _tokens(alphabet)
    symbols: list[str] = []
    while tokens:
        symbol, escaped = tokens.pop(0)
        if symbol == "-" and not escaped:
            raise DomainError(
                rf"The alphabet {alphabet[:_SHOWN]!r} has a range without a start; write \- for a hyphen."
            )
        if tokens[:1] == [("-", False)]:
            if len(tokens) < 2 or tokens[1] == ("-", False) or tokens[1][0] < symbol:
                raise DomainError(
                    rf"The alphabet {alphabet[:_SHOWN]!r} has a range without an end, or with an end before its start; "
                    r"write \- for a hyphen."
                )
            end = tokens[1][0]
            del tokens[:2]
            if ord(end) - ord(symbol) >= MAX_SYMBOLS:
                raise DomainError(f"An alphabet has at most {MAX_SYMBOLS:,} symbols.")
            symbols.extend(map(chr, range(ord(symbol), ord(end) + 1)))
        else:
            symbols.append(symbol)
    _check_symbols(symbols, alphabet)
    return "".join(symbols)


def _tokens(alphabet: str) -> list[tuple[str, bool]]:
    """Each symbol of the pattern, and whether a backslash stood before it."""
    tokens: list[tuple[str, bool]] = []
    characters = iter(alphabet)
    for character in characters:
        if character != "\\":
            tokens.append((character, False))
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise DomainError(rf"The alphabet {alphabet[:_SHOWN]!r} ends with a backslash; write \\ for a backslash.")
        tokens.append((escaped, True))
    return tokens


def _check_symbols(symbols: list[str], alphabet: str) -> None:
    if not symbols:
        raise DomainError("The alphabet is empty: give at least one symbol, such as 'a-z'.")
    if len(symbols) > MAX_SYMBOLS:
        raise DomainError(f"An alphabet has at most {MAX_SYMBOLS:,} symbols, not {len(symbols):,}.")
    if len(set(symbols)) < len(symbols):
        twice = next(symbol for position, symbol in enumerate(symbols) if symbol in symbols[:position])
        raise DomainError(f"The alphabet {alphabet[:_SHOWN]!r} has the symbol {twice!r} twice.")
    for symbol in symbols:
        if unicodedata.category(symbol) in ("Cc", "Cs"):
            raise DomainError(f"The alphabet has {symbol!r}, a control character or surrogate; use the alphabet bytes.")


def alphabet_pattern(symbols: str) -> str:
    r"""The canonical way to write an alphabet, with ranges of three symbols or more.

    >>> alphabet_pattern("abcdz-")
    'a-dz\\-'
    """
    parts: list[str] = []
    start = 0
    while start < len(symbols):
        end = start
        while end + 1 < len(symbols) and ord(symbols[end + 1]) == ord(symbols[end]) + 1:
            end += 1
        if end - start + 1 < _LEAST_RANGE:
            end = start
            parts.append(_escaped(symbols[start]))
        else:
            parts.append(f"{_escaped(symbols[start])}-{_escaped(symbols[end])}")
        start = end + 1
    pattern = "".join(parts)
    return "\\" + pattern if pattern in PRESETS else pattern


def _escaped(symbol: str) -> str:
    return "\\" + symbol if symbol in "-\\" else symbol


def _text_of(value: object) -> str | None:
    """The value as a string; None if it is missing or of another type. Unlike elsewhere, "" is a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return string_of(value)


def _shown(value: object) -> str:
    text = repr(displayed(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _advice(value: object) -> str:
    if not isinstance(value, str) and is_missing(value):
        return " A missing value is not a string: leave it out, or give the empty string."
    return " Give a larger domain, or `other=True` to count such strings as the empty one."
