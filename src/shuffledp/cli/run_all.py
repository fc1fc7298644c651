"""``shuffledp run-all``: several questions about the same data under one budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from shuffledp.checks import check_confidence
from shuffledp.cli.options import (
    ConfidenceOption,
    DataArgument,
    Engine,
    EngineOption,
    FileOptions,
    JsonOption,
    MasterOption,
    SeedOption,
    as_keys,
    paths_read_here,
    takes_groups,
)
from shuffledp.cli.screen import note, note_warnings, print_json, print_table, progress_of_reading, say, waiting
from shuffledp.display import percent
from shuffledp.durable_files import read_limited
from shuffledp.errors import BudgetError, DataError, DomainError, OutputError, ParameterError
from shuffledp.estimate import QuantileEstimate
from shuffledp.extras import check_extra
from shuffledp.output import check_writable, write_all
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness
from shuffledp.sessions.questions_file import MAX_QUESTIONS_BYTES, QuestionsFile, read_questions

if TYPE_CHECKING:
    from shuffledp.engines.table import Progress, Table
    from shuffledp.estimate import Estimate
    from shuffledp.sessions.budget import Budget, Release
    from shuffledp.sessions.session import Session, SessionOptions

_MAX_ROWS = 12
"""Maximum number of rows of each answer that are printed."""


@takes_groups
def run_all(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The questions: a TOML file.")],
    data: DataArgument,
    form: FileOptions,
    confidence: ConfidenceOption = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all results to one .json file.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write one .html page with figures and the report.")
    ] = None,
    session_file: Annotated[
        Path | None,
        typer.Option(
            "--session",
            metavar="FILE",
            help="Record the releases in this session file, before noise is drawn; continue it if it exists.",
        ),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what would be spent and the predicted errors; release nothing.")
    ] = False,
    engine: EngineOption = Engine.local,
    master: MasterOption = None,
    insecure_seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer several questions about the same users under one epsilon and delta.

    The questions are in a TOML file:

        [session]
        epsilon = 1.0
        delta = 1e-6
        complete = true      # users: the rows with a value in every column below
        # user = "id"        # if users have several rows: the column of their ids

        [[question]]
        kind = "histogram"
        column = "mode"
        categories = ["bus", "bike", "car"]
        share = 0.5

        [[question]]
        kind = "mean"
        column = "minutes"
        lower = 0
        upper = 240

    Example: shuffledp run-all questions.toml survey.csv --out results.json --page results.html
    """
    from shuffledp.engines.engine import find_engine  # takes a while to load

    dialect = form.dialect()
    _check_paths(plan, paths_read_here(data, engine, master), out, page, session_file)
    check_confidence(confidence)
    questions = read_questions(read_limited(plan, MAX_QUESTIONS_BYTES, "file of questions"), str(plan))
    source = SYSTEM if insecure_seed is None else InsecureSeededRandomness(insecure_seed)
    with progress_of_reading(data, engine) as progress:
        table = find_engine(engine, master=master, progress=sys.stderr.isatty()).table(data, dialect)
        session, table = _open(questions, table, session_file, progress)
    common: dict[str, Any] = {"missing": questions.missing, "source": source}
    if questions.rows_of_users is not None:
        common |= questions.rows_of_users.options()
    asked = []
    for number, question in enumerate(questions.questions, start=1):
        with _naming(f"{plan}: question {number}, column {question.column}"):
            options = cast("SessionOptions", question.options | common)
            asked.append(session.prepare(table[question.column], question.ask, options))
    with waiting("Calibrating every release"):
        planned = session.plan_all(asked)
    if plan_only:
        _show_plan(questions, session, planned, confidence, as_json=as_json)
        return
    if session_file is not None and not session_file.exists():
        session.save(session_file)
    with nullcontext() if engine is Engine.spark else waiting("Randomizing, shuffling and counting"):
        estimates = session.release_all(asked, planned)
    answers = list(zip(session.releases[-len(asked) :], estimates, strict=True))
    _deliver(questions, session, answers, confidence, out=out, page=page, as_json=as_json)


@contextmanager
def _naming(question: str) -> Iterator[None]:
    """Errors say which question they are about, and what to write in the file of questions."""
    try:
        yield
    except (BudgetError, DataError, DomainError, ParameterError) as error:
        raise type(error)(f"{question}: {as_keys(str(error))}", **error.values) from None


def _check_paths(
    plan: Path, data: list[Path | None], out: Path | None, page: Path | None, session_file: Path | None
) -> None:
    """Refuse what cannot be written before anything is read."""
    for path, suffix in ((out, ".json"), (page, ".html")):
        if path is not None and check_writable(path).suffix.lower() != suffix:
            raise OutputError(f"Cannot write {path}: its name must end in {suffix}.", path=str(path))
    if page is not None:
        check_extra("plot", "A page", "jinja2")
    if session_file is not None:
        check_writable(session_file)
    files = [path for path in (plan, *data, out, page, session_file) if path is not None]
    for index, path in enumerate(files):
        if path.resolve() in (other.resolve() for other in files[:index]):
            raise ParameterError(f"{path} is named twice: the questions, the data and each output are different files.")


