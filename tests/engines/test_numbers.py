"""From a column of text to places between two bounds, with nothing dropped silently."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from shuffledp.domain import Bins, Interval
from shuffledp.engines.files import FileTable
from shuffledp.engines.local import Column
from shuffledp.engines.table import Table
from shuffledp.errors import BelowMinimumError, DataError
from shuffledp.protocols.flow import run_round
from shuffledp.protocols.sum.duchi import DuchiSum
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness


class Batches(Table):
    """A column in the given batches."""

    def __init__(self, batches):
        self.batches = list(batches)

    def read(self, columns, progress=lambda _: None):
        return ((batch,) for batch in self.batches)


def file_column(path, name, *options, **more):
    return Column(FileTable(path), name, *options, **more)


TEN = Interval(0, 10)


def positions(*batches, domain=TEN, clip=False, **options):
    table = Batches(pa.array(batch, type=pa.string()) for batch in batches)
    return Column(table, "m", **options).positions(domain, clip=clip).tolist()


def test_numbers_of_several_batches_stay_in_order():
    assert positions(["0", "10", "5"], [], ["2.5", "1e1"], ["-0"]) == [0.0, 1.0, 0.5, 0.25, 1.0, 0.0]


@pytest.mark.parametrize("text", ["x", "1,5", "nan", "NaN", "inf", "-Infinity", "0x10", "--1", "1e", "five", "1 2"])
@pytest.mark.parametrize("clip", [False, True])
def test_text_that_is_no_number(text, clip):
    with pytest.raises(DataError, match="1 value is outside") as caught:
        positions(["1", "2"], ["3", text], clip=clip)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["-0.001", "10.001", "1e400", "-1e400"])
def test_outside_is_refused_or_moved(text):
    with pytest.raises(DataError, match="`clip=True`"):
        positions(["1", text])
    assert positions(["1", text], clip=True) == [0.1, 0.0 if text.startswith("-") else 1.0]


def test_one_bad_text_does_not_change_what_the_others_mean():
    """Text is read in bulk, or one by one if that fails: both must agree."""
    good = ["1", "2.5", "1e0", "+3", ".5", "5.", "0003"]
    assert positions(good) == pytest.approx([0.1, 0.25, 0.1, 0.3, 0.05, 0.5, 0.3])
    for text in good:
        assert positions([text]) == positions([text, "7"])[:1]
    with pytest.raises(DataError, match="1 value is outside"):
        positions([*good, "x"])


@pytest.mark.parametrize("text", ["1_0", "\u0661"])
def test_numbers_only_python_knows(text):
    with pytest.raises(DataError):
        positions([text])


def test_missing_values():
    with pytest.raises(DataError, match="2 values are missing"):
        positions(["1", None], [None, "2"])
    assert positions(["1", None], [None, "2"], drop_missing=True) == [0.1, 0.2]
    with pytest.raises(DataError, match=r"outside the domain.*and 1 value is missing"):
        positions(["x", None])


@pytest.mark.parametrize("batches", [[], [[]], [[None, None]]])
def test_nobody(batches):
    with pytest.raises(DataError, match="no rows"):
        positions(*batches, drop_missing=True)


def test_whole_numbers():
    whole = Interval(0, 10, whole=True)
    assert positions(["1", "2.0", "1e1"], domain=whole) == [0.1, 0.2, 1.0]
    for clip in (False, True):
        with pytest.raises(DataError, match=r"2 values are outside.*integers from 0 to 10"):
            positions(["1", "2.5", "0.1"], domain=whole, clip=clip)
    assert positions(["11", "-3"], domain=whole, clip=True) == [1.0, 0.0]


def test_a_few_examples_are_shown_once():
    with pytest.raises(DataError) as caught:
        positions(["a"] * 50 + ["b", "c", "d", "e"], ["a" * 500])
    assert "55 values" in str(caught.value)
    assert "'a', 'b', 'c'" in str(caught.value)
    assert "'d'" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.5, 9.5, None]),
        pa.array([0.5, 9.5, float("nan")]),
        pa.array([0.5, 9.5, None], type=pa.float32()),
        pa.array(["0.5", " 9.5 ", " "]),
        pa.array(["0.5", "9.5", None]).dictionary_encode(),
        pa.array([0.5, 9.5, None]).cast(pa.decimal128(5, 2)),
    ],
)
def test_kinds_of_columns(tmp_path, column):
    pyarrow.parquet.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
    assert file_column(tmp_path / "x.parquet", "x", drop_missing=True).positions(TEN).tolist() == [0.05, 0.95]
    with pytest.raises(DataError, match="1 value is missing"):
        file_column(tmp_path / "x.parquet", "x").positions(TEN)


def test_whole_number_columns(tmp_path):
    table = pa.table({"x": pa.array([0, 5, 10], type=pa.int8()), "l": pa.array([[1], [2], [3]])})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    domain = Interval(0, 10, whole=True)
    assert file_column(tmp_path / "x.parquet", "x").positions(domain).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(DataError):
        file_column(tmp_path / "x.parquet", "l").positions(domain)


def test_bins_of_typed_columns(tmp_path):
    """The edges of bins too: numbers take the same bin from a file as from Python."""
    domain = Bins(0, 1, bins=10)
    numbers = np.concatenate([domain.edges, np.nextafter(domain.edges[1:], 0), [0.3, 0.1 + 0.2, 0.7, 1e-7]])
    wanted = np.bincount(domain.encode_all(numbers), minlength=10).tolist()
    pyarrow.parquet.write_table(pa.table({"x": numbers}), tmp_path / "x.parquet")
    assert file_column(tmp_path / "x.parquet", "x").histogram(domain).tolist() == wanted
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(map(repr, numbers.tolist())) + "\n")
    assert file_column(tmp_path / "x.csv", "x").histogram(domain).tolist() == wanted
    wide = file_column(tmp_path / "x.csv", "x").histogram(Bins(0.2, 0.5, bins=2), clip=True)
    assert wide.sum() == len(numbers)
    with pytest.raises(DataError, match="`clip=True`"):
        file_column(tmp_path / "x.csv", "x").histogram(Bins(0.2, 0.5, bins=2))


@pytest.mark.parametrize("route", ["auto", "messages", "counts"])
def test_a_round_over_places(route):
    where = np.linspace(0, 1, 2000)
    protocol = DuchiSum.calibrate(users=2000, epsilon=8.0, delta=1e-6, domain=Interval(-100, 100))
    estimate = run_round(protocol, where, estimator="unbiased", route=route, source=InsecureSeededRandomness(5))
    assert abs(estimate.value) < 200 * 8 * np.sqrt(2000 / 4)
    assert estimate.estimator == "unbiased"
    assert not estimate.secure
    assert run_round(protocol, where, estimator="clipped", route=route, source=SYSTEM).estimator == "clipped"


def test_fewer_than_the_protocol_needs():
    protocol = DuchiSum.calibrate(users=10, epsilon=1.0, delta=1e-6, domain=TEN)
    with pytest.raises(BelowMinimumError):
        run_round(protocol, np.zeros(9), estimator="unbiased", route="auto", source=SYSTEM)
