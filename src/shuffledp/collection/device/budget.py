"""The budget of a device: the epsilon that all its reports may have together, in total and per author."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from shuffledp.checks import LARGEST_EPSILON
from shuffledp.collection.device.policy import Policy
from shuffledp.durable_files import parse_toml, read_limited
from shuffledp.errors import ParameterError

_MAX_BYTES = 1 << 20
_MAX_WINDOW_DAYS = 36_500
_KEY_ID = re.compile("[0-9a-f]{16}")
_RELEASES_BY_DEFAULT = 8  # reports of the largest epsilon that the policy allows, by basic composition


@dataclass(frozen=True)
class AuthorBudget:
    """Limits on the tasks of one author within the window."""

    epsilon: float | None = None
    """Maximum epsilon of all reports to this author's tasks, at the delta of the device's budget."""
    series: int | None = None
    """Maximum number of series that the device takes part in; a task that belongs to none counts as one."""

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            _check_epsilon(self.epsilon)
        if self.series is not None and not (_is_integer(self.series) and self.series >= 1):
            raise ParameterError(f"series must be an integer from 1 on, not {self.series!r}.")


@dataclass(frozen=True)
class DeviceBudget:
    """Limits on all reports of a device within a window of days."""

    epsilon: float = 8.0
    delta: float = 1e-5
    window_days: int = 365
    authors: Mapping[str, AuthorBudget] = field(default_factory=dict)
    """Further limits, by the id of the author's key."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        if not (_is_number(self.delta) and 0 <= self.delta < 1):
            raise ParameterError(f"delta must be a number from 0 to below 1, not {self.delta!r}.")
        if not (_is_integer(self.window_days) and 1 <= self.window_days <= _MAX_WINDOW_DAYS):
            raise ParameterError(
                f"window_days must be an integer from 1 to {_MAX_WINDOW_DAYS:,}, not {self.window_days!r}."
            )
        for author in self.authors:
            if not _KEY_ID.fullmatch(author):
                raise ParameterError(f"{author!r} is not the id of a key, which has 16 hexadecimal digits.")

    def of_author(self, key_ids: Iterable[str]) -> AuthorBudget:
        """The limits of an author, given by the ids of all its keys; if several keys have limits, the strictest."""
        limits = [self.authors[key_id] for key_id in key_ids if key_id in self.authors]
        return AuthorBudget(
            min((limit.epsilon for limit in limits if limit.epsilon is not None), default=None),
            min((limit.series for limit in limits if limit.series is not None), default=None),
        )

    @classmethod
    def of_policy(cls, policy: Policy) -> Self:
        """The budget of a device without settings: eight times the epsilon of the policy, at its delta, in 365 days."""
        return cls(min(_RELEASES_BY_DEFAULT * policy.max_epsilon, LARGEST_EPSILON), policy.max_delta)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The budget of a TOML file with the table [total] and a table [author.ID] for each author that has limits."""
        document = parse_toml(read_limited(Path(path), _MAX_BYTES, "budget file"), str(path))
        try:
            return cls._parsed(document)
        except ParameterError as error:
            raise ParameterError(f"{path}: {error}") from None

    @classmethod
    def _parsed(cls, document: dict[str, Any]) -> Self:
        _check_keys(document, {"total"}, {"author"}, "the file")
        total = _table(document["total"], "[total]")
        _check_keys(total, {"epsilon", "delta", "window_days"}, set(), "[total]")
        authors = {}
        for author, limits in _table(document.get("author", {}), "[author]").items():
            name = f'[author."{author}"]'
            table = _table(limits, name)
            _check_keys(table, set(), {"epsilon", "series"}, name)
            if not table:
                raise ParameterError(f"{name} needs epsilon, series or both.")
            authors[author] = AuthorBudget(**table)
        return cls(**total, authors=authors)


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(f"{name} must be a table, not {value!r}.")
    return value


def _check_keys(table: dict[str, Any], required: set[str], optional: set[str], name: str) -> None:
    missing, unknown = sorted(required - set(table)), sorted(set(table) - required - optional)
    if missing:
        raise ParameterError(f"{name} lacks {missing[0]}.")
    if unknown:
        raise ParameterError(f"{name} has the unknown key {unknown[0]!r}; known are {sorted(required | optional)}.")


def _check_epsilon(value: Any) -> None:
    if not (_is_number(value) and 0 < value <= LARGEST_EPSILON):
        raise ParameterError(f"epsilon must be a number above 0, at most {LARGEST_EPSILON:g}, not {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
