"""Settings of the analyzer, and the budgets of populations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.checks import check_confidence, check_target
from shuffledp.collection.server.settings import ServerSettings, check_positive, read_toml
from shuffledp.durable_files import read_limited
from shuffledp.errors import ParameterError

ENGINES = ("local", "spark")
_MAX_LIST_BYTES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class AnalyzerSettings(ServerSettings):
    """Paths, limits, and the confidence of published intervals. Files with secrets must have mode 0600."""

    port: int = 8081
    tasks: Path
    """A directory of signed tasks, ``*.json``; new files are read while the server runs."""
    authors: tuple[Path, ...]
    """Public keys of the authors whose tasks are served."""
    sealing_keys: tuple[Path, ...] = ()
    """The analyzer's private keys, which open messages; several during a key rotation."""
    round_keys: Path | None = None
    """A directory of private keys that open the messages of one round, ``KEYID.key``; each is destroyed after the
    release. It should be on an encrypted volume without backups."""
    signing_key: Path | None = None
    """The analyzer's private key that signs the records of destroyed keys; without it they are not signed."""
    budgets: Path
    """A TOML file with a table for each population: ``epsilon`` and ``delta`` of all releases together."""
    work: Path
    """A directory for batches, releases and the ledger, with space for one round. It must be durable."""
    processes: int = 0
    """Number of processes that open messages; 0 for one per core."""
    engine: str = "local"
    """Where messages are opened and counted: ``local``, by processes of this machine, or ``spark``, on a cluster whose
    executors have the directory ``work`` and the files ``sealing_keys`` at the same paths."""
    spark_master: str = ""
    """The master of the Spark cluster, such as spark://host:7077; by default that of Spark's configuration."""
    confidence: float = 0.95
    """Confidence of the published intervals."""
    arriving_megabytes: int = 256
    """Maximum memory of all chunks that arrive at the same time; further ones are answered with 503."""
    hidden_strings: Path | None = None
    """A public block list, one string per line in UTF-8: strings that are found and hidden. Releases say how many."""
    restore_from_releases: bool = False
    """For one start after a loss of data: restore missing ledger entries from the releases instead of refusing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.authors:
            raise ParameterError("authors must name at least one public key: that of an author whose tasks are served.")
        if not self.sealing_keys and self.round_keys is None:
            raise ParameterError(
                "sealing_keys must name at least one key: without one, or a directory round_keys, no message can be "
                "opened."
            )
        if self.engine not in ENGINES:
            raise ParameterError(f"engine must be {' or '.join(ENGINES)}, not {self.engine!r}.")
        if self.key_command and self.engine == "spark":
            raise ParameterError('key_command cannot be used with engine = "spark": executors read the key files.')
        if self.spark_master and self.engine != "spark":
            raise ParameterError('spark_master is set, but engine is not "spark".')
        if self.processes < 0:
            raise ParameterError(f"processes must be at least 0, not {self.processes}.")
        check_confidence(self.confidence)
        check_positive(self, "arriving_megabytes")


@dataclass(frozen=True)
class PopulationBudget:
    """The privacy budget of a population: epsilon and delta of all releases together."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)


def read_budgets(path: Path) -> Mapping[str, PopulationBudget]:
    """The budgets of a file, by population."""
    document = read_toml(path, "budgets file")
    return {population: _budget(table, f"[{population}] of {path}") for population, table in document.items()}


def read_hidden_strings(path: Path | None) -> frozenset[str]:
    """The strings of a block list; none without a file."""
    if path is None:
        return frozenset()
    try:
        content = read_limited(path, _MAX_LIST_BYTES, "block list").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not a list of strings in UTF-8, one per line.") from None
    return frozenset(line.removesuffix("\r") for line in content.split("\n") if line.removesuffix("\r"))


def _budget(table: Any, where: str) -> PopulationBudget:
    if not isinstance(table, dict) or set(table) != {"epsilon", "delta"}:
        raise ParameterError(f"{where} must have epsilon and delta, and nothing else.")
    for name, value in table.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ParameterError(f"{name} in {where} must be a number, not {value!r}.")
    try:
        return PopulationBudget(float(table["epsilon"]), float(table["delta"]))
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None
