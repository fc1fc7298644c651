"""Rounds on Spark: every question, the distribution of partial tallies, and what failures do to them."""

import json
import time
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import shuffledp as sdp
from shuffledp.domain import Categories
from shuffledp.engines.encoding import CategoryEncoder
from shuffledp.engines.spark import partial
from shuffledp.engines.spark.partial import tally_parts
from shuffledp.engines.spark.workers import (
    CODE,
    PART,
    RandomizeCounts,
    RandomizeRows,
    pack_counts,
    unpack_counts,
)
from shuffledp.errors import BelowMinimumError, DataError, EngineError, ParameterError, UnknownNameError
from shuffledp.messages import Tally
from shuffledp.randomness import SYSTEM, draw_bytes

ALPHA = 1e-6
MODES = Categories.of(["bus", "bike", "car"])
USERS = 6_000


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(MODES.names[i % 3] if i % 2 else "bus", i % 100 / 1.0, i % 7 == 0) for i in range(USERS)]
    frame = spark.createDataFrame(rows, "mode string, minutes double, smoker boolean").repartition(4).cache()
    frame.count()
    return frame


TRUTH = np.bincount([i % 3 if i % 2 else 0 for i in range(USERS)], minlength=3)
TARGET = {"epsilon": 1.0, "delta": 1e-6}


def histogram_protocol(users=USERS, name="uniform-blanket"):
    return sdp.find("histogram", name).calibrate(users=users, categories=MODES, **TARGET)


def near(estimate, truth):
    """Whether the truth lies in intervals that hold together with probability 1 - alpha."""
    low, high = np.reshape(estimate.interval(1 - ALPHA), (-1, 2)).T
    return bool(np.all(low <= truth) and np.all(truth <= high))


class TestQuestions:
    def test_histogram_by_both_routes(self, frame):
        for route in ("auto", "counts", "partial"):
            estimate = sdp.spark.run(frame, "mode", histogram_protocol(), route=route)
            assert estimate.users == USERS
            assert near(estimate, TRUTH), route
            assert estimate.guarantee.neighbours == "replace-one"

    def test_a_protocol_for_the_number_of_users(self, frame):
        estimate = sdp.spark.run(frame, "mode", histogram_protocol)
        assert estimate.guarantee.users == USERS
        with pytest.raises(BelowMinimumError):
            sdp.spark.run(frame, "mode", histogram_protocol(USERS + 1))
        with pytest.raises(BelowMinimumError):
            sdp.spark.run(frame, "mode", histogram_protocol(USERS + 1), route="partial")

    def test_exact_counts(self, frame):
        counts = sdp.spark.count(frame, "mode", MODES)
        assert counts.tolist() == TRUTH.tolist()
        assert type(counts) is np.ndarray

    def test_count_sum_mean_quantiles(self, frame):
        table = sdp.spark.table(frame)
        yes = len(range(0, USERS, 7))
        assert near(sdp.count(table["smoker"], **TARGET), yes)
        assert near(sdp.count(table["mode"], equals="bus", route="messages", **TARGET), TRUTH[0])
        total = sum(i % 100 for i in range(USERS))
        assert near(sdp.sum(table["minutes"], lower=0, upper=100, **TARGET), total)
        for protocol in ("cheu", "privacy-blanket"):
            assert near(sdp.mean(table["minutes"], lower=0, upper=100, protocol=protocol, **TARGET), total / USERS)
        central = sdp.mean(table["minutes"], lower=0, upper=100, trust="central", **TARGET)
        assert near(central, total / USERS)
        assert 30 < sdp.quantiles(table["minutes"], lower=0, upper=100, bins=100, **TARGET).median.value < 70
        assert sdp.histogram(table["minutes"], bins=[0, 50, 100], **TARGET).users == USERS
        mean = sdp.find("sum", "cheu").calibrate(users=USERS, lower=0, upper=100, **TARGET)
        assert near(sdp.spark.run(frame, "minutes", mean), total)

    def test_sessions(self, frame):
        session = sdp.Session.of(frame, columns=["mode", "minutes"], releases=2, **TARGET)
        assert session.users == USERS
        assert session.histogram("mode", categories=MODES).users == USERS
        assert session.mean("minutes", lower=0, upper=100).users == USERS
        assert session.spent.epsilon <= 1.0

    def test_sessions_about_complete_rows(self, spark):
        rows = [("bus", 1.0, 1), ("car", None, 2), (" ", 2.0, 3)] * 500 + [("car", 3.0, 4 + i) for i in range(500)]
        frame = spark.createDataFrame(rows, "mode string, minutes double, id int")
        session = sdp.Session.of(frame, columns=["mode", "minutes"], user="id", epsilon=1, delta=1e-3)
        assert session.users == 501
        estimate = session.histogram("mode", categories=["bus", "car"], share=0.5)
        assert estimate.users == 501
        assert any("who they are, and their number, is not protected" in caveat for caveat in estimate.caveats)

    def test_refusals(self, frame):
        protocol = histogram_protocol()
        with pytest.raises(UnknownNameError, match="no route 'messages'"):
            sdp.spark.run(frame, "mode", protocol, route="messages")
        with pytest.raises(ParameterError, match="A protocol is needed"):
            sdp.spark.run(frame, "mode", "best")
        with pytest.raises(ParameterError, match="has no column 'none'"):
            sdp.spark.run(frame, "none", protocol)
        with pytest.raises(DataError, match="outside the domain"):
            sdp.spark.run(frame, "minutes", protocol)
        with pytest.raises(DataError, match="outside the domain"):
            sdp.spark.run(frame, "minutes", protocol, route="partial")
        with pytest.raises(ParameterError, match="A Spark data frame is needed"):
            sdp.spark.table([1, 2])
        seeded = sdp.InsecureSeededRandomness(1)
        with pytest.raises(ParameterError, match="A seed cannot repeat the noise"):
            sdp.spark.run(frame, "mode", protocol, route="partial", source=seeded)
        first, second = (
            sdp.spark.run(frame, "mode", protocol, source=sdp.InsecureSeededRandomness(1)) for _ in range(2)
        )
        assert np.array_equal(first.counts, second.counts)
        assert not first.secure


