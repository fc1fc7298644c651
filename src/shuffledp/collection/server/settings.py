"""Settings of a server: from a TOML file, overridden by the environment, then by options; unknown names are refused.

The file has one table for each server, such as ``[shuffler]``; in the environment the key ``port`` of the shuffler is
``SHUFFLEDP_SHUFFLER_PORT``. Secrets are never settings themselves: a setting names the file that contains the secret.

Values are converted here, not by msgspec or cattrs: msgspec ignores unknown keys of dataclasses, its messages name
neither the source nor the value, and relative paths, comma-separated lists and yes/no in the environment would need the
same code as hooks. It would replace about 25 lines by a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from shuffledp.durable_files import parse_toml, read_limited
from shuffledp.errors import DataError, ParameterError

ROLES = ("shuffler", "analyzer")
_OTHER_NAMES = (
    "SHUFFLEDP_CHROMIUM",
    "SHUFFLEDP_NATIVE",
    "SHUFFLEDP_NATIVE_FLAGS",
    "SHUFFLEDP_PUBLIC_SCRIPTS",
    "SHUFFLEDP_REQUIRE_KERNELS",
    "SHUFFLEDP_TRACEBACK",
)
"""Environment variables of other parts of the project."""
_MAX_BYTES = 1 << 20
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

Settings = TypeVar("Settings")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of every server: address, TLS, connections, shutdown and logs."""

    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of alternatives: if the environment sets one of a group, the others in the file are ignored."""

    host: str = "127.0.0.1"
    port: int
    """0 for any free port; the port is logged."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    connections: int = 4096
    """Maximum connections at a time, fewer if the limit on open files is lower; further ones are answered with 503."""
    connection_megabytes: int = 64
    """Maximum memory of the requests of all connections together before they are processed: headers and waiting bodies.
    Beyond it, the requests that have been arriving for longest are answered with 503."""
    request_seconds: float = 30.0
    """Maximum duration of a request, approximately."""
    shutdown_seconds: float = 20.0
    """Maximum wait for requests in progress at shutdown."""
    operator_port: int | None = None
    """Port of the operator's page on 127.0.0.1, 0 for any free port; no page if it is not set."""
    log_level: str = "info"
    key_command: tuple[str, ...] = ()
    """A command that unwraps the server's private key files, such as ["age", "-d", "-i", "identity"]: it gets a file on
    standard input, or its path in place of ``{file}``, and writes the key to standard output."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ParameterError(f"port must be from 0 to 65535, not {self.port}.")
        if self.operator_port is not None and not 0 <= self.operator_port <= 65535:
            raise ParameterError(f"operator_port must be from 0 to 65535, not {self.operator_port}.")
        if self.operator_port is not None and self.operator_port == self.port != 0:
            raise ParameterError(f"operator_port must differ from port, {self.port}: reports must not reach the page.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ParameterError("TLS needs both tls_certificate and tls_key.")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ParameterError(f"log_level must be debug, info, warning or error, not {self.log_level!r}.")
        check_positive(self, "connections", "connection_megabytes", "request_seconds", "shutdown_seconds")

    @property
    def local_url(self) -> str:
        """The server's URL for a browser on this machine; empty if the port is not known in advance."""
        wildcards = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104
        host = wildcards.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}" if self.port else ""


def check_positive(settings: Any, *names: str) -> None:
    """Refuse settings that are not positive and finite."""
    for name in names:
        value = getattr(settings, name)
        if not 0 < value < float("inf"):
            raise ParameterError(f"{name} must be above 0, not {value!r}.")


