"""The interface of an engine: where tables are read and rounds are run; this process, or Spark.

An engine gives tables of data files. A table gives columns by name (``table[name]``), which count users exactly
(``bits``, ``histogram``, ``positions``), choose one row of each user, and form groups (``grouped``). Values
that stay where they are become ``RemoteValues`` or ``RemoteCounts`` of ``protocols.flow``: noise is drawn there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from shuffledp.engines.dialect import Dialect
from shuffledp.engines.table import Table
from shuffledp.errors import ParameterError, UnknownNameError

ENGINES = ("local", "spark")


class Engine(ABC):
    """Where tables are read and rounds are run."""

    name: ClassVar[str]

    @abstractmethod
    def table(self, paths: Sequence[str], dialect: Dialect) -> Table:
        """The rows of all files that the paths and patterns name."""


class LocalEngine(Engine):
    """Reads files in this process."""

    name = "local"

    def table(self, paths: Sequence[str], dialect: Dialect) -> Table:
        """The rows of all files that the paths and patterns name."""
        from shuffledp.engines.files import FileTable

        return FileTable(paths, dialect)


def find_engine(name: str, *, master: str | None = None, progress: bool = False) -> Engine:
    """The engine of this name; ``master`` is where Spark runs, and ``progress`` shows its stages."""
    if name == "spark":
        from shuffledp.engines.spark.engine import SparkEngine

        return SparkEngine(master, progress=progress)
    if name != "local":
        raise UnknownNameError(f"There is no engine {name!r}; choose one of {', '.join(ENGINES)}.", engine=name)
    if master is not None:
        raise ParameterError('`master=URL` says where Spark runs: give `engine="spark"` too.')
    return LocalEngine()
