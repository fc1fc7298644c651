"""The public names: listed, lazy, typed and documented."""

import ast
import inspect
from pathlib import Path

import pytest

import shuffledp

SOURCE = Path(shuffledp.__file__).parent


def test_every_public_name_loads():
    for name in shuffledp.__all__:
        assert getattr(shuffledp, name) is not None
    assert dir(shuffledp) == sorted(shuffledp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shuffledp.nothing


def test_names_for_people_and_for_type_checkers_agree():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    checked = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert checked == set(shuffledp.__all__) - {"__version__"}


def test_everything_public_says_what_it_is():
    for name in shuffledp.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(shuffledp, name))


def test_every_module_says_what_it_is_for():
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
