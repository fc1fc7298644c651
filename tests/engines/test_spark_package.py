"""The Spark engine as a package: what it must not use, and what is said where PySpark is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import shuffledp

PACKAGE = Path(shuffledp.__file__).parent / "engines" / "spark"
FORBIDDEN = re.compile(r"\bsparkContext\b|\b_jvm\b|\b_jdf\b|\b_sc\b|\.rdd\b|\bRDD\b|\baccumulator\b", re.IGNORECASE)


def test_only_what_spark_connect_has_is_used():
    sources = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py")}
    assert "partial.py" in sources
    assert {name: FORBIDDEN.findall(source) for name, source in sources.items() if FORBIDDEN.search(source)} == {}


@pytest.mark.parametrize("planted", ["spark.sparkContext.parallelize(x)", "frame.rdd.map(f)", "spark._jvm.java"])
def test_the_search_finds_planted_faults(planted):
    assert FORBIDDEN.search(planted)


@pytest.mark.parametrize("code", ["sdp.spark.table", "sdp.spark.run", "sdp.spark.start_session"])
def test_a_missing_pyspark_is_one_line(code):
    script = f"import sys; sys.modules['pyspark'] = None\nimport shuffledp as sdp\ntry:\n    {code}\n"
    script += "except sdp.MissingPackageError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "The Spark engine needs pyspark: pip install 'shuffledp[spark]'.\n"


def test_the_name_loads_nothing():
    script = "import sys, shuffledp as sdp; sdp.spark; dir(sdp.spark); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
