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


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_lists_its_names_and_has_one_job(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    if path.name in ("__init__.py", "__main__.py"):
        return
    exported = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    assert exported == sorted(exported, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert len(path.read_text().splitlines()) <= 400
