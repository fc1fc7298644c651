"""How a value becomes an index: the same rules for Python values, arrays, columns and text."""

import math
import re
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import shuffledp as sdp
from shuffledp.domain import BIT, Bins, Categories, Interval, Numbered
from shuffledp.errors import DomainError
from shuffledp.text_values import canonical_form, looks_missing, parse_number, string_of

DIGITS = Categories.of(["1", "2", "3", "4"])
NAMES = Categories.of(["bus", "bike", "car"])
BOOLEANS = Categories.of(["True", "False"])


def forms(values):
    """The same values in every container that people have."""
    yield values
    yield iter(values)
    yield tuple(values)
    yield np.array(values)
    yield np.array(values, dtype=object)
    yield pd.Series(values)
    yield pd.Series(values, dtype=object)
    yield pd.Series(values).convert_dtypes()
    yield pd.Series(values, dtype="category")
    yield pd.Index(values)
    yield pa.array(values)
    yield pa.chunked_array([pa.array(values[:1]), pa.array(values[1:])])
    yield pa.array(values).dictionary_encode()


@pytest.mark.parametrize(
    ("domain", "values", "indices"),
    [
        (DIGITS, [1, 2, 4, 1], [0, 1, 3, 0]),
        (DIGITS, [1.0, 2.0, 4.0, 1.0], [0, 1, 3, 0]),
        (DIGITS, ["1", "2", "4.0", " 1 "], [0, 1, 3, 0]),
        (NAMES, ["car", "bus", " bus", "bike"], [2, 0, 0, 1]),
        (BOOLEANS, [True, False, True, True], [0, 1, 0, 0]),
        (BOOLEANS, ["true", "FALSE", "True", "TRUE"], [0, 1, 0, 0]),
        (Categories.of(["0.5", "2.0", "-1"]), [2.0, 0.5, -1.0, 2.0], [1, 0, 2, 1]),
        (Numbered(5), [1, 2, 4, 1], [1, 2, 4, 1]),
        (Numbered(5), [1.0, 2.0, 4.0, 1.0], [1, 2, 4, 1]),
        (Numbered(5), ["1", "2.0", "4", " 1"], [1, 2, 4, 1]),
        (Bins(0, 4, bins=4), [1, 2, 4, 1], [1, 2, 3, 1]),
        (Bins(0, 4, bins=2), [0.0, 1.99, 4.0, 2.0], [0, 0, 1, 1]),
        (BIT, [1, 0, 0, 1], [1, 0, 0, 1]),
        (BIT, [True, False, False, True], [1, 0, 0, 1]),
        (BIT, [1.0, 0.0, 0.0, 1.0], [1, 0, 0, 1]),
    ],
)
def test_every_container_gives_the_same_indices(domain, values, indices):
    for form in forms(values):
        assert domain.encode_all(form).tolist() == indices
    assert [domain.encode(value) for value in values] == indices
    assert [domain.encode(value) for value in np.array(values)] == indices


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (NAMES, [0, 1, 2]),  # indices, as they were once taken
        (NAMES, [0.0, 1.0, 2.0]),
        (NAMES, [True, False, True]),
        (DIGITS, [1, 2, 5]),
        (DIGITS, [0, 1, 2]),
        (DIGITS, [True, False, True]),  # no 1 and 0
        (DIGITS, [1.5, 1.0, 2.0]),
        (DIGITS, ["01", "1", "2"]),
        (BOOLEANS, [1, 0, 1]),
        (Numbered(3), [0, 1, 3]),
        (Numbered(3), [-1, 0, 1]),
        (Numbered(3), [True, False, True]),
        (Numbered(3), ["bus", "0", "1"]),
        (Numbered(3), ["\uff11", "0", "1"]),
        (BIT, [2, 1, 0]),
        (BIT, ["yes", "no", "no"]),
        (BIT, [0.5, 1.0, 0.0]),
    ],
)
def test_what_is_not_in_the_domain_is_refused_in_every_container(domain, values):
    for form in forms(values):
        with pytest.raises(DomainError):
            domain.encode_all(form)


