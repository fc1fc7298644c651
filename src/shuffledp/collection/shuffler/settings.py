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

_MIN_PERMUTATION_MEGABYTES = 16
ROLES = ("all", "ingest", "mixer")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_STORES = "store must be 'sqlite' (with store_folder) or 'postgres' (with store_dsn_file)"


@dataclass(frozen=True, kw_only=True)
class ShufflerSettings(ServerSettings):
    """Paths, limits, the store and the analyzer. Files with secrets must have mode 0600."""

    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("store_folder", "store_dsn_file"),)

    port: int = 8080
    tasks: Path
    """A directory of signed tasks, ``*.json``; new files are read while the server runs."""
    authors: tuple[Path, ...]
    """Public keys of the authors whose tasks are served."""
    role: str = "all"
    """What this process does: ``all``; ``ingest`` receives reports, has no keys, and may have replicas; ``mixer``
    opens, closes, shuffles and delivers the rounds. The last two share a PostgreSQL database."""
    signing_key: Path | None = None
    """The shuffler's private key, which signs batches; not for the role ``ingest``."""
    verifying_key: Path | None = None
    """The shuffler's public key, for the role ``ingest``, which has no private one."""
    round_keys: Path | None = None
    """A directory of private round keys, ``KEYID.key``, for tasks of wire version 2; each is destroyed after its round
    is mixed. It should be on an encrypted volume without backups."""
    analyzer: str | None = None
    """URL of the analyzer, such as https://analyzer.example; not for the role ``ingest``."""
    analyzer_ca: Path | None = None
    """Certificate authorities for the analyzer's certificate, instead of the system's."""
    analyzer_plain_http: str | None = None
    """Name or address of an analyzer host in a private network to which batches may be sent without TLS."""
    next_shuffler: str | None = None
    """URL of the next shuffler, for tasks with a chain of shufflers in which this one is not the last; https, or this
    machine."""
    next_shuffler_ca: Path | None = None
    """Certificate authorities for the next shuffler's certificate, instead of the system's."""
    first_shuffler: str | None = None
    """URL of the first shuffler of chains, to which this one sends its traps like a device; https, or this machine."""
    first_shuffler_ca: Path | None = None
    """Certificate authorities for the first shuffler's certificate, instead of the system's."""
    trap_tokens: Path | None = None
    """A directory of ``TASK.txt`` files with an enrolment token for each trap, one per line."""
    work: Path
    """A directory for the permutation and for undelivered batches, with space for two rounds."""
    store: str = "sqlite"
    store_folder: Path | None = None
    store_dsn_file: Path | None = None
    """A file with the URL of the PostgreSQL database, which contains a password."""
    store_cache_megabytes: int = 128
    """Memory of SQLite for pages of all rounds together; collecting rounds share it equally."""
    enrolment: Path | None = None
    """A directory of ``TASK.tokens`` files, hashes of one-time tokens; if set, every report of every task needs one."""
    token_issuer: str | None = None
    """Host name of an issuer of Privacy Pass tokens (RFC 9578, type 2); if set, every report needs one."""
    token_issuer_keys: tuple[Path, ...] = ()
    """Public keys of the issuer; several while a new one replaces an old one."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may report, such as https://survey.example; requests of other pages get 403."""
    reports_per_second: float = 0.0
    """Maximum rate over all senders, 0 for no limit; further reports are answered with 429."""
    burst: int = 1000
    """Reports above the rate that are accepted at once."""
    waiting_reports: int = 4096
    """Maximum complete reports that wait to become durable."""
    waiting_megabytes: int = 256
    """Maximum memory for reports, including those that are still arriving."""
    waiting_seconds: float = 1.0
    """Maximum wait of a report for a free slot; then it is answered with 503."""
    permutation_megabytes: int = 256
    """Memory for the permutation."""
    grace_seconds: float = 3600.0
    """Time after its closing time at which a round with fewer reports than its minimum is destroyed."""
    delivery_seconds: float = 60.0
    """Timeout of requests to the analyzer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.authors:
            raise ParameterError("authors must name at least one public key: that of an author whose tasks are served.")
        self._check_role()
        if self.analyzer is not None:
            _check_receiver("analyzer", self.analyzer, self.analyzer_plain_http)
        if self.next_shuffler is not None:
            _check_receiver("next_shuffler", self.next_shuffler, None)
        if self.first_shuffler is not None:
            _check_receiver("first_shuffler", self.first_shuffler, None)
        needed = {"sqlite": self.store_folder, "postgres": self.store_dsn_file}.get(self.store)
        if needed is None or (self.store_folder and self.store_dsn_file):
            raise ParameterError(f"{_STORES}, and not both; got store = {self.store!r}.")
        self._check_tokens()
        for origin in self.origins:
            _check_origin(origin)
        if not 0 <= self.reports_per_second < float("inf"):
            raise ParameterError(f"reports_per_second must be 0 or more, not {self.reports_per_second}.")
        if not 0 <= self.grace_seconds < float("inf"):
            raise ParameterError(f"grace_seconds must be 0 or more, not {self.grace_seconds}.")
        if self.permutation_megabytes < _MIN_PERMUTATION_MEGABYTES:
            raise ParameterError(f"permutation_megabytes must be at least {_MIN_PERMUTATION_MEGABYTES}.")
        check_positive(self, "store_cache_megabytes")
        check_positive(self, "burst", "waiting_reports", "waiting_megabytes", "waiting_seconds", "delivery_seconds")

    def _check_tokens(self) -> None:
        if (self.token_issuer is None) != (not self.token_issuer_keys):
            raise ParameterError("token_issuer and token_issuer_keys belong together.")
        if self.token_issuer is not None and self.enrolment is not None:
            raise ParameterError("A shuffler takes the tokens of enrolment or of token_issuer, not both.")

    def _check_role(self) -> None:
        """Refuse keys where they are not needed, and missing settings that the role needs."""
        if self.role not in ROLES:
            raise ParameterError(f"role must be one of {', '.join(ROLES)}, not {self.role!r}.")
        needed = ("verifying_key",) if self.role == "ingest" else ("signing_key", "analyzer")
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ParameterError(
                f"Missing settings of the shuffler: {', '.join(missing)}; the role {self.role} needs them."
            )
        if self.role == "ingest":
            given = [
                name
                for name in ("signing_key", "round_keys", "analyzer", "next_shuffler")
                if getattr(self, name) is not None
            ]
            if given:
                raise ParameterError(
                    f"A process of the role ingest has no keys and delivers nothing: remove {', '.join(given)}."
                )
        if self.role != "all" and self.store != "postgres":
            raise ParameterError(
                f'The role {self.role} needs a shared store: set store = "postgres" and store_dsn_file.'
            )


def _check_receiver(name: str, address: str, plain_http: str | None) -> None:
    """Refuse an address of the server that takes batches unless it has TLS, is this machine, or is excepted."""
    try:
        receiver = ServerUrl.parse(address)
    except ParameterError as error:
        raise ParameterError(
            f"{name} must be a URL such as https://{name.replace('_', '-')}.example. {error}"
        ) from None
    allowed = _is_loopback(receiver) or (plain_http or "").lower() == receiver.host
    if receiver.scheme == "http" and not allowed:
        remedy = (
            f', or set analyzer_plain_http = "{receiver.host}" if the network is private' if name == "analyzer" else ""
        )
        raise ParameterError(
            f"Batches must not be sent to {address} without TLS, since it is another machine: use https{remedy}."
        )


def _check_origin(origin: str) -> None:
    """Refuse strings that browsers never send as an origin, and plain HTTP to other machines."""
    invalid = ParameterError(
        f"origins must list origins such as https://survey.example, exactly as browsers send them, not {origin!r}."
    )
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise invalid from None
    written_host = f"[{host}]" if ":" in host else host
    exact = f"{parts.scheme}://{written_host}" + (f":{port}" if port is not None else "")
    if origin != exact or parts.scheme not in _DEFAULT_PORTS or not re.fullmatch(r"[a-z0-9._:-]+", host):
        raise invalid
    if port is not None and (port == 0 or port == _DEFAULT_PORTS[parts.scheme]):
        raise invalid
    if parts.scheme == "http" and not _is_loopback(ServerUrl("http", host, port, "")):
        raise ParameterError(f"Pages of {origin} could be modified in transit: origins must be https.")


def _is_loopback(url: ServerUrl) -> bool:
    return url.is_loopback or url.host.endswith(".localhost")
