"""The Spark session: found, started, checked; its failures in one line."""

from types import SimpleNamespace

import pytest

from shuffledp import __version__
from shuffledp.engines.spark import session
from shuffledp.engines.spark.session import check_session, check_worker_version, explained_failures, start_session
from shuffledp.errors import DataError, EngineError


def test_the_active_session_is_used(spark):
    assert start_session() is spark
    with pytest.raises(EngineError, match="active Spark session, which cannot be connected to yarn"):
        start_session("yarn")


@pytest.mark.parametrize("version", ["3.5.9", "2.4", "?"])
def test_an_old_spark_is_refused(version):
    with pytest.raises(EngineError, match=r"version 4\.0 or newer is needed"):
        check_session(SimpleNamespace(version=version))
    check_session(SimpleNamespace(version="4.0.1"))


def test_a_missing_java_is_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session.SparkSession, "getActiveSession", staticmethod(lambda: None))
    with pytest.raises(EngineError, match="Spark needs Java 17 or newer, and there is no java") as caught:
        start_session()
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="which has no bin/java"):
        start_session()


def test_a_master_that_does_not_answer_is_one_line(spark, monkeypatch):
    class Builder:
        def __getattr__(self, _):
            return lambda *_: self

        def getOrCreate(self):  # noqa: N802
            raise ValueError(
                "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:"
            )

    monkeypatch.setattr(session.SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setattr(session.SparkSession, "builder", Builder())
    with pytest.raises(EngineError, match=r"\(the master does not answer, or it ended the application\)") as caught:
        start_session("spark://127.0.0.1:1")
    assert "\n" not in str(caught.value)


def fail_in_task(message):
    def fail(_batches):
        raise RuntimeError(message)
        yield

    return fail


def test_failures_are_one_line(spark):
    def line(action, kind=EngineError):
        with pytest.raises(kind) as caught, explained_failures():
            action()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600
        return str(caught.value)

    frame = spark.range(10)
    failing = frame.mapInArrow(fail_in_task("the disk is full"), "id bigint")
    assert "the disk is full" in line(failing.collect)
    mismatch = frame.mapInArrow(fail_in_task("shuffledp version mismatch: 0.0.1"), "id bigint")
    assert line(mismatch.collect).startswith(
        f"The workers of Spark have shuffledp 0.0.1, and this process has {__version__}"
    )
    for older in (
        "AttributeError: Can't get attribute 'row_batch' on <module 'shuffledp.engines.spark' from '/x.py'>",
        "ImportError: cannot import name 'row_batch' from 'shuffledp.engines' (/x/y.py)",
    ):
        foreign = frame.mapInArrow(fail_in_task(older), "id bigint")
        assert f"another version of shuffledp, without a function of {__version__}" in line(foreign.collect)
    missing = frame.mapInArrow(fail_in_task("No module named 'shuffledp'"), "id bigint")
    assert "cannot import shuffledp" in line(missing.collect)
    assert "/nothing/here.parquet: there is no such file" in line(
        lambda: spark.read.parquet("/nothing/here.parquet"), DataError
    )
    assert "Spark cannot read the data" in line(lambda: frame.select("nothing").collect(), DataError)


def test_a_worker_compares_versions():
    check_worker_version(__version__)
    with pytest.raises(RuntimeError, match="shuffledp version mismatch"):
        check_worker_version("0.0.1")
