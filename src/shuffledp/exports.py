"""Public names of a package: listed once, in its stub ``__init__.pyi``, and imported on first use.

Type checkers read the stub as it is. At run time ``exports`` takes the names from it, so that a device that only
randomizes loads neither SciPy nor a server. This module imports nothing at its top, and reads the stub only when
a name is first used: every command loads it before it installs its signal handler.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def exports(
    package: str, *, renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__``, which also gives ``__all__``, and ``__dir__`` of a package that has a stub ``__init__.pyi``.

    The stub consists of ``from MODULE import NAME as NAME``, and ``NAME: TYPE`` for what the package defines itself.
    ``renamed`` maps old names to new ones: an old name still works, with a DeprecationWarning.
    """
    stubs: list[tuple[dict[str, str], list[str]]] = []
    old_names = renamed or {}

    def stub() -> tuple[dict[str, str], list[str]]:
        if not stubs:
            stubs.append(_read_stub(package))
        return stubs[0]

    def names() -> list[str]:
        modules, defined = stub()
        return sorted([*modules, *defined])

    def load(name: str) -> object:
        from importlib import import_module

        if name == "__all__":
            return names()
        if name in old_names:
            import warnings

            new = old_names[name]
            message = f"{package}.{name} is now {package}.{new}; the old name will be removed."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return load(new)
        modules, _ = stub()
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(modules[name]), name)

    return load, names


def _read_stub(package: str) -> tuple[dict[str, str], list[str]]:
    """The names that the stub imports, each with its module, and those that it only declares."""
    import ast
    import pkgutil

    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")
    modules: dict[str, str] = {}
    defined: list[str] = []
    for statement in stub.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            modules |= {alias.name: statement.module for alias in statement.names}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            defined.append(statement.target.id)
    return modules, defined