def same_twice(value):
    """Whether evaluating an object twice gives the same numbers."""
    return json.dumps(value.to_json(0.95), default=str) == json.dumps(value.to_json(0.95), default=str)


def test_what_is_returned_does_not_draw_again(frame, spark, tmp_path):
    """Evaluated twice, every result is the same; a lazy noisy frame, the planted fault, is not."""
    protocol = histogram_protocol()
    for route in ("counts", "partial"):
        assert same_twice(sdp.spark.run(frame, "mode", protocol, route=route))
    table = sdp.spark.table(frame)
    assert same_twice(sdp.mean(table["minutes"], lower=0, upper=100, **TARGET))
    groups = sdp.spark.run_groups(
        frame, "minutes", sdp.Mean(1, 0, 100), group_by="mode", out=str(tmp_path / "out"), **TARGET
    )
    assert groups.to_frame().equals(groups.to_frame())
    written = spark.read.parquet(str(tmp_path / "out"))
    first, second = written.toPandas(), written.toPandas()
    assert first.equals(second)
    assert len(first) == len(groups.to_frame())
    lazy = frame.select("mode").mapInArrow(
        RandomizeRows({0: protocol}, CategoryEncoder(MODES)),
        "partition int, part int, users bigint, state string, counts binary",
    )
    draws = [sum(unpack_counts(row.counts).tolist()[0] for row in lazy.collect()) for _ in range(6)]
    assert len(set(draws)) > 1


ROUNDS, SMALL = 1_500, 20
SMALL_PROTOCOL = sdp.find("histogram", "uniform-blanket").calibrate(
    users=SMALL, categories=MODES, epsilon=3.0, delta=1e-2
)
SMALL_INDICES = np.array([0] * 12 + [1] * 8)


