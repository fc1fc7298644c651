"""The page about silos and the example run, on a real Spark."""

import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_runs(spark, tmp_path):
    """Every Python block, in order; a text block after one is what it prints."""
    names: dict[str, object] = {}
    page = (ROOT / "docs" / "spark-silos.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", page, re.DOTALL)
    assert len(blocks) >= 3
    for block, shown in blocks:
        # Spark resolves relative paths against the directory in which its process was started
        code = re.sub('"(messages|mixed)', rf'"{tmp_path}/\1', block)
        with redirect_stdout(StringIO()) as printed:
            exec(compile(code, "spark-silos.md", "exec"), names)
        if shown:
            assert printed.getvalue() == shown


def test_the_example_runs(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "spark_silos.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "north: 3,000 users" in printed
    assert "6,000 users, silos of (3000, 3000)" in printed
