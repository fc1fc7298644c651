"""The flow of silos: randomize, mix the files of all, count; what is incomplete, doubled or foreign is refused."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import shuffledp as sdp
from shuffledp.errors import BelowMinimumError, DataError, EngineError, OutputError, ParameterError
from shuffledp.messages import Messages

CATEGORIES = ("bus", "bike", "car", "walk")
USERS = 400


@pytest.fixture(scope="module")
def protocol():
    return sdp.find("histogram", "uniform-blanket").calibrate(
        users=USERS, epsilon=2.0, delta=1e-3, categories=CATEGORIES, honest_fraction=0.5
    )


def frame_of(spark, indices, partitions: int = 2):
    rows = [(CATEGORIES[index],) for index in indices]
    return spark.createDataFrame(rows, "mode string").repartition(partitions)


@pytest.fixture(scope="module")
def silos(spark, protocol, tmp_path_factory):
    """Two organisations' directories, made once and never changed."""
    directory = tmp_path_factory.mktemp("silos")
    sizes = (300, 200)
    return [
        sdp.spark.randomize(frame_of(spark, np.arange(size) % 4), "mode", protocol, out=directory / str(number))
        for number, size in enumerate(sizes)
    ]


@pytest.fixture(scope="module")
def mixed(silos, tmp_path_factory):
    return sdp.spark.mix(silos, out=tmp_path_factory.mktemp("mixed") / "out")


def content_of(path) -> bytes:
    table = pq.read_table(os.fspath(path)).sort_by("position")
    return b"".join(table.column("content").to_pylist())


def records_of(*paths, size: int) -> list[bytes]:
    content = b"".join(content_of(path) for path in paths)
    return sorted(content[start : start + size] for start in range(0, len(content), size))


def test_every_message_of_every_silo_is_mixed_and_counted_once(silos, mixed, protocol):
    assert [silo.users for silo in silos] == [300, 200]
    assert (mixed.users, mixed.silos, mixed.records) == (500, (300, 200), sum(silo.records for silo in silos))
    size = protocol.message_format.size
    before, after = records_of(*silos, size=size), records_of(mixed, size=size)
    assert before == after
    packed = np.frombuffer(b"".join(after), dtype=np.uint8).reshape(-1, size)
    expected = protocol.tally(Messages(protocol.message_format.unpack(packed), 500))
    counted = sdp.spark.tally(mixed, protocol)
    assert counted == expected
    estimate = protocol.estimate(counted)
    assert estimate.users == 500
    assert estimate.guarantee.epsilon == 2.0
    assert counted.secure


def test_a_result_that_is_evaluated_twice_gives_the_same_numbers(spark, silos, mixed, protocol):
    """Results are committed files and driver data. The planted fault: the lazy frame behind them changes."""
    for result in (*silos, mixed):
        assert content_of(result) == content_of(result)
        twice = [spark.read.parquet(result.path).orderBy("batch").select("content").collect() for _ in range(2)]
        assert twice[0] == twice[1]
    assert sdp.spark.tally(mixed, protocol) == sdp.spark.tally(mixed, protocol)
    from shuffledp.engines.spark import randomizing

    frame = frame_of(spark, np.arange(50) % 4)
    encoder, _ = randomizing._encoder(sdp.spark.table(frame)["mode"], protocol, None, None, None, False)
    lazy = frame.mapInArrow(randomizing._randomizer(protocol, encoder, "", ""), randomizing.ddl(randomizing.COLUMNS))
    assert lazy.select("content").collect() != lazy.select("content").collect()


def test_globs_and_cascades_of_shufflers(silos, tmp_path):
    for silo in silos:
        shutil.copytree(silo.path, tmp_path / "in" / Path(silo.path).name)
    once = sdp.spark.mix(f"{tmp_path}/in/*", out=tmp_path / "once", labels=4)
    again = sdp.spark.mix(once, out=tmp_path / "again", labels=2)
    assert (again.users, again.records) == (500, once.records)
    size = once.record_size
    assert records_of(again, size=size) == records_of(*silos, size=size)
    assert content_of(again) != content_of(once)


