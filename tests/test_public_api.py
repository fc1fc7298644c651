"""The public names: listed once, loaded on first use, typed, documented, and with examples that run."""

import ast
import doctest
import inspect
import re
import sys
import types
import warnings
from pathlib import Path

import pytest

import shuffledp
from shuffledp import exports
from shuffledp.protocols.registry import PROTOCOLS, with_article

SOURCE = Path(shuffledp.__file__).parent
ENTRIES = [(question, name) for question, named in PROTOCOLS.items() for name in named]
NAMES = [name for name in shuffledp.__all__ if name != "__version__"]
PAGE = (SOURCE.parents[1] / "docs" / "python-api.md").read_text(encoding="utf-8")


def test_every_public_name_loads():
    for name in shuffledp.__all__:
        assert getattr(shuffledp, name) is not None
    assert dir(shuffledp) == sorted(shuffledp.__all__)
    assert len(set(shuffledp.__all__)) == len(shuffledp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shuffledp.nothing


@pytest.mark.parametrize("package", ["", "collection", "spark"])
def test_names_are_listed_once_in_the_form_that_type_checkers_export(package):
    """A stub exports what it imports as ``X as X`` only."""
    assert (SOURCE / "py.typed").exists()
    stub = ast.parse((SOURCE / package / "__init__.pyi").read_text())
    imported = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert imported
    assert all(alias.name == alias.asname for alias in imported)
    code = (SOURCE / package / "__init__.py").read_text()
    assert not [alias.name for alias in imported if f'"{alias.name}"' in code]


def test_what_a_program_needs_is_public():
    wanted = """plan Plan Plans Count Histogram Sum Mean Quantiles Categories Numbered Bit Interval Bins Guarantee
        compose audit check_protocol InsecureSeededRandomness protocols Protocol Target errors"""
    assert set(wanted.split()) <= set(NAMES)
    errors = [name for name, value in vars(shuffledp.errors).items() if isinstance(value, type)]
    assert {name for name in errors if name != "StoppedError"} <= set(NAMES)


@pytest.mark.parametrize(
    ("question", "name"), [(question, name) for question in PROTOCOLS for name in PROTOCOLS[question]]
)
def test_every_protocol_can_be_imported(question, name):
    kind = PROTOCOLS[question][name]
    assert getattr(shuffledp.protocols, kind.__name__) is kind
    assert kind.__name__ in dir(shuffledp.protocols)


def test_there_is_no_other_protocol():
    assert len(dir(shuffledp.protocols)) == sum(map(len, PROTOCOLS.values()))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = shuffledp.protocols.Nothing


@pytest.mark.parametrize("name", NAMES)
def test_help_is_useful(name):
    """Everything has a docstring of its own; its examples run."""
    value = getattr(shuffledp, name)
    if name == "PROTOCOLS":
        return
    assert value.__doc__
    assert not value.__doc__.startswith(f"{value.__name__}("), "that is what a dataclass gets by itself"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    if not isinstance(value, types.ModuleType):
        found = doctest.DocTestFinder(recurse=False).find(value, name, globs={"sdp": shuffledp})
        for example in found:
            runner.run(example)
    assert runner.failures == 0


def is_documented(name, doc):
    return re.search(rf"``[^`]*\b{name}\b[^`]*``", doc) or re.search(rf"\b{name}\b", doc.split(">>>")[0])


@pytest.mark.parametrize("name", NAMES)
def test_help_names_every_argument(name):
    value = getattr(shuffledp, name)
    if name == "PROTOCOLS" or isinstance(value, types.ModuleType) or inspect.isabstract(value):
        return
    if isinstance(value, type) and issubclass(value, (Exception, shuffledp.Protocol)):
        return
    inherited = [base.__doc__ or "" for base in getattr(value, "__mro__", ()) if base is not object]
    doc = " ".join([value.__doc__, *inherited])
    missing = [argument for argument in inspect.signature(value).parameters if not is_documented(argument, doc)]
    assert not missing, f"help({name}) does not mention {', '.join(missing)}"


@pytest.mark.parametrize(("question", "name"), ENTRIES)
def test_help_of_protocols_names_trust_and_options(question, name):
    """The first line says what the protocol is; options of ``calibrate`` are listed."""
    kind = PROTOCOLS[question][name]
    summary = kind.__doc__.splitlines()[0]
    assert summary.startswith(f"{with_article(question).capitalize()} ")
    assert kind.trusts_shuffler or kind.trust in summary
    parameters = inspect.signature(kind.for_target).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY]
    assert all(f"``{option}``" in kind.__doc__ for option in options)


def test_calibrate_has_examples_that_run():
    calibrate = shuffledp.BalcerCheuCount.calibrate
    (example,) = doctest.DocTestFinder(recurse=False).find(calibrate, "calibrate", globs={"sdp": shuffledp})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_names_that_people_begin_with_have_examples():
    beginners = [
        "plan",
        "Count",
        "Histogram",
        "Sum",
        "Mean",
        "Quantiles",
        "Categories",
        "Interval",
        "Bins",
        "audit",
        "check_protocol",
        "compose",
    ]
    assert all(">>>" in inspect.getdoc(getattr(shuffledp, name)) for name in beginners)


def test_every_public_name_is_documented_and_nothing_else():
    table = re.search(r"^\| names \|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    documented = [name for line in table[1].splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(documented) == sorted(NAMES)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one public name that was renamed."""
    home = tmp_path / "renaming"
    home.mkdir()
    (home / "__init__.pyi").write_text("from renaming.inner import new as new\nversion: int\n")
    (home / "__init__.py").write_text(
        "from shuffledp.exports import exports\nversion = 1\n"
        "__getattr__, __dir__ = exports(__name__, renamed={'old': 'new'})\n"
    )
    (home / "inner.py").write_text("new = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("renaming")
    for name in ("renaming", "renaming.inner"):
        sys.modules.pop(name, None)


def test_an_old_name_works_and_warns(package):
    assert package.__all__ == ["new", "version"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.new == 7
    with pytest.warns(DeprecationWarning, match=r"renaming\.old is now renaming\.new") as caught:
        assert package.old == 7
    assert caught[0].filename == __file__
    assert exports.__doc__


def test_every_module_says_what_it_is_for():
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
