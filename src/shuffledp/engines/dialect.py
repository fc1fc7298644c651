"""Dialects of data files: delimiter, encoding, header, decimal mark."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from shuffledp.errors import ParameterError

COMMA, TAB = ",", "\t"
_DECIMALS = (".", ",")
_NO_DELIMITERS = '"\r\n\0'


@dataclass(frozen=True)
class Dialect:
    """Properties of files that must be declared, since guessing them from private data could go wrong silently."""

    delimiter: str | None = None
    """The character between the fields of a CSV file; by default a comma, or a tab if the name has .tsv."""
    encoding: str = "utf-8"
    """The encoding of CSV files and JSON lines, by a name that Python knows."""
    header: bool = True
    """Whether the first line of a CSV file has the names of its columns; otherwise they are "1", "2", ..."""
    names: tuple[str, ...] = ()
    """The names of the columns of CSV files without a header."""
    decimal: str = "."
    """The decimal mark of numbers that are strings: a point or a comma."""

    def __post_init__(self) -> None:
        if self.delimiter is not None and not _is_delimiter(self.delimiter):
            raise ParameterError(
                f"A delimiter is one ASCII character other than a quotation mark or a line break, not "
                f"{self.delimiter!r}.",
                delimiter=self.delimiter,
            )
        object.__setattr__(self, "encoding", _encoding_name(self.encoding))
        if self.decimal not in _DECIMALS:
            raise ParameterError(f"The decimal mark is '.' or ',', not {self.decimal!r}.", decimal=self.decimal)
        if isinstance(self.names, str) or not all(isinstance(name, str) for name in self.names):
            raise ParameterError(f"The names of the columns are a list of strings, not {self.names!r}.")
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and self.header:
            raise ParameterError("Names of columns are for files without a header: use `header=False` too.")

    def delimiter_of(self, suffixes: list[str]) -> str:
        """The delimiter of a CSV file whose name has these suffixes."""
        return self.delimiter or (TAB if ".tsv" in suffixes else COMMA)


def _is_delimiter(character: str) -> bool:
    return (
        isinstance(character, str) and len(character) == 1 and character.isascii() and character not in _NO_DELIMITERS
    )


def _encoding_name(encoding: str) -> str:
    """The name by which Python lists the encoding; one that is unknown, or does not encode strings, is refused."""
    try:
        name = codecs.lookup(encoding).name
        "a".encode(name)
        codecs.getincrementaldecoder(name)
    except (LookupError, TypeError, ValueError):
        raise ParameterError(
            f"There is no encoding {encoding!r}; common ones are utf-8, utf-16, cp1252 and latin-1.", encoding=encoding
        ) from None
    return "utf-8" if name == "utf-8-sig" else name
