"""Settings of the shuffler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from shuffledp.collection.server.settings import ServerSettings, check_positive
from shuffledp.collection.transport.connection import ServerUrl
from shuffledp.errors import ParameterError

_LEAST_MEMORY = 16
_DEFAULT_PORTS = {"http": 80, "https": 443}
_STORES = "store must be 'sqlite' (with store_folder) or 'postgres' (with store_dsn_file)"


@dataclass(frozen=True, kw_only=True)
class ShufflerSettings(ServerSettings):
    """Where things are, and how much is taken in. Paths to secrets name files of mode 0600."""

    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("store_folder", "store_dsn_file"),)

    port: int = 8080
    tasks: Path
    """A directory of signed tasks, ``*.json``; new ones are noticed while the server runs."""
    authors: tuple[Path, ...]
    """The public keys of those whose tasks are served."""
    signing_key: Path
    """The shuffler's own key, which signs batches."""
    analyzer: str
    """Address of the analyzer, such as https://analyzer.example."""
    analyzer_ca: Path | None = None
    """Certificates that the analyzer's is checked against, instead of the system's."""
    analyzer_plain_http: str | None = None
    """The name or address of a host, in a network that nobody else can read, to which batches may go without TLS."""
    work: Path
    """A directory for the permutation and for batches that wait to be delivered: room for two rounds."""
    store: str = "sqlite"
    store_folder: Path | None = None
    store_dsn_file: Path | None = None
    """A file with the address of the PostgreSQL database, since it holds a password."""
    store_cache_megabytes: int = 128
    """Memory of SQLite for pages of all rounds together; the rounds that collect share it equally."""
    enrolment: Path | None = None
    """A directory with ``TASK.tokens``, the hashes of one-time tokens; if set, every report of every task needs one."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may report, such as https://survey.example; requests of other pages get 403."""
    reports_per_second: float = 0.0
    """More are answered with 429; 0 for any number. It is one limit for all: limits by address would need addresses."""
    burst: int = 1000
    """So many may come at once all the same."""
    waiting_reports: int = 4096
    """So many may wait to become durable."""
    waiting_megabytes: int = 256
    """So much of reports may be in memory, of those that still arrive as well."""
    waiting_seconds: float = 1.0
    """A report that finds too many before it is answered with 503 after this time."""
    permutation_megabytes: int = 256
    """Memory for the permutation."""
    grace_seconds: float = 3600.0
    """A round with fewer reports than its minimum is destroyed this long after its closing time, not at once."""
    delivery_seconds: float = 60.0
    """The analyzer has to answer in this time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.authors:
            raise ParameterError("authors must name at least one public key: whose tasks are served?")
        try:
            analyzer = ServerUrl.parse(self.analyzer)
        except ParameterError as error:
            raise ParameterError(f"analyzer must be a URL such as https://analyzer.example. {error}") from None
        host = analyzer.host
        allowed = _is_loopback(analyzer) or (self.analyzer_plain_http or "").lower() == host
        if analyzer.scheme == "http" and not allowed:
            raise ParameterError(
                f"Batches must not go to {self.analyzer} without TLS, since it is another machine: use https, or say "
                f'analyzer_plain_http = "{host}" if nobody else can read that network.'
            )
        needed = {"sqlite": self.store_folder, "postgres": self.store_dsn_file}.get(self.store)
        if needed is None or (self.store_folder and self.store_dsn_file):
            raise ParameterError(f"{_STORES}, and only that; it is {self.store!r}.")
        for origin in self.origins:
            _check_origin(origin)
        if not 0 <= self.reports_per_second < float("inf"):
            raise ParameterError(f"reports_per_second must not be negative, as {self.reports_per_second} is.")
        if not 0 <= self.grace_seconds < float("inf"):
            raise ParameterError(f"grace_seconds must be 0 or more, not {self.grace_seconds}.")
        if self.permutation_megabytes < _LEAST_MEMORY:
            raise ParameterError(f"permutation_megabytes must be at least {_LEAST_MEMORY}.")
        check_positive(self, "store_cache_megabytes")
        check_positive(self, "burst", "waiting_reports", "waiting_megabytes", "waiting_seconds", "delivery_seconds")


def _check_origin(origin: str) -> None:
    """Refuse what a browser would never send as the origin of a page, or what anybody on the way could change."""
    wrong = ParameterError(
        f"origins must list origins such as https://survey.example, exactly as browsers send them, not {origin!r}."
    )
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise wrong from None
    shown = f"[{host}]" if ":" in host else host
    exact = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    if origin != exact or parts.scheme not in _DEFAULT_PORTS or not re.fullmatch(r"[a-z0-9._:-]+", host):
        raise wrong
    if port is not None and (port == 0 or port == _DEFAULT_PORTS[parts.scheme]):
        raise wrong
    if parts.scheme == "http" and not _is_loopback(ServerUrl("http", host, port, "")):
        raise ParameterError(f"Pages of {origin} could be changed on their way to users: origins must be https.")


def _is_loopback(url: ServerUrl) -> bool:
    return url.is_loopback or url.host.endswith(".localhost")
