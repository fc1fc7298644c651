"""Questions of a session as a TOML file: read strictly, so that a misspelled key is never ignored."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shuffledp.durable_files import parse_toml
from shuffledp.errors import BudgetError, DataError, ParameterError, ShuffledpError
from shuffledp.sessions.asking import ASKS, Ask
from shuffledp.sessions.budget import MAX_RELEASES, Budget
from shuffledp.sessions.data import RowsOfUsers
from shuffledp.sessions.saved import check_label

MAX_QUESTIONS_BYTES = 1 << 24
_ROUNDING = 1e-9  # of shares
_SESSION = {
    "epsilon": "number",
    "delta": "number",
    "title": "string",
    "complete": "boolean",
    "missing": "list of strings",
    "user": "string",
    "pick": "string",
    "order_by": "string",
    "drop_missing_users": "boolean",
    "trust": "string",
    "honest_fraction": "number",
    "adaptive": "boolean",
}
_ROWS_OF_USERS = ("user", "pick", "order_by", "drop_missing_users")
_EVERY_QUESTION = {
    "kind": "string",
    "column": "string",
    "label": "string",
    "share": "number",
    "epsilon": "number",
    "delta": "number",
    "protocol": "string",
    "calibration": "string",
    "estimator": "string",
}
_OF_KINDS = {
    "equals": "string",
    "categories": "list of strings",
    "other": "string or boolean",
    "alphabet": "string",
    "max_length": "integer",
    "trim": "boolean",
    "nfc": "boolean",
    "case_fold": "boolean",
    "by": "string",
    "lower": "bound",
    "upper": "bound",
    "whole": "boolean",
    "clip": "boolean",
    "quantiles": "list of numbers",
    "bins": "number or list of numbers",
}
_CHECKS = {
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str) and value != "",
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_integer(value),
    "string or boolean": lambda value: isinstance(value, bool) or (isinstance(value, str) and value != ""),
    "bound": lambda value: _is_number(value) or isinstance(value, str) or hasattr(value, "isoformat"),
    "list of strings": lambda value: _is_list(value, lambda item: isinstance(item, str)),
    "list of numbers": lambda value: _is_list(value, _is_number),
    "number or list of numbers": lambda value: _is_integer(value) or _is_list(value, _is_number),
}


@dataclass(frozen=True)
class AskedColumn:
    """One question of the file: what is asked of which column, and the options of the release."""

    column: str
    ask: Ask
    options: dict[str, Any]


@dataclass(frozen=True)
class QuestionsFile:
    """The questions of a session and its settings."""

    title: str
    epsilon: float
    delta: float
    questions: tuple[AskedColumn, ...]
    complete: bool
    """Whether the users are those who have a value in every column."""
    missing: tuple[str, ...]
    settings: dict[str, Any]
    """Further settings of the session."""
    rows_of_users: RowsOfUsers | None = None
    """Which row of a user counts, if users have several."""

    @property
    def columns(self) -> list[str]:
        """The columns that are asked about, each once."""
        return list(dict.fromkeys(question.column for question in self.questions))


def read_questions(content: bytes, name: str) -> QuestionsFile:
    """The questions in these bytes of TOML; ``name`` names them in errors."""
    if len(content) > MAX_QUESTIONS_BYTES:
        raise DataError(f"{name} is too large for a file of questions; the limit is {MAX_QUESTIONS_BYTES:,} bytes.")
    document = parse_toml(content, name)
    try:
        return _questions(document)
    except ShuffledpError as error:
        raise type(error)(f"{name}: {error}") from None


def _questions(document: Mapping[str, Any]) -> QuestionsFile:
    _check_keys(document, ("session", "question"), "the file")
    session, listed = document.get("session"), document.get("question")
    if not isinstance(session, dict):
        raise ParameterError("The table [session] with epsilon and delta is missing.")
    if not isinstance(listed, list) or not listed or not all(isinstance(item, dict) for item in listed):
        raise ParameterError("There is no question: add a table [[question]] with kind and column for each.")
    if len(listed) > MAX_RELEASES:
        raise ParameterError(f"A session has at most {MAX_RELEASES:,} questions, not {len(listed):,}.")
    _check_values(session, _SESSION, "[session]")
    _require(session, ("epsilon", "delta"), "[session]")
    questions = []
    for number, content in enumerate(listed, start=1):
        try:
            questions.append(_question(content))
        except ShuffledpError as error:
            raise type(error)(f"question {number}: {error}") from None
    settings = {key: session[key] for key in ("trust", "honest_fraction", "adaptive") if key in session}
    file = QuestionsFile(
        title=check_label("title", session.get("title", "Private statistics")),
        epsilon=session["epsilon"],
        delta=session["delta"],
        questions=tuple(questions),
        complete=session.get("complete", False),
        missing=tuple(session.get("missing", ())),
        settings=settings | {"releases": len(questions)},
        rows_of_users=_rows_of_users(session),
    )
    Budget(2, file.epsilon, file.delta, **_budget_settings(file.settings))  # checks epsilon, delta and settings
    _check_labels([question.options["label"] for question in questions if "label" in question.options])
    return replace(file, questions=_with_shares(questions))


def _rows_of_users(session: Mapping[str, Any]) -> RowsOfUsers | None:
    options = {key: session[key] for key in _ROWS_OF_USERS if key in session}
    if options and "user" not in options:
        raise ParameterError(f'{next(iter(options))} needs the column of user ids too: user = "COLUMN".')
    return RowsOfUsers(**options) if options else None


def _budget_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"announced" if key == "releases" else key: value for key, value in settings.items()}


def _question(content: Mapping[str, Any]) -> AskedColumn:
    _require(content, ("kind", "column"), "[[question]]")
    kind = content["kind"]
    if not isinstance(kind, str) or kind not in ASKS:
        raise ParameterError(f"There is no kind {kind!r}; choose one of {', '.join(ASKS)}.")
    parameters = inspect.signature(ASKS[kind]).parameters
    keys = _EVERY_QUESTION | {name: _OF_KINDS[name] for name in parameters if name in _OF_KINDS}
    _check_values(content, keys, f"a {kind} question")
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    _require(content, needed, f"a {kind} question")
    if "label" in content:
        check_label("label", content["label"])
    ask = ASKS[kind](**{name: content[name] for name in parameters if name in content})
    options = {name: content[name] for name in _EVERY_QUESTION if name in content and name not in ("kind", "column")}
    return AskedColumn(content["column"], ask, options)


def _with_shares(questions: list[AskedColumn]) -> tuple[AskedColumn, ...]:
    """The questions with their shares of the budget.

    If some have a share, the rest is divided equally among those that have neither a share nor an epsilon of their own.

    Shares that cannot be met are refused here, before any data are read.
    """
    shares = [question.options["share"] for question in questions if "share" in question.options]
    for share in shares:
        if not 0 < share <= 1:
            raise ParameterError(f"A share must be above 0 and at most 1, not {share}.", share=share)
    total = math.fsum(shares)
    if total > 1 + _ROUNDING:
        raise BudgetError(f"The shares add up to {total:.6g}, more than 1.", total=total)
    others = [question for question in questions if not question.options.keys() & {"share", "epsilon"}]
    if not shares or not others:
        return tuple(questions)
    if total > 1 - _ROUNDING:
        raise BudgetError("The shares add up to 1, so that nothing is left for the questions without a share.")
    rest = (1 - total) / len(others)
    return tuple(
        replace(question, options=question.options | {"share": rest}) if question in others else question
        for question in questions
    )


def _check_labels(labels: list[str]) -> None:
    for index, label in enumerate(labels):
        if label in labels[:index]:
            raise ParameterError(f"Two questions have the label {label!r}; labels must differ.")


def _check_values(content: Mapping[str, Any], kinds: Mapping[str, str], where: str) -> None:
    _check_keys(content, tuple(kinds), where)
    for key, value in content.items():
        if not _CHECKS[kinds[key]](value):
            raise ParameterError(f"{key} must be a {kinds[key]}, not {_shown(value)}.")


def _check_keys(content: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in keys:
            raise ParameterError(f"{where} has no key {_shown(key)}; it has {', '.join(keys)}.")


def _require(content: Mapping[str, Any], keys: tuple[str, ...] | list[str], where: str) -> None:
    for key in keys:
        if key not in content:
            raise ParameterError(f"{where} needs the key {key}.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object, accepts: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(accepts(item) for item in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
