"""Settings of a server: a TOML file, then the environment, then options; unknown keys are refused by their name.

The file has one table for each server, such as ``[shuffler]``; in the environment the key ``port`` of the shuffler is
``SHUFFLEDP_SHUFFLER_PORT``. Secrets are never settings themselves: a setting names the file that holds one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from shuffledp.errors import DataError, ParameterError

ROLES = ("shuffler", "analyzer")
_OTHER_NAMES = (
    "SHUFFLEDP_NATIVE",
    "SHUFFLEDP_NATIVE_FLAGS",
    "SHUFFLEDP_PUBLIC_SCRIPTS",
    "SHUFFLEDP_REQUIRE_KERNELS",
    "SHUFFLEDP_TRACEBACK",
)
"""Names in the environment that are for other parts of the project."""
_MOST_BYTES = 1 << 20
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

Settings = TypeVar("Settings")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What every server needs to know about its connections."""

    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of alternatives: if the environment gives one of a group, the others of the file are ignored."""

    host: str = "127.0.0.1"
    port: int
    """0 for any free port, which is logged."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    connections: int = 4096
    """More at a time are answered with 503; fewer, if the process may not open as many files."""
    connection_megabytes: int = 64
    """Requests of all connections together may hold so much memory before they are processed: headers, and bodies
    that wait. If they hold more, those that have been arriving for longest are answered with 503."""
    request_seconds: float = 30.0
    """A request has to arrive in about this time."""
    shutdown_seconds: float = 20.0
    """So long is waited for requests under way when the server is asked to stop."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ParameterError(f"port must be from 0 to 65535, not {self.port}.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ParameterError("TLS needs both tls_certificate and tls_key.")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ParameterError(f"log_level must be debug, info, warning or error, not {self.log_level!r}.")
        check_positive(self, "connections", "connection_megabytes", "request_seconds", "shutdown_seconds")


def check_positive(settings: Any, *names: str) -> None:
    """Refuse settings that are not above zero."""
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
    """The settings of a role. Relative paths in the file are relative to its directory."""
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
        name.removeprefix(prefix).lower(): text for name, text in environment.items() if name.startswith(prefix)
    }
    _refuse_unknown(variables, types, f"in the environment (names begin with {prefix})")
    for group in getattr(kind, "exclusive", ()):
        if any(key in variables for key in group):
            values = {key: value for key, value in values.items() if key not in group}
    values |= {key: _parse(text, types[key], prefix + key.upper()) for key, text in variables.items()}
    given = {key: value for key, value in options.items() if value is not None}
    _refuse_unknown(given, types, "among the options")
    values |= given
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]  # type: ignore[arg-type]
    missing = [name for name in needed if name not in values]
    if missing:
        where = f"[{role}] of {file}" if file else f"the environment ({prefix}...)"
        raise ParameterError(f"Missing settings of the {role}: {', '.join(missing)}; give them in {where}.")
    return kind(**values)


def read_secret(path: Path) -> str:
    """The content of a file that only its owner can read; others are refused. The content is never shown."""
    try:
        if path.stat().st_mode & 0o077:
            raise DataError(f"{path} can be read by others; a secret must have mode 0600: chmod 600 {path}.")
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path} is too large for a secret.")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.", path=str(path)) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not valid UTF-8.", path=str(path)) from None


def _read_table(file: Path, role: str) -> dict[str, Any]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file} is too large for settings.")
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the settings {file}: {error.strerror or error}.", path=str(file)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file} is not valid TOML: {error}.") from None
    unknown = sorted(set(document) - set(ROLES))
    if unknown:
        tables = " or ".join(f"[{each}]" for each in ROLES)
        raise ParameterError(f"{file} has the unknown key {unknown[0]!r}; settings belong under {tables}.")
    table = document.get(role)
    if not isinstance(table, dict):
        raise ParameterError(f"{file} has no table [{role}].")
    return table


def _prefix(role: str) -> str:
    return f"SHUFFLEDP_{role.upper()}_"


def _refuse_misspelt(environment: Mapping[str, str]) -> None:
    """A name that looks like a setting and is none would have no effect; those of the other server may be here."""
    prefixes = tuple(_prefix(role) for role in ROLES)
    names = [name for name in environment if name.startswith("SHUFFLEDP_")]
    unknown = sorted(name for name in names if not name.startswith(prefixes) and name not in _OTHER_NAMES)
    if unknown:
        raise ParameterError(
            f"Unknown name {unknown[0]} in the environment; those of settings begin with {' or '.join(prefixes)}."
        )


def _refuse_unknown(given: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(given) - set(types))
    if unknown:
        raise ParameterError(f"Unknown setting {unknown[0]!r} {where}; the settings are {', '.join(sorted(types))}.")


def _convert(value: Any, kind: Any, name: str, directory: Path) -> Any:
    """A value of the file as the type of the setting."""
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ParameterError(f"{name} must be a list, not {value!r}.")
        return tuple(_convert(each, get_args(kind)[0], name, directory) for each in value)
    if kind is Path and isinstance(value, str) and value:
        return directory / value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (str, bool, float) and isinstance(value, kind):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ParameterError(f"{name} must be {_KINDS.get(kind, kind)}, not {value!r}.")


def _parse(text: str, kind: Any, name: str) -> Any:
    """A value of the environment as the type of the setting; lists are separated by commas."""
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        return tuple(_parse(part.strip(), get_args(kind)[0], name) for part in text.split(",") if part.strip())
    try:
        if kind is bool and text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        if kind in (int, float):
            return kind(text)
        if kind is Path and text:
            return Path(text)
        if kind is str:
            return text
    except ValueError:
        pass
    raise ParameterError(f"{name} must be {_KINDS.get(kind, kind)}, not {text!r}.")


def _without_none(kind: Any) -> Any:
    if isinstance(kind, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return kind


_KINDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false", Path: "a path"}