@pytest.mark.parametrize("domain", [NAMES, DIGITS, BOOLEANS, Numbered(3), BIT, Interval(0, 3), Bins(0, 3, bins=3)])
@pytest.mark.parametrize(
    "missing", [None, math.nan, np.nan, np.float32("nan"), pd.NA, pd.NaT, "", " ", b"bus", ["bus"], {}, object(), 1j]
)
def test_a_missing_value_or_something_else_is_never_an_index(domain, missing):
    with pytest.raises(DomainError):
        domain.encode(missing)
    good = {NAMES: "bus", DIGITS: "1", BOOLEANS: "True", Numbered(3): 1, BIT: 1}.get(domain, 1)
    with pytest.raises(DomainError):
        domain.encode_all([good, missing])


def test_masked_values_are_missing():
    for domain in (Numbered(3), DIGITS, BIT, Interval(0, 3)):
        with pytest.raises(DomainError):
            domain.encode_all(np.ma.array([1, 1, 1], mask=[False, True, False]))
    assert DIGITS.encode_all(np.ma.array([1, 2], mask=[False, False])).tolist() == [0, 1]


def test_mixed_types_keep_their_meaning():
    """numpy would make [1, True] two ones, and [1, "bus"] two strings."""
    mixed = Categories.of(["1", "true", "bus", "2.5"])
    assert mixed.encode_all([1, True, "bus", 2.5, Decimal("1.0")]).tolist() == [0, 1, 2, 3, 0]
    with pytest.raises(DomainError, match="1 of 2 values"):
        DIGITS.encode_all([1, True])


@pytest.mark.parametrize("values", [[1] * 1600 + [2] * 1200 + [3] * 1200, np.repeat([1, 2, 3], [1600, 1200, 1200])])
@pytest.mark.parametrize("name", sdp.PROTOCOLS["histogram"])
def test_integers_are_values_where_categories_are_named(name, values):
    """They were taken for indices: nobody held '1', and the 1,600 held '2'.

    4,000 users; each of 4 intervals misses with probability 1e-9, in 36 tests together 1.5e-7. Values shifted by one
    index, the fault, leave nobody for '1' and 1,200 users for '4', which lie outside their intervals.
    """
    question = {"users": 4_000, "categories": ["1", "2", "3", "4"], "epsilon": 8.0, "delta": 1e-6}
    estimate = sdp.find("histogram", name).calibrate(**question).run(values)
    low, high = estimate.interval(1 - 1e-9).T
    truth = np.array([1600, 1200, 1200, 0])
    assert (low <= truth).all()
    assert (truth <= high).all()
    shifted = np.array([0, 1600, 1200, 1200])
    assert not ((low <= shifted) & (shifted <= high)).all()


def test_an_error_shows_examples_and_says_what_to_do():
    with pytest.raises(DomainError, match=r"3 of 4 values are not in the domain \(for example 0, 7\).*give names"):
        DIGITS.encode_all(np.array([0, 1, 7, 0]))
    with pytest.raises(DomainError, match=r"2 of 3 values .*'NA', None.*missing value belongs to no category"):
        NAMES.encode_all(["bus", "NA", None])
    with pytest.raises(DomainError, match="numbered from 0 to 2"):
        Numbered(3).encode("bus")


def test_a_name_wins_over_what_reads_the_same():
    domain = Categories.of(["1", "1.0", "true", "TRUE", " x"])
    assert [domain.encode(text) for text in ("1", "1.0", "true", "TRUE", " x", "x")] == [0, 1, 2, 3, 4, 4]
    for ambiguous in ("1.00", "True", " 1.00"):
        with pytest.raises(DomainError):
            domain.encode(ambiguous)
    assert domain.encode(1) == domain.encode(1.0) == 0  # both read as "1", which is a name
    assert domain.encode(True) == 2


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0),
        (" 1 ", 1.0),
        ("+1.5", 1.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("007", 7.0),
        ("1e400", math.inf),
        ("1_0", None),
        ("\uff11\uff12", None),
        ("\u0661", None),
        ("0x10", None),
        ("inf", None),
        ("-Infinity", None),
        ("nan", None),
        ("1,5", None),
        ("1 2", None),
        ("", None),
        (".", None),
        ("e5", None),
        ("1e", None),
        ("--1", None),
    ],
)
def test_numbers_are_read_by_one_strict_rule(text, number):
    assert parse_number(text) == number
    if number is None:
        with pytest.raises(DomainError):
            Interval(0, 10).parse(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1.0", "1"),
        ("-3.000", "-3"),
        ("-0.0", "0"),
        (" TRUE ", "true"),
        ("1.05", "1.05"),
        ("01", "01"),
        ("1.0.0", "1.0.0"),
        ("1e0", "1e0"),
        ("Truely", "Truely"),
        ("\uff11.0", "\uff11.0"),
    ],
)
def test_what_reads_the_same(text, read):
    assert canonical_form(text) == read


