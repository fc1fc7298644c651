"""How Sphinx builds these pages."""

import json
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

import shuffledp

project = "shuffledp"
author = "The shuffledp authors"
copyright = "The shuffledp authors, Apache-2.0"
version = release = shuffledp.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}

html_theme = "furo"
html_title = f"shuffledp {version}"
html_copy_source = False
html_show_sphinx = False


def escape_bars(_app, _what, _name, _obj, _options, lines):
    """Docstrings write absolute values as |x|, which reStructuredText would take for a substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def inline_formula(self, node):
    """Formulas become MathML, which browsers typeset by themselves: no script, no network."""
    self.body.append(convert(node.astext()))
    raise SkipNode


def displayed_formula(self, node):
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def convert_notebooks(app, name, source):
    if Path(app.env.doc2path(name)).suffix == ".ipynb":
        source[0] = notebook_to_markdown(source[0])


def notebook_to_markdown(notebook):
    """Notebooks become pages: their text, their code, and the outputs that they store."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts.extend(shown(output) for output in cell.get("outputs", ()))
    return "\n\n".join(parts)


def shown(output):
    """An output of a cell as a block, in the richest form that it has."""
    forms = output.get("data", {"text/plain": output.get("text")})
    for form in ("image/svg+xml", "text/html"):
        if form in forms:
            return f"```{{raw}} html\n{''.join(forms[form])}\n```"
    return f"```text\n{''.join(forms['text/plain'])}\n```"


def setup(app):
    app.connect("source-read", convert_notebooks)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-docstring", escape_bars)
