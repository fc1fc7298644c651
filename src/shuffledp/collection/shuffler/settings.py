"""Settings of the shuffler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shuffledp.collection.service.settings import ServerSettings, check_positive
from shuffledp.errors import ParameterError

__all__ = ["ShufflerSettings"]

_LEAST_MEMORY = 16
_STORES = "store must be 'sqlite' (with store_folder) or 'postgres' (with store_dsn_file)"


@dataclass(frozen=True, kw_only=True)
class ShufflerSettings(ServerSettings):
    """Where things are, and how much is taken in. Paths to secrets name files of mode 0600."""

    port: int = 8080
    tasks: Path
    """A folder of signed tasks, ``*.json``; new ones are noticed while the server runs."""
    authors: tuple[Path, ...]
    """The public keys of those whose tasks are served."""
    signing_key: Path
    """The shuffler's own key, which signs batches."""
    analyzer: str
    """Address of the analyzer, such as https://analyzer.example."""
    analyzer_ca: Path | None = None
    """Certificates that the analyzer's is checked against, instead of the system's."""
    work: Path
    """A folder for the permutation and for batches that wait to be delivered: room for two rounds."""
    store: str = "sqlite"
    store_folder: Path | None = None
    store_dsn_file: Path | None = None
    """A file with the address of the PostgreSQL database, since it holds a password."""
    enrolment: Path | None = None
    """A folder with ``TASK.tokens``, the hashes of one-time tokens; if set, every report of every task needs one."""
    reports_per_second: float = 0.0
    """More are answered with 429; 0 for any number. It is one limit for all: limits by address would need addresses."""
    burst: int = 1000
    """So many may come at once all the same."""
    waiting_reports: int = 4096
    """More that wait to become durable are answered with 503."""
    waiting_megabytes: int = 256
    permutation_megabytes: int = 256
    """Memory for the permutation."""
    delivery_seconds: float = 60.0
    """The analyzer has to answer in this time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.authors:
            raise ParameterError("authors must name at least one public key: whose tasks are served?")
        address = urlsplit(self.analyzer)
        if address.scheme not in ("http", "https") or not address.hostname or address.query or address.fragment:
            raise ParameterError(f"analyzer must be an address like https://analyzer.example, not {self.analyzer!r}.")
        if address.username or address.password:
            raise ParameterError("analyzer must be an address without a user name and a password.")
        needed = {"sqlite": self.store_folder, "postgres": self.store_dsn_file}.get(self.store)
        if needed is None or (self.store_folder and self.store_dsn_file):
            raise ParameterError(f"{_STORES}, and only that; it is {self.store!r}.")
        if not 0 <= self.reports_per_second < float("inf"):
            raise ParameterError(f"reports_per_second must not be negative, as {self.reports_per_second} is.")
        if self.permutation_megabytes < _LEAST_MEMORY:
            raise ParameterError(f"permutation_megabytes must be at least {_LEAST_MEMORY}.")
        check_positive(self, "burst", "waiting_reports", "waiting_megabytes", "delivery_seconds")
