"""Settings of the analyzer, and the budgets of populations."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.checks import check_target
from shuffledp.collection.server.settings import ServerSettings, check_positive
from shuffledp.errors import DataError, ParameterError

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class AnalyzerSettings(ServerSettings):
    """Where things are, and how results are shown. Paths to secrets name files of mode 0600."""

    port: int = 8081
    tasks: Path
    """A directory of signed tasks, ``*.json``; new ones are noticed while the server runs."""
    authors: tuple[Path, ...]
    """The public keys of those whose tasks are answered."""
    sealing_keys: tuple[Path, ...]
    """The analyzer's own keys, which open messages; several while one replaces another."""
    budgets: Path
    """A TOML file with a table for each population: ``epsilon`` and ``delta`` of all releases together."""
    work: Path
    """A directory for batches, results and the ledger: room for a round. It is to be kept."""
    processes: int = 0
    """How many open messages at a time; 0 for as many as there are cores."""
    confidence: float = 0.95
    """Of the intervals that are published."""
    arriving_megabytes: int = 256
    """Chunks that arrive at the same time may have so much together; others are answered with 503."""
    restore_from_releases: bool = False
    """For one start after a loss: take up again in the ledger what was released, rather than refuse to start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.authors:
            raise ParameterError("authors must name at least one public key: whose tasks are answered?")
        if not self.sealing_keys:
            raise ParameterError("sealing_keys must name at least one key: nothing could be opened.")
        if self.processes < 0:
            raise ParameterError(f"processes must be at least 0, not {self.processes}.")
        if not 0 < self.confidence < 1:
            raise ParameterError(f"confidence must lie between 0 and 1, not {self.confidence:g}.")
        check_positive(self, "arriving_megabytes")


@dataclass(frozen=True)
class Budget:
    """How much may be seen of one person of a population in all releases together."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)


def read_budgets(path: Path) -> Mapping[str, Budget]:
    """The budgets of a file, by population."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path} is too large for budgets.")
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the budgets {path}: {error.strerror or error}.", path=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is not valid TOML: {error}.") from None
    return {population: _budget(table, f"[{population}] of {path}") for population, table in document.items()}


def _budget(table: Any, where: str) -> Budget:
    if not isinstance(table, dict) or set(table) != {"epsilon", "delta"}:
        raise ParameterError(f"{where} must have epsilon and delta, and nothing else.")
    for name, value in table.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ParameterError(f"{name} in {where} must be a number, not {value!r}.")
    try:
        return Budget(float(table["epsilon"]), float(table["delta"]))
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None
