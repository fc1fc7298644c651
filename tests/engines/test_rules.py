"""A column of a file follows the rules of the domain, value by value: one nasty file, every domain."""

import math
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from shuffledp.collection.device.client import encoded
from shuffledp.domain import BIT, Bins, Categories, EqualTo, Interval, Numbered
from shuffledp.engines.encoding import IndexEncoder
from shuffledp.engines.files import FileTable
from shuffledp.engines.local import Column
from shuffledp.engines.strings import as_strings
from shuffledp.engines.table import MemoryTable
from shuffledp.errors import DataError, DomainError
from shuffledp.text_values import string_of


def read_column(path, column, **options):
    """The strings of a column, batch by batch."""
    return (as_strings(batch) for (batch,) in FileTable(path).read([column], **options))


def file_column(path, name, *options, **more):
    return Column(FileTable(path), name, *options, **more)


def memory_column(values, **options):
    return Column(MemoryTable({"m": values}), "m", **options)


NASTY = [
    *("a", " a", "a\u00a0", "\u3000a\t", "\x1fa", "A", "bus stop", "\u00e9", "e\u0301", 'say "e"', "two\nlines"),
    *("1", "1.0", " 1.00 ", "+1", "01", "1e0", "1.", ".5", "-0", "-0.0", "0", "2", "2.5", "120", "120.0000001", "-1"),
    *("9007199254740993", "1e400", "-1e400", "1_0", "\uff11", "0x10", "inf", "-inf", "nan", "1,5", "--1", "1e", "1 0"),
    *("true", "TRUE", "True", "tRuE", "yes", " Y", "no", "N", "f", "on", "ja", "1e-7", "1e-07"),
    *("NA", "n/a", "?", "-", ".", "None", "null"),
    *("", " ", "\t", "\u00a0", "\x1c"),
]
DISCRETE = [
    Categories.of(["a", "1", "true", "\u00e9", "0"]),
    Categories.of(["1.0", "1.00", "1", "-0.0"]),
    Categories.of(["TRUE", "True", "NA", "two\nlines"]),
    Numbered(3),
    BIT,
    EqualTo("1.0"),
    EqualTo("NA"),
]
INTERVALS = [(Interval(0, 120), False), (Interval(0, 120), True), (Interval(-1, 2, whole=True), False)]


def task_of(domain):
    return SimpleNamespace(protocol=SimpleNamespace(domain=domain, question="any"))


def expected(domain, value, **options):
    """What the rules of the domain make of one string: "missing", "outside", or an index or position."""
    if string_of(value) is None:
        return "missing"
    try:
        parsed = domain.parse(value)
        return domain.encode_all([parsed], **options).tolist()[0]
    except DomainError:
        return "outside"


def written(folder, values, form):
    table, path = pa.table({"m": pa.array(values), "n": pa.nulls(len(values), pa.string())}), folder / f"nasty.{form}"
    if form == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_counts_follow_the_rules_of_the_domain(tmp_path, form):
    path = written(tmp_path, NASTY, form)
    for domain in DISCRETE:
        result = IndexEncoder(domain)
        indices = [index for (batch,) in FileTable(path).read(["m"]) for index in result.encode(batch).values]
        wanted = Counter(expected(domain, value) for value in NASTY)
        assert Counter(indices) == {index: wanted[index] for index in range(len(domain)) if wanted[index]}, domain
        assert (result.missing, result.outside) == (wanted["missing"], wanted["outside"]), domain
        assert 0 < wanted["missing"] < len(NASTY)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(("domain", "clip"), INTERVALS)
def test_positions_follow_the_rules_of_the_domain(tmp_path, domain, clip, form):
    wanted = {value: expected(domain, value, clip=clip) for value in NASTY}
    inside = [value for value in NASTY if not isinstance(wanted[value], str)]
    path = written(tmp_path, inside, form)
    assert len(inside) > 5
    assert file_column(path, "m").positions(domain, clip=clip).tolist() == [wanted[value] for value in inside]
    for value in (value for value in NASTY if wanted[value] == "outside"):
        with pytest.raises(DataError, match="1 value is outside the domain"):
            memory_column([value]).positions(domain, clip=clip)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("clip", [False, True])
