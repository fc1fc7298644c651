"""The notebook runs from its first cell to its last, and shows what it stores.

Its noise is real, so that numbers differ from run to run: the shapes of outputs are compared, as for console blocks.
``tools/refresh_docs.py everyday.ipynb`` stores the outputs of a new run where their shape has changed.
"""

import copy
import importlib.util
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

DOCS = Path(__file__).parent
EVERYDAY = DOCS / "everyday.ipynb"
MAX_LINES = 40
ANSWERS = 5
CELL_SECONDS = 300
"""Deadline of a cell, which takes a second or two; the machine may be busy."""
STRICT = """import warnings

warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="ipykernel")
"""
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?")
SPACE = re.compile(r"\s+")
STORED = ("image/svg+xml", "text/html", "text/plain")
"""The forms of a result that are stored: of a figure the small one."""


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def write(path, notebook):
    nbformat.write(notebook, path)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code_lines(notebook):
    return sum(bool(line.strip()) for cell in code_cells(notebook) for line in cell.source.splitlines())


def executed(notebook, directory):
    """A copy of the notebook with the outputs of a run in this directory, where warnings are errors.

    The kernel is a process of its own, which is reached by sockets in the directory, without a network.
    """
    notebook = copy.deepcopy(notebook)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    settings = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    sockets = {"transport": "ipc", "connection_file": str(Path(directory, "kernel.json"))}
    NotebookClient(
        notebook,
        kernel_name="python3",
        config=Config(KernelManager=sockets),
        timeout=CELL_SECONDS,
        startup_timeout=CELL_SECONDS,
        record_timing=False,
        resources={"metadata": {"path": str(directory)}},
    ).execute(env=os.environ | dict.fromkeys(settings, str(directory)))
    del notebook.cells[0]
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            if "data" in output:
                output.data = {form: output.data[form] for form in STORED if form in output.data}
    return notebook


def shape(cell):
    """The outputs of a cell: their kinds and forms, and their text without numbers."""
    shapes = []
    for output in cell.outputs:
        texts = {"": output.text} if output.output_type == "stream" else dict(output.data)
        shapes.append((output.output_type, {form: _levelled(form, text) for form, text in texts.items()}))
    return shapes


def _levelled(form, text):
    return "" if form.startswith("image/") else SPACE.sub(" ", NUMBER.sub("0", text)).strip()


def shapes(notebook):
    return {cell.id: shape(cell) for cell in code_cells(notebook)}


def as_markdown(path):
    spec = importlib.util.spec_from_file_location("documentation_conf", DOCS / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    return conf.notebook_to_markdown(path.read_text(encoding="utf-8"))


def test_from_a_csv_file_to_a_page_with_five_answers(tmp_path):
    notebook = read(EVERYDAY)
    assert code_lines(notebook) < MAX_LINES
    run = executed(notebook, tmp_path)
    for cell in code_cells(run):
        assert all(output.get("name") != "stderr" for output in cell.outputs), cell
    assert shapes(run) == shapes(notebook), "run tools/refresh_docs.py everyday.ipynb"
    page = (tmp_path / "commute.html").read_text(encoding="utf-8")
    assert page.count("<h2>") == ANSWERS + 1  # and the report
    assert page.count("<svg") == ANSWERS
    for name in ("count of owns_car", "histogram of mode", "mean of minutes", "quantiles of minutes", "ranges"):
        assert name in page
    assert re.search(r"ε = (0\.99\d*|1)<", page)
    assert "NOT PRIVATE" not in page
    assert "<script" not in page


def test_a_cell_that_warns_is_noticed(tmp_path):
    cell = nbformat.v4.new_code_cell("import warnings\nwarnings.warn('old')")
    with pytest.raises(CellExecutionError, match=r"UserWarning.*: old"):
        executed(nbformat.v4.new_notebook(cells=[cell]), tmp_path)


def test_another_shape_is_noticed():
    notebook = read(EVERYDAY)
    changed = copy.deepcopy(notebook)
    output = next(cell for cell in code_cells(changed) if cell.id == "cars").outputs[0]
    output.data["text/plain"] = output.data["text/plain"].replace("1", "2")
    assert shapes(changed) == shapes(notebook)
    output.data["text/plain"] = output.data["text/plain"].replace("users", "persons")
    assert shapes(changed) != shapes(notebook)


def test_the_page_of_the_documentation_has_every_cell():
    notebook, page = read(EVERYDAY), as_markdown(EVERYDAY)
    for cell in notebook.cells:
        assert cell.source in page
    for cell in code_cells(notebook):
        assert f"```python\n{cell.source}\n```" in page
    assert page.count("```{raw} html") + page.count("```text") == sum(len(c.outputs) for c in code_cells(notebook))
    assert page.count("<svg") == 1
