"""Recognition of file formats by their first bytes."""

from __future__ import annotations

import re
from enum import StrEnum

from shuffledp.engines.paths import DataFile

NOT_DATA = "not a CSV, Parquet, Arrow or JSON lines file"
OFFICE_MEMBERS = {
    "[Content_Types].xml": "an Excel workbook or another Office document",
    "mimetype": "an OpenDocument spreadsheet or another document",
}
"""Member names that mark a zip archive as an office document, with the description for the error message."""

_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
_BZIP2_BLOCK = (b"1AY&SY", b"\x17rE8P\x90")
_OTHERS = {
    b"FEA1": "a Feather file of version 1",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"%PDF-": "a PDF document",
    b"\x89PNG": "an image",
    b"GIF8": "an image",
    b"\xff\xd8\xff": "an image",
    b"II*\x00": "an image",
    b"MM\x00*": "an image",
    b"RIFF": "an image, sound or video",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an Excel 97-2003 workbook or another Office document",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array",
    b"\x80\x04\x95": "a pickled Python object",
    b"\x80\x05\x95": "a pickled Python object",
    b"RDX3": "an R data file",
    b"$FL2": "an SPSS file",
    b"$FL3": "an SPSS file",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"\x7fELF": "a program",
}
_MARKUP = {
    b"<!doctype html": "an HTML page",
    b"<html": "an HTML page",
    b"<?xml": "an XML document",
    b"<stata_dta>": "a Stata file",
    b"{\\rtf": "an RTF document",
}
_JSON_OBJECT = re.compile(rb'\s*\{\s*["}]')
_JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{]")
HEAD_BYTES = 512


class Format(StrEnum):
    """Formats of data."""

    csv = "CSV"
    json_lines = "JSON lines"
    parquet = "Parquet"
    arrow_file = "Arrow"
    arrow_stream = "Arrow stream"


def compression(head: bytes) -> str | None:
    """How content with these first bytes is compressed; None if it is not."""
    name = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
    return None if name == "bz2" and not head[4:].startswith(_BZIP2_BLOCK) else name


def binary_format(head: bytes, file: DataFile) -> Format | None:
    """The format of a binary file of data; None if it may be text. Refuses other binary formats, named in the error."""
    if head.startswith(b"PAR1"):
        return Format.parquet
    if head.startswith(b"PARE"):
        raise file.error("it is an encrypted Parquet file; decrypt it first")
    if head.startswith(b"ARROW1"):
        return Format.arrow_file
    if head.startswith(b"\xff\xff\xff\xff"):
        return Format.arrow_stream
    kind = next((kind for magic, kind in _OTHERS.items() if head.startswith(magic)), None)
    if kind is None and head[257:262] == b"ustar":
        kind = "a tar archive"
    if kind is not None:
        raise file.error(f"it is {kind}, {NOT_DATA}")
    return None


def text_format(head: bytes, file: DataFile) -> Format:
    """The format of text in UTF-8 without its byte-order mark. Refuses other formats, named in the error."""
    start = head.lstrip()[:20].lower()
    kind = next((kind for magic, kind in _MARKUP.items() if start.startswith(magic)), None)
    if kind is not None:
        raise file.error(f"it is {kind}, {NOT_DATA}")
    if _JSON_OBJECT.match(head):
        return Format.json_lines
    if _JSON_ARRAY.match(head):
        raise file.error("it is a JSON array; JSON lines are needed: one object per line, without commas between them")
    return Format.csv
