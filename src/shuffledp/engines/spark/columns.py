"""Columns of Spark data frames as expressions: strings without outer spaces, one spelling per value, missing values.

The rules are those of ``shuffledp.text_values``, which tests compare on one file of difficult values.
"""

from __future__ import annotations

import re
from typing import Any

from shuffledp.domain import Categories
from shuffledp.engines.spark.session import Frame
from shuffledp.engines.table import check_column
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.text_values import EXACT_INTEGERS, canonical_form

with extra("spark", "The Spark engine"):
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""The characters that are removed around a string."""
NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
_ZERO_FRACTION = r"^([-+]?[0-9]+)\.0+$"
_NESTED = (st.ArrayType, st.MapType, st.StructType)
_NO_COLUMN = "The Spark data frame"


def column(frame: Frame, name: str) -> Any:
    """The column of this name, in which no character has a special meaning."""
    check_column(name, frame.columns, _NO_COLUMN)
    return sf.col("`" + name.replace("`", "``") + "`")


def kind_of(frame: Frame, name: str, what: str = "The column") -> Any:
    """The type of a column; an error if it is nested."""
    check_column(name, frame.columns, _NO_COLUMN)
    kind = frame.schema[name].dataType
    if isinstance(kind, _NESTED) or not _is_simple(kind):
        raise DataError(f"{what} is of type {kind.simpleString()}; it must be a string, a number, a boolean or a date.")
    return kind


def is_float(kind: Any) -> bool:
    """Whether values of the type are floating-point numbers."""
    return isinstance(kind, (st.DoubleType, st.FloatType))


def is_integer(kind: Any) -> bool:
    """Whether values of the type are integers."""
    return isinstance(kind, st.IntegralType)


def text(value: Any, kind: Any) -> Any:
    """The value as a string without outer spaces; null if it is missing. Numbers may be spelled as Java does."""
    if isinstance(kind, st.BinaryType):
        return sf.lower(sf.hex(value))
    if is_integer(kind) or isinstance(kind, st.BooleanType):
        return value.cast("string")
    if is_float(kind):
        whole = (sf.floor(value) == value) & (sf.abs(value) <= sf.lit(float(EXACT_INTEGERS)))
        spelled = sf.when(whole, value.cast("bigint").cast("string")).otherwise(value.cast("string"))
        return sf.when(sf.isnan(value), sf.lit(None)).otherwise(spelled)
    return sf.nullif(sf.btrim(value.cast("string"), sf.lit(SPACES)), sf.lit(""))


def canonical(value: Any, kind: Any) -> Any:
    """One spelling per value, by ``canonical_form``; null if it is missing."""
    string = text(value, kind)
    if not isinstance(kind, (st.StringType, st.DecimalType)):
        return string
    integer = sf.regexp_extract(string, _ZERO_FRACTION, 1)
    short = sf.when(integer.isin("-0", "+0"), sf.lit("0")).otherwise(integer)
    with_point = sf.when(string.contains("."), sf.when(integer != "", short).otherwise(string))
    is_boolean = sf.length(string).between(4, 5) & sf.lower(string).isin("true", "false")
    return sf.coalesce(with_point, sf.when(is_boolean, sf.lower(string)), string)


def without_markers(value: Any, missing: Categories | None) -> Any:
    """The canonical string with null for those that mean a missing value."""
    if missing is None:
        return value
    names = sorted({*missing.names, *(canonical_form(name) for name in missing.names)})
    return sf.when(value.isin(names), sf.lit(None)).otherwise(value)


def has_value(value: Any, kind: Any, missing: Categories | None) -> Any:
    """Whether a row has a value."""
    return without_markers(canonical(value, kind), missing).isNotNull()


def number_of(value: Any, kind: Any) -> Any:
    """A string as a number; null if it is missing or not a number."""
    string = text(value, kind)
    return sf.when(string.rlike(NUMBER), string.try_cast("double"))


def _is_simple(kind: Any) -> bool:
    simple = (
        st.StringType,
        st.NumericType,
        st.BooleanType,
        st.BinaryType,
        st.DateType,
        st.TimestampType,
        st.TimestampNTZType,
        st.NullType,
    )
    return (
        isinstance(kind, simple)
        or kind.simpleString().startswith("time(")
        or re.fullmatch(r"(var)?char\(\d+\)", kind.simpleString()) is not None
    )