def test_a_directory_without_success_is_refused(silos, mixed, protocol, tmp_path):
    for result, use in (
        (silos[0], lambda path: sdp.spark.mix([path, silos[1]], out=tmp_path / "out")),
        (mixed, lambda path: sdp.spark.tally(path, protocol)),
    ):
        copied = tmp_path / f"half-{Path(result.path).name}"
        shutil.copytree(result.path, copied)
        (copied / "_SUCCESS").unlink()
        with pytest.raises(DataError, match="incomplete: it has no file _SUCCESS"):
            use(copied)
    assert not (tmp_path / "out").exists()


def test_a_mixed_directory_with_a_missing_file_is_refused(silos, protocol, tmp_path):
    mixed = sdp.spark.mix(silos, out=tmp_path / "mixed", labels=8)
    max((tmp_path / "mixed").glob("part-*"), key=lambda file: file.stat().st_size).unlink()
    with pytest.raises(DataError, match="mixed records; copy all of it"):
        sdp.spark.tally(mixed, protocol)


def test_the_same_records_twice_are_refused(silos, tmp_path):
    with pytest.raises(DataError, match="occur twice"):
        sdp.spark.mix([silos[0], silos[1], silos[0]], out=tmp_path / "out")
    shutil.copytree(silos[0].path, tmp_path / "copy")
    with pytest.raises(DataError, match="occur twice"):
        sdp.spark.mix([silos[0], tmp_path / "copy"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_records_of_several_protocols_are_refused(spark, silos, mixed, protocol, tmp_path):
    other = sdp.find("histogram", "uniform-blanket").calibrate(
        users=USERS, epsilon=1.9, delta=1e-3, categories=CATEGORIES
    )
    foreign = sdp.spark.randomize(frame_of(spark, [0, 1]), "mode", other, out=tmp_path / "other")
    with pytest.raises(DataError, match="different protocols or tasks"):
        sdp.spark.mix([silos[0], foreign], out=tmp_path / "out")
    with pytest.raises(DataError, match="Use the protocol of the round"):
        sdp.spark.tally(mixed, other)
    with pytest.raises(DataError, match="both mixed and unmixed"):
        sdp.spark.mix([silos[0], mixed], out=tmp_path / "out")


def test_unmixed_messages_are_not_counted(silos, protocol):
    with pytest.raises(DataError, match="not mixed: their order shows who sent them"):
        sdp.spark.tally(silos[0], protocol)


def test_two_mixtures_are_not_one_release(silos, mixed, protocol, tmp_path):
    shutil.copytree(mixed.path, tmp_path / "both")
    second = sdp.spark.mix(silos, out=tmp_path / "second")
    for file in Path(second.path).glob("part-*"):
        shutil.copy(file, tmp_path / "both")
    with pytest.raises(DataError, match="2 mixtures; a release is about one"):
        sdp.spark.tally(tmp_path / "both", protocol)


def test_too_few_users_are_not_mixed(silos, tmp_path):
    with pytest.raises(BelowMinimumError, match="requires 400"):
        sdp.spark.mix(silos[0], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def rewritten(source, target: Path, **changes) -> Path:
    """A copy of a directory with other values in some columns."""
    import pyarrow as pa

    table = pq.read_table(os.fspath(source))
    for name, change in changes.items():
        column = pa.array([change(value) for value in table.column(name).to_pylist()], table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    target.mkdir()
    pq.write_table(table, target / "part-0.parquet")
    (target / "_SUCCESS").touch()
    return target


def test_every_label_has_a_task_of_its_own(spark):
    """Labels without codes are the planted fault: some tasks get several."""
    from pyspark.sql import functions as sf

    from shuffledp.engines.spark.mixing import label_codes

    for labels in (1 << power for power in range(14)):
        assert len(set(label_codes(labels).tolist())) == labels
    labels = 64

    def tasks(values) -> int:
        rows = spark.createDataFrame([(int(value),) for value in values], "label int").repartition(labels, "label")
        return rows.select(sf.spark_partition_id()).distinct().count()

    assert tasks(label_codes(labels)) == labels
    assert tasks(range(labels)) < labels


def test_truncated_and_forged_rows_are_refused(silos, mixed, protocol, tmp_path):
    short = rewritten(silos[0], tmp_path / "short", content=lambda content: content[:-1])
    with pytest.raises(DataError, match="truncated or damaged"):
        sdp.spark.mix([short, silos[1]], out=tmp_path / "out")
    with pytest.raises(DataError, match="truncated or damaged"):
        sdp.spark.tally(rewritten(mixed, tmp_path / "shorter", content=lambda content: content[:-1]), protocol)
    forged = rewritten(mixed, tmp_path / "forged", content=lambda content: b"\xff" * len(content))
    with pytest.raises(DataError, match="not of this protocol: the files are damaged or forged"):
        sdp.spark.tally(forged, protocol)
    negative = rewritten(silos[0], tmp_path / "negative", users=lambda _: -1)
    with pytest.raises(DataError, match="negative numbers"):
        sdp.spark.mix([negative, silos[1]], out=tmp_path / "out2")
    contradicting = rewritten(mixed, tmp_path / "contradicting", round_records=lambda number: number + 1)
    with pytest.raises(DataError, match="mixed records; copy all of it"):
        sdp.spark.tally(contradicting, protocol)


def test_other_parquet_files_are_refused(spark, tmp_path):
    spark.range(3).write.parquet(f"{tmp_path}/numbers")
    with pytest.raises(DataError, match="was not written by"):
        sdp.spark.mix(tmp_path / "numbers", out=tmp_path / "out")
    with pytest.raises(DataError, match="no such file"):
        sdp.spark.mix(tmp_path / "nothing", out=tmp_path / "out")
    spark.range(3).selectExpr("id as contents", "id as content").write.parquet(f"{tmp_path}/types")
    with pytest.raises((DataError, EngineError), match="Spark"):
        sdp.spark.mix(tmp_path / "types", out=tmp_path / "out")


def test_rows_without_a_description_or_records_are_refused(silos, mixed, protocol, tmp_path):
    for name in ("users", "record_size", "stage"):
        without = rewritten(silos[0], tmp_path / f"without-{name}", **{name: lambda _: None})
        with pytest.raises(DataError, match=f"without-{name} was not written by"):
            sdp.spark.mix([without, silos[1]], out=tmp_path / "out")
    with pytest.raises(DataError, match="truncated or damaged"):
        sdp.spark.tally(rewritten(mixed, tmp_path / "counted", records=lambda _: None), protocol)
    for source, use in (
        (silos[0], lambda path: sdp.spark.mix([path, silos[1]], out=tmp_path / "out2")),
        (mixed, lambda path: sdp.spark.tally(path, protocol)),
    ):
        with pytest.raises(DataError, match="has 0 bytes: truncated or damaged"):
            use(rewritten(source, tmp_path / f"empty-{source.silos[0]}-{len(source.silos)}", content=lambda _: None))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out2" / "_SUCCESS").exists()


def test_records_of_several_sizes_are_refused(silos, mixed, protocol, tmp_path):
    wide = rewritten(silos[0], tmp_path / "wide", record_size=lambda size: 2 * size, records=lambda count: count // 2)
    with pytest.raises(DataError, match=r"different protocols or tasks: .* \(1 bytes\); .* \(2 bytes\)"):
        sdp.spark.mix([wide, silos[1]], out=tmp_path / "out")
    with pytest.raises(DataError, match="Use the protocol of the round"):
        sdp.spark.tally(rewritten(mixed, tmp_path / "other", record_size=lambda size: 2 * size), protocol)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["north west", "50% of north", "nord-süd", "north[1]"])
def test_names_of_directories_may_have_any_characters(silos, protocol, tmp_path, name):
    shutil.copytree(silos[0].path, tmp_path / "in" / name)
    shutil.copytree(silos[1].path, tmp_path / "in" / "south")
    mixed = sdp.spark.mix(f"{tmp_path}/in/*", out=tmp_path / "mixed")
    assert mixed.users == 500
    assert sdp.spark.tally(mixed, protocol).users == 500
    (tmp_path / "in" / name / "_SUCCESS").unlink()
    with pytest.raises(DataError, match="incomplete: it has no file _SUCCESS"):
        sdp.spark.mix(f"{tmp_path}/in/*", out=tmp_path / "out")


def test_half_written_and_foreign_files_are_one_line(silos, mixed, protocol, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(silos[0].path, damaged)
    largest = max(damaged.glob("part-*"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-20])
    (damaged / f".{largest.name}.crc").unlink()
    foreign = tmp_path / "foreign"
    shutil.copytree(silos[0].path, foreign)
    (foreign / "notes.txt").write_text("Please read me, I am no Parquet file at all.\n")
    counted = tmp_path / "counted"
    shutil.copytree(mixed.path, counted)
    (counted / "notes.txt").write_text("Please read me, I am no Parquet file at all.\n")
    for use in (
        lambda: sdp.spark.mix([damaged, silos[1]], out=tmp_path / "out"),
        lambda: sdp.spark.mix([foreign, silos[1]], out=tmp_path / "out"),
        lambda: sdp.spark.tally(counted, protocol),
    ):
        with pytest.raises((DataError, EngineError)) as raised:
            use()
        assert "\n" not in str(raised.value)
        assert "Parquet" in str(raised.value) or "parquet" in str(raised.value)
    with pytest.raises(DataError, match=r"Cannot read .*: there is no such file"):
        sdp.spark.mix(f"{tmp_path}/nobody-*", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("reports", [0, 2])
def test_users_without_a_report_or_with_two_are_noticed(spark, protocol, tmp_path, monkeypatch, reports):
    """Faults of one of two tasks, whose whole result is delivered twice or not at all, and of one committed file."""
    from shuffledp.engines.spark import randomizing

    frame = frame_of(spark, np.arange(300) % 4)
    randomizer = randomizing._randomizer

    def faulty(*settings):
        task = randomizer(*settings)

        def wrong(batches):
            from pyspark import TaskContext

            for batch in task(batches):
                yield from [batch] * (reports if TaskContext.get().partitionId() == 0 else 1)

        return wrong

    with monkeypatch.context() as patch:
        patch.setattr(randomizing, "_randomizer", faulty)
        with pytest.raises(EngineError, match=r"must not be used: .* of 300 rows"):
            sdp.spark.randomize(frame, "mode", protocol, out=tmp_path / "tasks")

    write = randomizing.write_committed
    monkeypatch.setattr(randomizing, "write_committed", lambda rows, out: (write(rows, out), recommit(out, reports)))
    with pytest.raises(EngineError, match=r"must not be used: .* randomized 300 of 300 rows"):
        sdp.spark.randomize(frame, "mode", protocol, out=tmp_path / "files")


@pytest.mark.parametrize("times", [0, 2])
def test_records_that_are_mixed_twice_or_not_at_all_are_noticed(silos, protocol, tmp_path, monkeypatch, times):
    """Faults of the task of one label, and of one committed file, which the next reader notices."""
    from shuffledp.engines.spark import mixing

    sdp.spark.mix(silos, out=tmp_path / "files", labels=2)
    recommit(tmp_path / "files", times)
    permuter = mixing._permuter

    def faulty(found, run):
        task = permuter(found, run)

        def wrong(table):
            import pyarrow as pa
            from pyspark import TaskContext

            result = task(table)
            if TaskContext.get().partitionId() > 0:
                return result
            return pa.concat_tables([result] * times) if times else result.slice(0, 0)

        return wrong

    monkeypatch.setattr(mixing, "_permuter", faulty)
    with pytest.raises(EngineError, match="must not be used"):
        sdp.spark.mix(silos, out=tmp_path / "tasks", labels=2)
    for name in ("files", "tasks"):
        with pytest.raises(DataError, match="mixed records; copy all of it"):
            sdp.spark.tally(tmp_path / name, protocol)


def recommit(directory, times: int) -> None:
    """Leave out the largest file of a directory, or copy it."""
    largest = max(Path(directory).glob("part-*"), key=lambda file: file.stat().st_size)
    if times:
        shutil.copy(largest, largest.with_name(f"part-again-{largest.name}"))
    else:
        largest.unlink()


def test_nothing_is_overwritten_and_a_failed_run_can_be_repeated(spark, silos, protocol, tmp_path):
    with pytest.raises(OutputError, match="results of an earlier run"):
        sdp.spark.randomize(frame_of(spark, [0]), "mode", protocol, out=silos[0])
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    with pytest.raises(OutputError, match="it has files"):
        sdp.spark.mix(silos, out=tmp_path / "used")
    (tmp_path / "left" / "_temporary").mkdir(parents=True)
    with pytest.raises(OutputError, match="is being written, or was left"):
        sdp.spark.mix(silos, out=tmp_path / "left")
    with pytest.raises(OutputError, match=r"Spark reads \[ in names as a pattern"):
        sdp.spark.mix(silos, out=tmp_path / "mixed[1]")
    bad = spark.createDataFrame([("bus",), ("plane",), (None,), ("NA",)], "mode string")
    message = "2 values are outside the domain .* and 1 value is missing.*other=NAME"
    with pytest.raises(DataError, match=message) as raised:
        sdp.spark.randomize(bad, "mode", protocol, out=tmp_path / "new")
    with pytest.raises(DataError) as local:
        sdp.histogram(["bus", "plane", None, "NA"], categories=CATEGORIES, epsilon=1, delta=1e-3)
    assert set(str(raised.value).split()) == set(str(local.value).split())
    assert (
        sdp.spark.randomize(
            bad, "mode", protocol, out=tmp_path / "new", other="walk", drop_missing=True, missing=("NA",)
        ).users
        == 2
    )


def test_an_output_committer_that_is_not_atomic_is_refused(spark, silos, protocol, tmp_path):
    name = "mapreduce.fileoutputcommitter.algorithm.version"
    spark.conf.set(name, "2")
    try:
        with pytest.raises(EngineError, match=f"{name} is 2"):
            sdp.spark.randomize(frame_of(spark, [0]), "mode", protocol, out=tmp_path / "out")
        with pytest.raises(EngineError, match="Set it to 1"):
            sdp.spark.mix(silos, out=tmp_path / "out")
    finally:
        spark.conf.unset(name)
    spark.conf.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    try:
        assert sdp.spark.mix(silos, out=tmp_path / "marked").users == 500
    finally:
        spark.conf.unset("mapreduce.fileoutputcommitter.marksuccessfuljobs")


def test_arguments(spark, silos, protocol, tmp_path):
    frame, out = frame_of(spark, [0, 1]), tmp_path / "out"
    central = sdp.find("histogram", "discrete-laplace").calibrate(
        users=9, epsilon=1.0, delta=1e-3, categories=CATEGORIES
    )
    with pytest.raises(ParameterError, match="must not leave the organisation"):
        sdp.spark.randomize(frame, "mode", central, out=out)
    with pytest.raises(ParameterError, match="has no column 'x'"):
        sdp.spark.randomize(frame, "x", protocol, out=out)
    with pytest.raises(ParameterError, match="plan for this domain"):
        sdp.spark.randomize(frame, "mode", protocol, out=out, domain=sdp.Bins(0, 10, 3))
    with pytest.raises(DataError, match="no rows"):
        sdp.spark.randomize(frame.limit(0), "mode", protocol, out=tmp_path / "empty")
    for labels in (0, 3, 1 << 20):
        with pytest.raises(ParameterError, match="power of two"):
            sdp.spark.mix(silos, out=out, labels=labels)
    with pytest.raises(ParameterError, match="record_size"):
        sdp.spark.mix(silos, out=out, users=3)
    with pytest.raises(ParameterError, match="one or several paths"):
        sdp.spark.mix([], out=out)


@pytest.mark.parametrize(
    ("question", "name", "settings", "schema", "values"),
    [
        ("count", "balcer-cheu", {}, "value string", ["yes", "no"]),
        ("sum", "cheu", {"lower": 0, "upper": 10}, "value double", [0.0, 2.5]),
        ("histogram", "shuffled-k-rr", {"domain_size": 3}, "value int", [0, 2]),
        ("histogram", "local-hashing", {"domain_size": 9}, "value int", [0, 2]),
    ],
)
def test_every_question_has_silos(spark, tmp_path, question, name, settings, schema, values):
    protocol = sdp.find(question, name).calibrate(users=200, epsilon=2.0, delta=1e-3, **settings)
    frame = spark.createDataFrame([(value,) for value in values * 150], schema)
    written = sdp.spark.randomize(frame, "value", protocol, out=tmp_path / "silo")
    mixed = sdp.spark.mix(written, out=tmp_path / "mixed")
    counted = sdp.spark.tally(mixed, protocol)
    size = protocol.message_format.size
    packed = np.frombuffer(content_of(written), dtype=np.uint8).reshape(-1, size)
    assert counted == protocol.tally(Messages(protocol.message_format.unpack(packed), 300))
    assert protocol.estimate(counted).users == 300


def test_plain_files_of_records_are_mixed(spark, tmp_path):
    rng = np.random.default_rng()
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.chunk").write_bytes(rng.bytes(50 * 100))
    (tmp_path / "in" / ".3.chunk.part").write_bytes(b"x")
    mixed = sdp.spark.mix(
        tmp_path / "in", out=tmp_path / "out", record_size=50, contents="sealed for a test", users=20, labels=4
    )
    assert (mixed.records, mixed.users, mixed.contents) == (300, 20, "sealed for a test")
    whole = b"".join((tmp_path / "in" / f"{number}.chunk").read_bytes() for number in range(3))
    assert records_of(mixed, size=50) == sorted(whole[start : start + 50] for start in range(0, len(whole), 50))
    assert content_of(mixed) != whole
    (tmp_path / "in" / "1.chunk").write_bytes(bytes(99))
    with pytest.raises(DataError, match=r"1\.chunk was truncated: its size is not a multiple of 50 bytes"):
        sdp.spark.mix(tmp_path / "in", out=tmp_path / "out2", record_size=50)
    with pytest.raises(DataError, match="given twice"):
        sdp.spark.mix([tmp_path / "in" / "0.chunk"] * 2, out=tmp_path / "out2", record_size=50)
    with pytest.raises(DataError, match="no records"):
        sdp.spark.mix(tmp_path / "in" / ".3.chunk.part", out=tmp_path / "out2", record_size=50)


def test_one_row_per_user_is_randomized(spark, protocol, tmp_path):
    """500 users with three rows each; the planted fault is the same frame without its user ids."""
    rows = spark.range(1_500).selectExpr(
        "id % 500 as person", "element_at(array('bus', 'bike', 'car', 'walk'), cast(id % 4 + 1 as int)) as mode"
    )
    written = sdp.spark.randomize(rows, "mode", protocol, out=tmp_path / "silo", user="person")
    assert written.users == 500
    assert sum(pq.read_table(os.fspath(written)).column("users").to_pylist()) == 500
    assert sdp.spark.randomize(rows, "mode", protocol, out=tmp_path / "fault").users == 1_500
    with pytest.raises(ParameterError, match=r"give the users' ids too, `user=COLUMN`"):
        sdp.spark.randomize(rows, "mode", protocol, out=tmp_path / "out", pick="value")
    missing = rows.selectExpr("nullif(person, 0) as person", "mode")
    with pytest.raises(DataError, match="3 user ids are missing in person"):
        sdp.spark.randomize(missing, "mode", protocol, out=tmp_path / "out", user="person")
    assert not (tmp_path / "out").exists()