def _open(
    questions: QuestionsFile, table: Table, session_file: Path | None, progress: Progress
) -> tuple[Session, Table]:
    """The session and the table that its questions are about."""
    from shuffledp.sessions.complete import complete  # takes a while to load
    from shuffledp.sessions.session import Session

    rows_of_users, missing = questions.rows_of_users, questions.missing
    user = None if rows_of_users is None else rows_of_users.user
    answered = None
    if questions.complete:
        columns = questions.columns if rows_of_users is None else rows_of_users.with_order(questions.columns)
        answered = table = complete(table, columns, missing=missing, user=user, progress=progress)
    if rows_of_users is not None:
        users = rows_of_users.count_users(table, missing)
    else:
        users = table.count_rows(questions.columns, progress) if answered is None else answered.rows
    if session_file is not None and session_file.exists():
        session = _continued(questions, session_file)
    else:
        session = Session(users=users, epsilon=questions.epsilon, delta=questions.delta, **questions.settings)
    if answered is not None:
        session.ask_about(answered)
    return session, table


def _continued(questions: QuestionsFile, session_file: Path) -> Session:
    """The recorded session, if it is the one that the questions belong to."""
    from shuffledp.sessions.session import Session

    session = Session.load(session_file)
    if (session.epsilon, session.delta) != (questions.epsilon, questions.delta):
        raise ParameterError(
            f"{session_file} records a session with epsilon = {session.epsilon:g} and delta = {session.delta:g}; the "
            f"questions are for epsilon = {questions.epsilon:g} and delta = {questions.delta:g}."
        )
    for name, setting in session.settings.items():
        if name in questions.settings and questions.settings[name] != setting:
            raise ParameterError(
                f"{session_file} records a session with {name} = {json.dumps(setting)}; the questions are for {name} = "
                f"{json.dumps(questions.settings[name])}."
            )
    session.announce(len(questions.questions))
    return session


def _deliver(
    questions: QuestionsFile,
    session: Session,
    answers: list[tuple[Release, Estimate]],
    confidence: float,
    *,
    out: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Write all results and the page, both or neither, and print the results."""
    result = _result(questions, session, session.spent.to_json(), confidence) | {
        "results": [_answer_json(release, estimate, confidence) for release, estimate in answers]
    }
    contents: dict[Path, bytes] = {}
    if out is not None:
        contents[out] = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    if page is not None:
        from shuffledp.sessions.page import session_page

        contents[page] = session_page(questions.title, session, answers, confidence)
    write_all(contents)
    for path in contents:
        note(f"wrote {path}")
    if as_json:
        print_json(result)
        if session.secure:
            note_warnings(session.spent.warnings)
        return
    for release, estimate in answers:
        _show_answer(release, estimate, confidence)
    report = session.report()
    for paragraph in report.paragraphs:
        say(paragraph)


def _result(
    questions: QuestionsFile, session: Session, spent: dict[str, Any], confidence: float, *, plan_only: bool = False
) -> dict[str, Any]:
    """What the JSON of results and of plans have in common."""
    return {
        "title": questions.title,
        "plan_only": plan_only,
        "users": session.users,
        "epsilon": session.epsilon,
        "delta": session.delta,
        "complete": questions.complete,
        "confidence": confidence,
        "secure": session.secure,
        "spent": spent if session.secure else None,
        "report": None if plan_only else str(session.report()),
    }


def _release_json(release: Release, confidence: float) -> dict[str, Any]:
    return {
        "label": release.label,
        "kind": release.statistic,
        "column": release.subject,
        "share": release.share,
        "protocol": release.protocol.name,
        "guarantee": release.guarantee.to_json() if release.secure else None,
        "expected": release.protocol.expected_error(confidence=confidence).to_json(),
    }


def _answer_json(release: Release, estimate: Estimate, confidence: float) -> dict[str, Any]:
    return _release_json(release, confidence) | {"result": estimate.to_json(confidence)}


def _show_plan(
    questions: QuestionsFile, session: Session, planned: Budget, confidence: float, *, as_json: bool
) -> None:
    releases = planned.releases[len(session.releases) :]
    if as_json:
        listed = [_release_json(release, confidence) | {"result": None} for release in releases]
        common = _result(questions, session, planned.spent.to_json(), confidence, plan_only=True)
        print_json(common | {"results": listed})
        return
    print_table(
        ["question", "protocol", "error", "largest", "epsilon alone", "spent after it"],
        [_plan_row(release, confidence) for release in releases],
        title=f"{questions.title}: {len(releases)} releases about {session.users:,} users",
        words=1,
    )
    say(
        f"Errors are typical ones, and the maximum with {percent(confidence)} confidence. All releases together would "
        f"spend epsilon = {planned.spent.epsilon:.4g} of {planned.epsilon:g} at delta = {planned.delta:g}. Nothing was "
        "released."
    )


def _plan_row(release: Release, confidence: float) -> list[str]:
    expected = release.protocol.expected_error(confidence=confidence)
    return [
        release.label,
        release.protocol.name,
        f"{expected.rmse:.4g}",
        f"{expected.max_error:.4g}",
        f"{release.guarantee.epsilon:.4g}",
        f"{release.limit:.4g}",
    ]


def _show_answer(release: Release, estimate: Estimate, confidence: float) -> None:
    """Print the first rows of one answer."""
    from shuffledp.pages.estimates import estimate_table

    table = estimate_table(estimate, confidence)
    rows = table.rows[:_MAX_ROWS]
    title = f"{release.label} ({estimate.users:,} users, by {estimate.protocol})"
    if isinstance(estimate, QuantileEstimate) and release.statistic == "variance":
        number = estimate.variance(confidence)
        say(f"{title}: {number.value:.5g}, between {number.low:.5g} and {number.high:.5g}")
        return
    print_table([table.head[0] or release.statistic, *table.head[1:]], rows, title=title)
    more = len(table.rows) - len(rows) + table.more_rows
    if more:
        say(f"... and {more:,} more; --json or --out has all.")
    if withheld := estimate.withheld_sentence(confidence):
        say(withheld)
