"""Spark sessions: finding or starting one, its version, and failures of Spark as one clear line."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from shuffledp import __version__
from shuffledp.errors import DataError, EngineError
from shuffledp.extras import extra

with extra("spark", "The Spark engine"):
    import pyspark
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import DataFrame, SparkSession

try:
    from py4j.protocol import Py4JError
except ModuleNotFoundError:  # an installation of the Connect client only
    Py4JError = PySparkException

Session: TypeAlias = SparkSession
Frame: TypeAlias = DataFrame

MIN_VERSION = (4, 0)
_SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
_DEFAULT_MASTER = "local[*]"
_MAX_REASON = 300
_CAUSED = re.compile(r"(?:Caused by)?: (?:[\w$]+\.)+[\w$]+: (.+)")
_NO_RELEASE = "Nothing was released"


def start_session(master: str | None = None, *, progress: bool = False) -> Session:
    """The active Spark session, or a new one.

    A new one connects to ``master``, such as ``local[4]``, ``yarn``, ``spark://host:7077`` or, for Spark Connect,
    ``sc://host:15002``; by default it follows Spark's own configuration, else it uses all cores of this machine.
    ``progress`` shows the progress of stages on the standard error stream. An active session is used as it is.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = _new_session(master, progress=progress)
    elif master is not None:
        raise EngineError(
            f"There is an active Spark session, which cannot be connected to {master}: stop it first, or leave the "
            "master out."
        )
    check_session(spark)
    return spark


def check_session(spark: Session) -> None:
    """Refuse a Spark that is too old: before version 4.0 it may count rows twice after a lost executor."""
    version = re.match(r"(\d+)\.(\d+)", spark.version)
    if version is None or tuple(map(int, version.groups())) < MIN_VERSION:
        raise EngineError(
            f"This is Spark {spark.version}; version {'.'.join(map(str, MIN_VERSION))} or newer is needed.",
            version=spark.version,
        )


@contextmanager
def explained_failures() -> Iterator[None]:
    """Turn failures of Spark inside this block into a DataError or an EngineError of one line."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _explained(error) from None


def _new_session(master: str | None, *, progress: bool) -> Session:
    remote = master is not None and master.startswith("sc://")
    builder = SparkSession.builder.appName("shuffledp")
    if remote:
        builder = builder.remote(master)
    elif master is not None or not _has_master():
        builder = builder.master(master or _DEFAULT_MASTER)
    if not remote and "SPARK_REMOTE" not in os.environ:
        _check_java()
        # otherwise workers are started by the python3 of the system, which does not have this package
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.ui.showConsoleProgress", str(progress).lower())
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        reason = _reason(error)
        if "on a stopped " in reason:  # Spark logs why, and then ends the application
            reason = "the master does not answer, or it ended the application"
        raise EngineError(f"Cannot start Spark {pyspark.__version__} ({reason}). {_START_ADVICE}") from None


_START_ADVICE = "Check the master and the configuration of Spark; it needs Java 17 or newer."


def _has_master() -> bool:
    """Whether Spark's own configuration says where to run."""
    if "MASTER" in os.environ or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if not directory:
        return False
    try:
        defaults = (Path(directory) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^\s*spark\.(master|remote)\b", defaults, re.MULTILINE) is not None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home:
        if not (Path(home) / "bin" / "java").exists():
            raise EngineError(f"JAVA_HOME is {home}, which has no bin/java. Spark needs Java 17 or newer there.")
    elif shutil.which("java") is None:
        raise EngineError(
            "Spark needs Java 17 or newer, and there is no java: install one (on Debian: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME."
        )


def _explained(error: Exception) -> DataError | EngineError:
    text = str(error)
    if "No module named 'shuffledp" in text:
        return EngineError(
            f"The workers of Spark cannot import shuffledp. Install version {__version__} on them (as a library of the "
            f"cluster, or a packed environment in spark.archives), or set PYSPARK_PYTHON to a Python that has it. "
            f"{_NO_RELEASE}.",
            workers="without shuffledp",
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        version = re.search(r"Python in worker has different version: ([0-9.]+)", text)
        of_workers = f"Python {version[1]}" if version else "another version of Python"
        return EngineError(
            f"The workers of Spark run {of_workers}, and this process runs Python {platform.python_version()}: set "
            f"PYSPARK_PYTHON to the same version on both. {_NO_RELEASE}.",
            workers=of_workers,
        )
    if (versions := re.search(r"shuffledp version mismatch: ([\w.+-]+)", text)) is not None:
        return EngineError(
            f"The workers of Spark have shuffledp {versions[1]}, and this process has {__version__}: install the same "
            f"version on both. {_NO_RELEASE}.",
            workers=f"shuffledp {versions[1]}",
        )
    if re.search(r"(Can't get attribute|cannot import name) '\w+' (on <module|from) 'shuffledp", text) is not None:
        return EngineError(
            f"The workers of Spark have another version of shuffledp, without a function of {__version__}, which this "
            f"process has: install the same version on both. {_NO_RELEASE}.",
            workers="another version of shuffledp",
        )
    if (program := re.search(r"Cannot run program \"([^\"]+)\"", text)) is not None:
        return EngineError(
            f"The workers of Spark have no Python at {program[1]}: set PYSPARK_PYTHON to one that has shuffledp "
            f"{__version__}. {_NO_RELEASE}.",
            workers="without Python",
        )
    if "PATH_NOT_FOUND" in text:
        path = re.search(r"Path does not exist: (\S+?)\.?(?:\s|$)", text)
        return DataError(f"Cannot read {path[1] if path else 'the files'}: there is no such file.")
    if "ExecutorLostFailure" in text or "FetchFailed" in text:
        return EngineError(
            f"Spark lost executors ({_reason(error)}). {_NO_RELEASE}. Give executors more memory or more, smaller "
            "partitions, and run again."
        )
    if isinstance(error, AnalysisException):
        return DataError(f"Spark cannot read the data ({_reason(error)}).")
    return EngineError(f"Spark failed ({_reason(error)}). {_NO_RELEASE}.")


def _reason(error: Exception) -> str:
    """The cause of a failure in one short line: of a Python traceback, the innermost of Java, or the first line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exit)\b", line)]
    java = [found[1] for line in lines if (found := _CAUSED.match(line))]
    line = python[-1] if "Traceback (most recent call last)" in text and python else (lines or [""])[0]
    if java and line.startswith("An error occurred while calling"):
        line = java[-1]
    printable = "".join(character for character in line if character.isprintable())
    return printable.rstrip(".")[:_MAX_REASON] or type(error).__name__


def check_worker_version(version: str) -> None:
    """On a worker: refuse another version of shuffledp than that of the driver."""
    if version != __version__:
        raise RuntimeError(f"shuffledp version mismatch: {__version__}")
