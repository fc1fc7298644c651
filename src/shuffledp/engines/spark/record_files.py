"""Directories of records on a cluster: Parquet files written by one committed job, and checked before they are read.

A row has many records of one size, concatenated, and describes them. Rows of randomized messages state the users of
that row; rows of mixed records state those of the whole round, since a mixed record has no origin.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from shuffledp import errors
from shuffledp.engines.spark.session import check_session, explained_failures
from shuffledp.errors import DataError, EngineError, OutputError, ParameterError, ShuffledpError
from shuffledp.extras import extra
from shuffledp.native import ACTIVE
from shuffledp.protocols.documents import to_document

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from shuffledp.engines.spark.session import Frame, Session
    from shuffledp.protocols.protocol import Protocol

RANDOMIZED, MIXED = "randomized", "mixed"
COLUMNS = {
    "contents": "string",  # the protocol or task, by hash
    "record_size": "int",
    "stage": "string",
    "run": "string",  # of the call that wrote the directory
    "batch": "string",  # of this row: no two rows have the same
    "position": "bigint",  # of the row among mixed rows
    "users": "bigint",
    "minimum_users": "bigint",
    "records": "bigint",  # of this row
    "round_records": "bigint",  # of all rows, if mixed
    "content": "binary",
}
FILE = "file"
DESCRIPTION = {name: kind for name, kind in COLUMNS.items() if name not in ("content", "position")} | {FILE: "string"}

_ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
_ATOMIC = {_ALGORITHM: "1", "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
_KINDS = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
_FOREIGN = "was not written by sdp.spark.randomize or sdp.spark.mix."
_SHOWN = 3
_GLOB = re.compile(r"[\[\]{}*?\\]")
_RAISED = re.compile(r"^shuffledp\.errors\.(\w+): (.*)$", re.MULTILINE)

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class RecordFiles:
    """A committed directory of records, as ``sdp.spark.randomize`` and ``sdp.spark.mix`` return it.

    ``contents`` names the protocol or task of the records, ``users`` the users who sent them, and ``silos`` those
    of each call of ``randomize``. It can be given wherever a path can.
    """

    path: str
    contents: str
    record_size: int
    records: int
    users: int
    silos: tuple[int, ...]

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Found:
    """What the rows of some directories say about themselves, after checks of their consistency."""

    frame: Frame
    """All rows, not read yet."""
    stage: str
    contents: str
    record_size: int
    records: int
    users: int
    minimum_users: int
    silos: tuple[int, ...]
    runs: int


def ddl(columns: Mapping[str, str]) -> str:
    """Names and kinds of columns as a schema for Spark."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def row_batch(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] = COLUMNS) -> pa.RecordBatch:
    """Rows as an Arrow batch; what a row does not have is missing."""
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in columns.items()])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def contents_of(protocol: Protocol) -> str:
    """The name of a protocol and a hash of all its parameters."""
    document = json.dumps(to_document(protocol), sort_keys=True, separators=(",", ":"))
    return f"{protocol.question}/{protocol.name} {hashlib.sha256(document.encode()).hexdigest()}"


