"""The query of the planner's page: parsed from a URL, and written as a URL, as command lines and as Python."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from shuffledp.checks import check_confidence, check_target, check_users
from shuffledp.errors import ParameterError, ShuffledpError
from shuffledp.planning import Count, Histogram, Limits, Mean, Plan, Plans, Quantiles, Question, Sum
from shuffledp.planning.several_releases import check_releases

QUESTIONS = ("count", "histogram", "sum", "mean", "quantiles")
SHAPES = ("skewed", "even")
"""Shapes of the invented data of a preview."""
_MAX_USERS, _MAX_CATEGORIES, _MAX_BINS, _MAX_RELEASES = 10**9, 10**6, 2048, 1000
"""A page is for trying things out; the command line has no such limits."""
_LONGEST_NUMBER = 40
_LONGEST_CHOICE = 200
_FIELDS_OF = {
    "count": (),
    "histogram": ("domain_size",),
    "sum": ("lower", "upper", "whole"),
    "mean": ("lower", "upper", "whole"),
    "quantiles": ("lower", "upper", "bins"),
}
_LIMITS = ("releases", "trust", "honest_fraction", "max_messages", "max_bytes", "max_local_epsilon", "confidence")
_VIEW = ("shape", "choice", "draw")
"""What changes the view only, not the plans."""


@dataclass(frozen=True)
class Query:
    """A question, a target and limits, and the plan that is shown in detail."""

    question: str = "histogram"
    users: int = 20_000
    domain_size: int = 12
    lower: float = 0.0
    upper: float = 100.0
    whole: bool = False
    bins: int = 64
    epsilon: float = 1.0
    delta: float = 1e-8
    honest_fraction: float = 1.0
    releases: int = 1
    trust: str = "shuffled"
    max_messages: float | None = None
    max_bytes: float | None = None
    max_local_epsilon: float | None = None
    confidence: float = 0.95
    shape: str = SHAPES[0]
    """The shape of the invented data."""
    choice: str = ""
    """The id of the plan that is shown in detail; empty for the best."""
    draw: int = 0
    """The number of the invented release."""

    def __post_init__(self) -> None:
        _check_choice("question", self.question, QUESTIONS)
        _check_choice("shape", self.shape, SHAPES)
        if len(self.choice) > _LONGEST_CHOICE:
            raise ParameterError(f"choice has at most {_LONGEST_CHOICE} characters, not {len(self.choice):,}.")
        for name, value, limit in (
            ("users", self.users, _MAX_USERS),
            ("domain_size", self.domain_size, _MAX_CATEGORIES),
            ("bins", self.bins, _MAX_BINS),
            ("releases", self.releases, _MAX_RELEASES),
            ("draw", self.draw, _MAX_USERS),
        ):
            if value > limit:
                raise ParameterError(
                    f"{name} is at most {limit:,} on this page, not {value:,}; the command shuffledp plan takes more."
                )
        check_target(self.epsilon, self.delta)
        check_users(self.users, self.honest_fraction)
        check_confidence(self.confidence)
        check_releases(self.releases)
        _ = self.asked, self.limits

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Query:
        """The query of a URL; ParameterError with one line if a parameter is unknown or invalid."""
        kinds = {field.name: field.type for field in fields(cls)}
        unknown = sorted(set(parameters) - set(kinds))
        if unknown:
            raise ParameterError(f"There is no parameter {unknown[0][:_LONGEST_NUMBER]!r} here.")
        values = {name: _parse(name, text.strip(), str(kinds[name])) for name, text in parameters.items()}
        return cls(**{name: value for name, value in values.items() if value is not MISSING})

    @classmethod
    def parse_valid(cls, parameters: Mapping[str, str]) -> Query:
        """The query of the valid parameters alone, so that a form with one wrong number keeps the others."""
        query, valid = cls(), dict[str, str]()
        for name in (field.name for field in fields(cls) if field.name in parameters):
            with suppress(ShuffledpError):
                query = cls.parse(valid | {name: parameters[name]})
                valid[name] = parameters[name]
        return query

    @property
    def asked(self) -> Question:
        """The question with its users and domain."""
        match self.question:
            case "count":
                return Count(self.users)
            case "histogram":
                return Histogram(self.users, self.domain_size)
            case "quantiles":
                return Quantiles(self.users, self.lower, self.upper, self.bins)
        kind = Sum if self.question == "sum" else Mean
        return kind(self.users, self.lower, self.upper, self.whole)

    @property
    def limits(self) -> Limits:
        """The limits on plans."""
        return Limits(self.trust, self.honest_fraction, self.max_messages, self.max_bytes, self.max_local_epsilon)

    @property
    def calibrated(self) -> Query:
        """The part on which calibrations depend: the key of a cache. Other limits only reject what was calibrated."""
        dropped = {name for names in _FIELDS_OF.values() for name in names} - set(_FIELDS_OF[self.question])
        dropped |= {"max_messages", "max_bytes", "max_local_epsilon", *_VIEW}
        return Query(**{name: getattr(self, name) for name in _DEFAULTS if name not in dropped})

    def relevant(self, name: str) -> bool:
        """Whether a field concerns the question."""
        return name in _FIELDS_OF[self.question] or all(name not in names for names in _FIELDS_OF.values())

    @staticmethod
    def questions_of(name: str) -> tuple[str, ...]:
        """The questions that a field concerns."""
        named = tuple(question for question, names in _FIELDS_OF.items() if name in names)
        return named or QUESTIONS

    def to_parameters(self) -> dict[str, str]:
        """The parameters of the page's URL: what differs from the defaults and concerns the question."""
        return {
            field.name: written(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != field.default and self.relevant(field.name) and field.name != "draw"
        }

    def to_url(self) -> str:
        """The query of the page's URL."""
        return urlencode(self.to_parameters())

    def plan_command(self) -> str:
        """The command line that prints the same plans."""
        words = ["shuffledp", "plan", self.question, "--users", str(self.users), *self._domain_words()]
        words += ["--epsilon", written(self.epsilon), "--delta", written(self.delta)]
        for name in _LIMITS:
            words += self._option(name)
        return shlex.join(words)

    def task_delta(self, plan: Plan) -> float:
        """The delta of a task of the plan, which must be above 0 even if the protocol does not use it."""
        return plan.protocol.target.delta or self.delta / self.releases

    def task_command(self, plan: Plan, messages: int) -> str:
        """The command line that makes a task of the plan, for a collection with this many messages per report."""
        target = plan.protocol.target
        kind = "sum" if self.question == "mean" else self.question
        words = ["shuffledp", "task", "create", kind, "--name", "NAME", "--population", "POPULATION"]
        words += ["--users", str(self.users), *self._domain_words(), *self._option("honest_fraction")]
        words += ["--epsilon", written(target.epsilon), "--delta", written(self.task_delta(plan))]
        words += ["--protocol", plan.protocol.name, "--max-messages", str(max(messages, 100)), "--closes", "7d"]
        words += ["--author", "author.key", "--analyzer", "analyzer.key.pub", "--shuffler", "shuffler.key.pub"]
        return shlex.join([*words, "--out", "task.json"])

    def python(self, plans: Plans, plan: Plan) -> str:
        """Python that makes the same plans, and the protocol of one of them."""
        asked = self.asked
        arguments = ", ".join(f"{name}={getattr(asked, name)!r}" for name in ("users", *_FIELDS_OF[self.question]))
        names = ["epsilon", "delta", *(name for name in _LIMITS if getattr(self, name) != _DEFAULTS[name])]
        target = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        lines = [
            "import shuffledp as sdp",
            "",
            f"plans = sdp.plan(sdp.{type(asked).__name__}({arguments}), {target})",
        ]
        if plan == plans[0]:
            lines.append("protocol = plans.best")
        elif plan == plans[plan.protocol.name]:
            lines.append(f'protocol = plans["{plan.protocol.name}"].protocol')
        else:
            test = f'plan.protocol.name == "{plan.protocol.name}" and plan.variant == "{plan.variant}"'
            lines.append(f"protocol = next(plan.protocol for plan in plans if {test})")
        return "\n".join(lines)

    def _domain_words(self) -> list[str]:
        return [word for name in _FIELDS_OF[self.question] for word in self._option(name, always=name != "whole")]

    def _option(self, name: str, *, always: bool = False) -> list[str]:
        """A flag with its value; nothing if it has the default, unless ``always``."""
        value = getattr(self, name)
        if not always and value == _DEFAULTS[name]:
            return []
        flag = f"--{name.replace('_', '-')}"
        return [flag] if value is True else [flag, written(value)]


_DEFAULTS = {field.name: field.default for field in fields(Query)}


def plan_id(plan: Plan) -> str:
    """The name of a plan on the page: its protocol and the calibration with its options."""
    return f"{plan.protocol.name} ({plan.variant})"


def _check_choice(name: str, value: str, offered: tuple[str, ...]) -> None:
    if value not in offered:
        raise ParameterError(f"{name} must be one of {', '.join(offered)}, not {value[:_LONGEST_NUMBER]!r}.")


def _parse(name: str, text: str, kind: str) -> Any:
    """The value of a parameter; MISSING if it is empty, so that the default holds."""
    if not text:
        return MISSING
    if kind == "str":
        return text
    if kind == "bool":
        return text in ("on", "true", "1")
    number = text.replace(",", "").replace("_", "") if len(text) <= _LONGEST_NUMBER else ""
    try:
        value = float(number)
        if kind == "int":
            if not value.is_integer():
                raise ValueError
            return int(number) if number.lstrip("+-").isdigit() else int(value)
    except (ValueError, OverflowError):
        wanted = "an integer" if kind == "int" else "a number"
        raise ParameterError(f"{name} must be {wanted}, not {text[:_LONGEST_NUMBER]!r}.") from None
    if not math.isfinite(value):
        raise ParameterError(f"{name} must be a finite number, not {text!r}.")
    return value


def written(value: Any) -> str:
    """A value as the shortest string that is read back as the same."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:g}" if float(f"{value:g}") == value else repr(value)
        return short.replace("e-0", "e-")
    return str(value)