def two_sample(found, expected):
    """The p value of the hypothesis that two samples of tallies have one distribution: chi-square on all cells."""
    cells = {}
    for sample, tallies in enumerate((found, expected)):
        for counts in tallies:
            key = (int(counts[0]) // 3, int(counts[1]) // 3, int(counts.sum()) // 3)
            cells.setdefault(key, [0, 0])[sample] += 1
    table = np.array(list(cells.values()))
    rare = table.sum(axis=1) < 20
    table = np.vstack([table[~rare], table[rare].sum(axis=0)]) if rare.any() else table
    table = table[table.sum(axis=1) > 0]
    return stats.chi2_contingency(table.T).pvalue


@pytest.fixture(scope="module")
def tallies(spark):
    """Many rounds in one job, each with its users in several partitions."""
    rows = [(int(code), part) for part in range(ROUNDS) for code in SMALL_INDICES]
    frame = spark.createDataFrame(rows, f"{CODE} bigint, {PART} int").repartition(4)
    return tally_parts(frame, dict.fromkeys(range(ROUNDS), SMALL_PROTOCOL), SYSTEM)


def task_batch(numbers):
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(numbers, type=pa.int64())], names=["id"])


@pytest.fixture(scope="module")
def counted_tallies():
    """As many rounds of counted users, each divided into three tasks, by the function that the workers run."""
    held, counts = np.unique(SMALL_INDICES, return_counts=True)
    work = RandomizeCounts(SMALL_PROTOCOL, held, np.cumsum(counts), 3)

    def round_of_tasks():
        rows = [row for task in range(3) for batch in work([task_batch([task])]) for row in batch.to_pylist()]
        assert [row["users"] for row in rows] == [6, 7, 7]
        return sum(unpack_counts(row["counts"]) for row in rows)

    return [round_of_tasks() for _ in range(ROUNDS)]


@pytest.fixture(scope="module")
def expected():
    counts = np.bincount(SMALL_INDICES, minlength=3)
    return [SMALL_PROTOCOL.sample_tally(counts).counts for _ in range(ROUNDS)]


class TestDistribution:
    """Partial tallies against ``sample_tally``: alpha 1e-6, 1,500 rounds of 20 users over 4 partitions."""

    def test_is_that_of_a_round(self, tallies, expected):
        assert {tally.users for tally in tallies.values()} == {SMALL}
        assert two_sample([tally.counts for tally in tallies.values()], expected) > ALPHA

    def test_of_counted_users_is_the_same(self, counted_tallies, expected):
        assert two_sample(counted_tallies, expected) > ALPHA

    def test_rejects_a_tally_that_is_returned_twice(self, tallies, expected):
        twice = [tally.counts * (1 + (part % 4 == 0)) for part, tally in tallies.items()]
        assert two_sample(twice, expected) < ALPHA

    def test_rejects_a_part_of_the_users(self, tallies, expected):
        lost = [SMALL_PROTOCOL.sample_tally(np.bincount(SMALL_INDICES[:-4], minlength=3)).counts for _ in range(ROUNDS)]
        assert two_sample(lost, expected) < ALPHA