def path_list(paths: Path | Sequence[Path]) -> list[str]:
    """One or several paths as strings."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given or not all(isinstance(path, str | os.PathLike) for path in given):
        raise ParameterError(f"Give one or several paths of directories; got {paths!r}.")
    return [os.fspath(path).rstrip("/") or "/" for path in given]


def check_atomic(spark: Session) -> None:
    """Refuse a session whose output committer can leave files of failed attempts beside those of successful ones."""
    for name in (_ALGORITHM, f"spark.hadoop.{_ALGORITHM}"):
        if str(spark.conf.get(name, None)).strip() == "2":
            raise EngineError(
                f"{name} is 2: a failed attempt could leave its messages beside those of the next one, which is two "
                "reports of the same users. Set it to 1.",
                setting=name,
            )


def check_new_directory(spark: Session, out: str) -> None:
    """Refuse a directory that has files; an empty one, which a failed job may leave, is used."""
    check_session(spark)
    check_atomic(spark)
    if (patterns := _GLOB.search(out)) is not None:
        raise OutputError(f"Cannot write {out}: Spark reads {patterns[0]} in names as a pattern.", path=out)
    if not _exists(spark, out):
        return
    for entry, state in (
        ("_SUCCESS", "has results of an earlier run"),
        ("_temporary", "is being written, or was left"),
    ):
        if _exists(spark, f"{out}/{entry}"):
            raise OutputError(f"Cannot write {out}: it {state}. Name a new directory.", path=out)
    listed = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(out)
    if listed.select("path").limit(1).collect():
        raise OutputError(f"Cannot write {out}: it has files. Name a new directory.", path=out)


def write_committed(frame: Frame, out: str) -> None:
    """Write the rows by a job that commits each task once, and marks the directory when all are committed."""
    frame.write.mode("append").options(**_ATOMIC).parquet(out)


def find_records(spark: Session, paths: Sequence[str], *, own: bool = False) -> Found:
    """Check the rows of committed directories against each other, without reading records.

    ``own`` says that this call has written the directory: it has no copies if its numbers are right.
    Refused are directories that no job has completed, rows that occur twice, and records of several protocols or tasks.
    """
    frame = read_rows(spark, paths)
    # what describes the rows comes to the driver: a row has up to some megabytes of records, so there are not many
    return check_rows(spark, frame, frame.select(*DESCRIPTION).toArrow(), paths, own=own)


def read_rows(spark: Session, paths: Sequence[str]) -> Frame:
    """All rows of some directories, each with the name of its file; not read yet."""
    return spark.read.schema(ddl(COLUMNS)).parquet(*paths).withColumn(FILE, sf.col("_metadata.file_path"))


def check_rows(spark: Session, frame: Frame, rows: pa.Table, paths: Sequence[str], *, own: bool = False) -> Found:
    """Check all rows of ``frame`` against each other, given their columns ``DESCRIPTION``."""
    directories = [unquote(file).rpartition("/")[0] for file in rows[FILE].to_pylist()]  # Spark quotes as in URLs
    rows = rows.append_column("directory", pa.array(directories, pa.string()))
    shown = ", ".join(paths[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
    if not len(rows):
        raise DataError(f"There are no records in {shown}.")
    for row in rows.to_pylist() if len(rows.drop_null()) < len(rows) else []:
        if None in row.values():
            raise DataError(f"{row['directory']} {_FOREIGN}")
    keys = ["contents", "record_size", "stage", "run", "round_records", "directory"]
    sums = [("records", "sum"), ("records", "min"), ("users", "sum"), ("users", "min"), ("users", "max")]
    groups = rows.group_by(keys).aggregate([*sums, ("minimum_users", "max")]).to_pylist()
    for group in groups:
        if group["stage"] not in (RANDOMIZED, MIXED) or group["record_size"] < 1:
            raise DataError(f"{group['directory']} {_FOREIGN}")
    for directory_name in sorted({group["directory"] for group in groups}):
        if not _exists(spark, f"{directory_name}/_SUCCESS"):
            raise DataError(
                f"{directory_name} is incomplete: it has no file _SUCCESS, so the job that wrote it has not finished, "
                "or it was not copied completely. Run the job again into a new directory, or copy all of it."
            )
    found = _consistent(frame, groups, shown)
    copied = len(pc.unique(rows["batch"])) < len(rows)
    if found.stage == RANDOMIZED and not own and copied:  # copies of mixed rows contradict their total
        raise DataError(
            f"The same records occur twice in {shown}: a directory was given twice, or its files were copied. Every "
            "report must be counted once."
        )
    return found


def _consistent(frame: Frame, groups: Sequence[Any], shown: str) -> Found:
    contents = sorted({f"{group['contents']} ({group['record_size']} bytes)" for group in groups})
    if len(contents) > 1:
        raise DataError(
            f"{shown} have records of different protocols or tasks: {'; '.join(contents[:_SHOWN])}. Mix and count "
            "those of one round only.",
            contents=contents,
        )
    stages = {group["stage"] for group in groups}
    if len(stages) > 1:
        raise DataError(f"{shown} have both mixed and unmixed records; mix those of one stage only.")
    (stage,) = stages
    silos: dict[str, int] = {}
    records: dict[str, int] = {}
    for group in groups:
        if group["records_min"] < 0 or group["users_min"] < 0:
            raise DataError(f"{shown} have rows with negative numbers of users or records; they are damaged.")
        records[group["run"]] = records.get(group["run"], 0) + group["records_sum"]
        if stage == RANDOMIZED:
            silos[group["run"]] = silos.get(group["run"], 0) + group["users_sum"]
        elif (
            group["users_min"] != group["users_max"]
            or silos.get(group["run"], group["users_max"]) != group["users_max"]
        ):
            raise DataError(f"The rows of {shown} contradict each other about their number of users; they are damaged.")
        else:
            silos[group["run"]] = group["users_max"]
    if stage == MIXED:
        for group in groups:
            if records[group["run"]] != group["round_records"]:
                raise DataError(
                    f"{group['directory']} has {records[group['run']]:,} of {group['round_records']:,} mixed records; "
                    "copy all of it."
                )
    return Found(
        frame,
        stage,
        groups[0]["contents"],
        groups[0]["record_size"],
        sum(records.values()),
        sum(silos.values()),
        max(group["minimum_users_max"] or 0 for group in groups),
        tuple(sorted(silos.values(), reverse=True)),
        len(silos),
    )


def check_same_kernels(compiled: bool) -> None:
    """On a worker: refuse an installation that draws other groups from the same key than the driver's."""
    if compiled != ACTIVE:
        have, lack = ("the driver", "a worker") if compiled else ("a worker", "the driver")
        raise EngineError(
            f"shuffledp has compiled kernels on {have} and none on {lack}, so a repeated task could group its records "
            "differently. Install the same build everywhere."
        )


@contextmanager
def refusals() -> Iterator[None]:
    """Raise errors of this package that occurred on workers as they are, and other failures of Spark as one line."""
    with explained_failures():
        try:
            yield
        except PySparkException as error:
            raised = _RAISED.findall(str(error))
            kind = getattr(errors, raised[-1][0], None) if raised else None
            if not isinstance(kind, type) or not issubclass(kind, ShuffledpError):
                raise
            raise kind(raised[-1][1].strip()) from None


def _exists(spark: Session, path: str) -> bool:
    """Whether there is a file or directory of this name, in which no character stands for others."""
    try:
        spark.read.format("binaryFile").load(_GLOB.sub(r"\\\g<0>", path)).schema  # noqa: B018 - Spark looks for the path
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True