def read_settings(
    kind: type[Settings],
    *,
    role: str,
    file: Path | None,
    environment: Mapping[str, str],
    options: Mapping[str, Any],
) -> Settings:
    """The settings of a server. Relative paths in the file are relative to its directory."""
    hints = get_type_hints(kind)
    types = {field.name: hints[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    if file is not None:
        table = _read_table(file, role)
        _refuse_unknown(table, types, f"in [{role}] of {file}")
        directory = file.absolute().parent
        values |= {key: _convert(value, types[key], f"{key} in {file}", directory) for key, value in table.items()}
    _refuse_misspelt(environment)
    prefix = _prefix(role)
    variables = {
        name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)
    }
    _refuse_unknown(variables, types, f"in the environment (names begin with {prefix})")
    for group in getattr(kind, "exclusive", ()):
        if any(key in variables for key in group):
            values = {key: value for key, value in values.items() if key not in group}
    values |= {
        key: _convert(_parse(value, types[key]), types[key], prefix + key.upper(), Path())
        for key, value in variables.items()
    }
    set_options = {key: value for key, value in options.items() if value is not None}
    _refuse_unknown(set_options, types, "among the options")
    values |= set_options
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]  # type: ignore[arg-type]
    missing = [name for name in needed if name not in values]
    if missing:
        where = f"[{role}] of {file}" if file else f"the environment ({prefix}...)"
        raise ParameterError(f"Missing settings of the {role}: {', '.join(missing)}; give them in {where}.")
    return kind(**values)


def read_secret(path: Path) -> str:
    """The content of a file that only its owner can access; other files are refused."""
    content = read_limited(path, _MAX_BYTES, "secret")
    if path.stat().st_mode & 0o077:
        raise DataError(f"{path} is accessible to other users; a secret must have mode 0600: chmod 600 {path}.")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not valid UTF-8.", path=str(path)) from None


def read_toml(path: Path, kind: str) -> dict[str, Any]:
    """The document of a TOML file; ParameterError if it is not valid TOML."""
    return parse_toml(read_limited(path, _MAX_BYTES, kind), str(path))


def _read_table(file: Path, role: str) -> dict[str, Any]:
    document = read_toml(file, "settings file")
    unknown = sorted(set(document) - set(ROLES))
    if unknown:
        tables = " or ".join(f"[{name}]" for name in ROLES)
        raise ParameterError(f"{file} has the unknown key {unknown[0]!r}; settings belong under {tables}.")
    table = document.get(role)
    if not isinstance(table, dict):
        raise ParameterError(f"{file} has no table [{role}].")
    return table


def _prefix(role: str) -> str:
    return f"SHUFFLEDP_{role.upper()}_"


def _refuse_misspelt(environment: Mapping[str, str]) -> None:
    """Refuse a misspelt variable, which would have no effect; variables of the other server are allowed."""
    prefixes = tuple(_prefix(role) for role in ROLES)
    names = [name for name in environment if name.startswith("SHUFFLEDP_")]
    unknown = sorted(name for name in names if not name.startswith(prefixes) and name not in _OTHER_NAMES)
    if unknown:
        raise ParameterError(
            f"Unknown name {unknown[0]} in the environment; names of settings begin with {' or '.join(prefixes)}."
        )


def _refuse_unknown(settings: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(settings) - set(types))
    if unknown:
        raise ParameterError(f"Unknown setting {unknown[0]!r} {where}; the settings are {', '.join(sorted(types))}.")


def _convert(value: Any, kind: Any, name: str, directory: Path) -> Any:
    """Check a value, and convert it to the type of its setting; relative paths are relative to ``directory``."""
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ParameterError(f"{name} must be a list, not {value!r}.")
        return tuple(_convert(part, get_args(kind)[0], name, directory) for part in value)
    if kind is Path and isinstance(value, str) and value:
        return directory / value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (str, bool, float) and isinstance(value, kind):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ParameterError(f"{name} must be {_KINDS.get(kind, kind)}, not {value!r}.")


def _parse(value: str, kind: Any) -> Any:
    """The TOML value that a value of the environment stands for; unchanged if it is not valid."""
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        return [_parse(part.strip(), get_args(kind)[0]) for part in value.split(",") if part.strip()]
    if kind is bool and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value


def _without_none(kind: Any) -> Any:
    if isinstance(kind, UnionType):
        (kind,) = (other for other in get_args(kind) if other is not NoneType)
    return kind


_KINDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false", Path: "a path"}