@pytest.mark.parametrize("tasks", [1, 2, 7, 40])
def test_counted_users_are_divided_without_loss(tasks):
    """Every user is in exactly one task, also where counts are 0, large or fewer than tasks."""
    random = np.random.default_rng()
    for counts in ([1], [0, 3, 0, 5], [0, 0, 2], random.integers(0, 30, 50).tolist(), [10**6, 1, 10**6]):
        held = np.flatnonzero(counts)
        cumulative = np.cumsum(np.array(counts)[held])
        work = RandomizeCounts(SMALL_PROTOCOL, held, cumulative, tasks)
        bounds = [int(cumulative[-1]) * number // tasks for number in range(tasks + 1)]
        parts = [work.values(start, end) for start, end in pairwise(bounds)]
        assert [len(part) for part in parts] == np.diff(bounds).tolist()
        assert np.bincount(np.concatenate(parts), minlength=len(counts)).tolist() == counts


OTHER_ROUNDS, OTHER_USERS = 800, 40
OTHER_TARGET = {"epsilon": 4.0, "delta": 0.05}
QUESTIONS = {
    "count": (sdp.Count(OTHER_USERS), lambda domain: [0, 1, 1, 1]),
    "quantiles": (sdp.Quantiles(OTHER_USERS, 0, 8, 8), lambda domain: [0, 1, 1, 6]),
    "strings": (
        sdp.FrequentStrings(OTHER_USERS, sdp.Strings("ab", 2)),
        lambda domain: domain.encode_all(["", "ab", "ab", "b"]),
    ),
    "mean": (sdp.Mean(OTHER_USERS, 0, 1), lambda domain: [0.0, 0.25, 0.25, 1.0]),
}


def scalar_p_value(first, second):
    """The p value that two samples of tallies have one distribution, by three functions of a tally with many values."""
    size = len(first[0])
    weights = [np.ones(size), np.arange(size) < size / 2, np.sin(np.arange(size))]
    found = []
    for weight in weights:
        samples = [np.array([counts @ weight for counts in tallies]) for tallies in (first, second)]
        edges = np.unique(np.quantile(np.concatenate(samples), np.linspace(0, 1, 13)[1:-1]))
        table = np.array([np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in samples])
        table = table[:, table.sum(axis=0) > 0]
        found.append(stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0)
    return min(found) * len(found)


@pytest.mark.parametrize("name", QUESTIONS)
def test_other_questions_have_the_distribution_of_the_local_engine(spark, name):
    """Two samples of 800 rounds of 40 users over 3 partitions, alpha 1e-6; parts are what groups are.

    The planted fault: in every other round, a quarter of the users sends twice.
    """
    question, codes_of = QUESTIONS[name]
    protocol = sdp.plan(question, **OTHER_TARGET).best
    codes = np.tile(codes_of(protocol.domain), OTHER_USERS // 4)
    kind = {"strings": "string", "mean": "double"}.get(name, "bigint")
    written = [str(code) if name == "strings" else code.item() for code in codes]
    rows = [(code, part) for part in range(OTHER_ROUNDS) for code in written]
    frame = spark.createDataFrame(rows, f"{CODE} {kind}, {PART} int").repartition(3)
    tallies = tally_parts(frame, dict.fromkeys(range(OTHER_ROUNDS), protocol), SYSTEM)
    assert {tally.users for tally in tallies.values()} == {OTHER_USERS}

    def local(values):
        return protocol.tally(protocol.randomize_all(values)).counts

    found = [tally.counts for tally in tallies.values()]
    expected = [local(codes) for _ in range(OTHER_ROUNDS)]
    assert scalar_p_value(found, expected) > ALPHA
    faulty = [
        counts + (local(codes[: OTHER_USERS // 4]) if number % 2 == 0 else 0) for number, counts in enumerate(expected)
    ]
    assert scalar_p_value(faulty, expected) < ALPHA


class TestFailures:
    def randomizing(self, monkeypatch, change):
        """Let the workers run a changed function."""
        for work in (RandomizeRows, RandomizeCounts):
            changed = lambda *arguments, work=work: change(work(*arguments))  # noqa: E731
            monkeypatch.setattr(partial, work.__name__, changed)

    def rounds(self, frame):
        """A round of counted users, and one of rows: their users, and whether the estimates are near the truth."""
        histogram = sdp.spark.run(frame, "mode", histogram_protocol(), route="partial")
        yield histogram.users, near(histogram, TRUTH)
        mean = sdp.find("sum", "cheu").calibrate(users=USERS, lower=0, upper=100, **TARGET)
        total = sdp.spark.run(frame, "minutes", mean)
        yield total.users, near(total, sum(i % 100 for i in range(USERS)))

    def test_attempts_that_fail_after_randomizing_do_not_count(self, frame, monkeypatch):
        def failing(work):
            def run(batches):
                from pyspark import TaskContext

                rows = list(work(batches))
                task = TaskContext.get()
                if task.partitionId() == 1 and task.attemptNumber() < 2:
                    raise RuntimeError("after the noise was drawn")
                yield from rows

            return run

        self.randomizing(monkeypatch, failing)
        assert list(self.rounds(frame)) == [(USERS, True)] * 2

    def test_a_task_that_fails_always_releases_nothing(self, frame, monkeypatch):
        def failing(work):
            def run(batches):
                list(work(batches))
                raise RuntimeError("always")
                yield

            return run

        self.randomizing(monkeypatch, failing)
        with pytest.raises(EngineError, match=r"always.*Nothing was released"):
            sdp.spark.run(frame, "mode", histogram_protocol(), route="partial")
        with pytest.raises(EngineError, match=r"always.*Nothing was released"):
            sdp.mean(sdp.spark.table(frame)["minutes"], lower=0, upper=100, **TARGET)

    def test_a_partition_that_returns_its_tally_twice_is_refused(self, frame, monkeypatch):
        def doubled(work):
            def run(batches):
                rows = list(work(batches))
                yield from rows + rows

            return run

        self.randomizing(monkeypatch, doubled)
        with pytest.raises(EngineError, match="Spark returned a partition twice"):
            sdp.spark.run(frame, "mode", histogram_protocol(), route="partial")
        with pytest.raises(EngineError, match="Spark returned a partition twice"):
            sdp.mean(sdp.spark.table(frame)["minutes"], lower=0, upper=100, **TARGET)

    def test_data_that_change_between_two_reads_are_refused(self, spark):
        column = sdp.spark.table(spark.range(2_000).selectExpr("cast(id % 10 as double) as x"))["x"]
        rows = column.positions(sdp.Interval(0, 10))
        rows._users += 1
        protocol = sdp.find("sum", "cheu").calibrate(users=2_000, lower=0, upper=10, **TARGET)
        with pytest.raises(EngineError, match="changed between two reads: there were 2,001 users, then 2,000"):
            rows.tally(protocol, source=SYSTEM)

    def test_workers_with_another_version_are_refused(self, frame, monkeypatch):
        def older(work):
            object.__setattr__(work, "version", "0.0.1")
            return work

        self.randomizing(monkeypatch, older)
        with pytest.raises(EngineError, match="install the same version on both"):
            sdp.spark.run(frame, "mode", histogram_protocol(), route="partial")
        with pytest.raises(EngineError, match="install the same version on both"):
            sdp.mean(sdp.spark.table(frame)["minutes"], lower=0, upper=100, **TARGET)


def test_released_tallies_do_not_add_up():
    """``sample-and-threshold`` and central protocols release once, on the driver: a part must not be released."""
    counts = np.array([500, 300, 200])
    released = sdp.find("histogram", "discrete-laplace").calibrate(users=1_000, categories=MODES, **TARGET)
    with pytest.raises(ParameterError):
        released.sample_tally(counts) + Tally(counts, 1_000)


@pytest.mark.parametrize("name", ["sample-and-threshold", "discrete-laplace", "k-rr", "count-min", "correlated-noise"])
def test_every_kind_of_protocol_has_a_partial_route(frame, name):
    protocol = histogram_protocol(USERS, name)
    for route in ("counts", "partial"):
        estimate = sdp.spark.run(frame, "mode", protocol, route=route)
        assert estimate.users == USERS
        assert abs(estimate.counts.sum() - USERS) < USERS


def test_counts_are_packed_without_loss():
    for counts in ([], [0], [1, 255], [256, 0], [1 << 40, 3]):
        assert unpack_counts(pack_counts(np.array(counts, dtype=np.int64))).tolist() == counts


def test_two_workers_draw_different_bytes(spark):
    def draw(batches):
        import pyarrow as pa

        for _ in batches:
            pass
        time.sleep(0.2)
        yield pa.RecordBatch.from_arrays([pa.array([draw_bytes(16, SYSTEM).tobytes()])], names=["b"])

    drawn = [row.b for row in spark.range(64).repartition(8).mapInArrow(draw, "b binary").collect()]
    assert len(drawn) == 8
    assert len(set(map(bytes, drawn))) == 8