def test_values_as_strings():
    values = [
        7,
        np.int8(7),
        1.0,
        -0.0,
        2.5,
        np.float32(0.1),
        2.0**53,
        1e300,
        True,
        np.bool_(False),
        " x ",
        Decimal("1.50"),
    ]
    texts = ["7", "7", "1", "0", "2.5", "0.1", "9007199254740992", "1e+300", "true", "false", "x", "1.50"]
    assert [string_of(value) for value in values] == texts
    assert [string_of(value) for value in (None, math.nan, "", " ", 10**5000, b"x", [])] == [None] * 7


def test_yes_and_no():
    assert [BIT.parse(text) for text in ("YES", "y", "True", "t", "1", "1.0", " yes ")] == [1] * 7
    assert [BIT.parse(text) for text in ("No", "n", "FALSE", "f", "0", "0.0")] == [0] * 6
    for text in ("", "2", "ja", "on", "1.5"):
        with pytest.raises(DomainError):
            BIT.parse(text)


def test_markers_of_missing_values():
    for text in ("NA", "n/a", "NaN", "NULL", "None", "?", " - "):
        assert looks_missing(text)
    for text in ("", "no", "nobody", "0", "x"):
        assert not looks_missing(text)


@pytest.mark.parametrize(
    "values",
    [
        [date(2024, 1, 1)],
        np.array(["2024-01-01"], dtype="datetime64[ns]"),
        pd.Series(pd.to_datetime(["2024-01-01"])),
        [b"bus"],
        [("bus",)],
    ],
)
def test_an_object_that_is_no_value_is_not_called_missing(values):
    with pytest.raises(DomainError, match="A value is a string, a number or a boolean, not an object of type") as told:
        NAMES.encode_all(values)
    assert "missing" not in str(told.value)


def test_a_date_is_shown_as_one():
    """numpy makes an integer of one with nanoseconds."""
    with pytest.raises(DomainError, match="'2024-01-01T"):
        NAMES.encode_all(np.array(["2024-01-01"], dtype="datetime64[ns]"))


def test_a_boolean_is_not_called_an_integer():
    with pytest.raises(DomainError, match="for example True, False") as told:
        NAMES.encode_all([True, False])
    assert "integer" not in str(told.value)


@pytest.mark.parametrize("domain", [BIT, Interval(0, 3), Bins(0, 3, bins=3)])
@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([1, None, 0], "None; leave missing values out"),
        (pd.Series([True, None], dtype="boolean"), "<NA>; leave missing values out"),
        ([True, "x"], "'x'"),
        ([1, 0, "1"], "'1'"),
    ],
)
def test_an_error_names_the_value_that_is_no_number(domain, values, wrong):
    """It named the first value, which was one."""
    with pytest.raises(DomainError, match=re.escape(f"from each user, not {wrong}.")):
        domain.encode_all(values)


def test_decimal_numbers_and_large_integers_are_numbers():
    decimals = pa.array([Decimal("1.00"), Decimal("0.00")])
    assert BIT.encode_all(decimals).tolist() == [1, 0]
    assert Interval(0, 4).encode_all(decimals).tolist() == [0.25, 0.0]
    for large in (10**30, 10**400):
        with pytest.raises(DomainError, match="1 of 2 values are not numbers from 0 to 4"):
            Interval(0, 4).encode_all([1, large])
        assert Interval(0, 4).encode_all([1, large, -large], clip=True).tolist() == [0.25, 1.0, 0.0]
    with pytest.raises(DomainError, match="nan"):
        Interval(0, 4).encode_all([Decimal("sNaN")], clip=True)