def test_bins_follow_the_rules_of_the_domain(tmp_path, clip, form):
    domain = Bins(0, 120, bins=480)
    wanted = {value: expected(domain, value, clip=clip) for value in NASTY}
    inside = [value for value in NASTY if not isinstance(wanted[value], str)]
    counts = file_column(written(tmp_path, inside, form), "m").histogram(domain, clip=clip)
    assert counts.tolist() == np.bincount([wanted[value] for value in inside], minlength=480).tolist()
    assert np.count_nonzero(counts) > 4
    for value in (value for value in NASTY if wanted[value] == "outside"):
        with pytest.raises(DataError, match="1 value is outside the domain"):
            memory_column([value]).histogram(domain, clip=clip)
    gaps = [value for value in NASTY if wanted[value] == "missing"]
    path = written(tmp_path, [*inside, *gaps], form)
    with pytest.raises(DataError, match=f"{len(gaps)} values are missing"):
        file_column(path, "m").histogram(domain, clip=clip)
    dropped = file_column(path, "m", drop_missing=True).histogram(domain, clip=clip)
    assert dropped.tolist() == counts.tolist()


@pytest.mark.parametrize(
    "domain", [*DISCRETE, Bins(0, 120, bins=480), *(domain for domain, clip in INTERVALS if not clip)], ids=repr
)
def test_devices_follow_the_rules_of_the_domain(domain):
    """The value of an option or of standard input, and then what the client encodes."""
    for value in NASTY:
        wanted = expected(domain, value)
        if wanted in ("missing", "outside") and not (wanted == "missing" and isinstance(domain, EqualTo)):
            with pytest.raises(DomainError):
                encoded(task_of(domain), domain.parse(value))
        elif wanted != "missing":
            assert encoded(task_of(domain), domain.parse(value)) == wanted


TYPED = {
    "int8": np.array([-1, 0, 1, 127], dtype=np.int8),
    "int64": np.array([-1, 0, 1, 2**53 + 1, -(2**63)], dtype=np.int64),
    "uint64": np.array([0, 1, 2**64 - 1], dtype=np.uint64),
    "float16": np.array([0.1, 1.0, -0.0, 2.5, math.nan, 2048.0, 6e-8], dtype=np.float16),
    "float32": np.array([0.1, 1.0, -0.0, 2.5, math.nan, 16777216.0, 1e-7], dtype=np.float32),
    "float64": np.array(
        [
            0.1,
            1.0,
            -0.0,
            2.5,
            math.nan,
            2.0**53,
            math.inf,
            -math.inf,
            1e-7,
            1e300,
            5e-324,
            1.5e17,
            2.0**54,
            -3e-5,
            1234567.5,
        ]
    ),
    "bool": np.array([True, False]),
    "decimal": [Decimal("1.50"), Decimal("2.00"), Decimal("0.01")],
    "string": NASTY,
}


@pytest.mark.parametrize("kind", TYPED)
def test_typed_columns_become_the_same_strings_as_python_values(tmp_path, kind):
    values = list(TYPED[kind])
    column = pa.array(TYPED[kind], from_pandas=False)
    for encoding in (column, column.dictionary_encode()) if kind != "float16" else (column,):
        path = tmp_path / "typed.parquet"
        pa.parquet.write_table(pa.table({"m": encoding}), path)
        rows = [value for batch in read_column(path, "m") for value in batch.to_pylist()]
        assert rows == [string_of(value) for value in values]


@pytest.mark.parametrize("width", [32, 64])
def test_floating_point_numbers_of_any_size_become_the_same_strings(width):
    """Arrow and Python change to exponents at different sizes, and spell them differently."""
    draw = np.random.default_rng()
    bits = draw.integers(0, 2**width, 5_000, dtype=f"uint{width}").view(f"float{width}")
    sizes = (10.0 ** draw.uniform(-12, 22, 5_000)).astype(f"float{width}")
    values = np.concatenate([bits, sizes, np.round(sizes, 3)])
    assert as_strings(pa.array(values)).to_pylist() == [string_of(value) for value in values]
