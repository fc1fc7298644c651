"""What every ``shuffledp run`` does: check early, run one round, deliver the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from numpy.typing import NDArray

from shuffledp.cli.domains import ChosenDomain
from shuffledp.cli.options import Calibration
from shuffledp.cli.results import check_result_path, result_content
from shuffledp.cli.screen import note, note_warnings, say, waiting
from shuffledp.errors import ParameterError
from shuffledp.figures import check_figure_path
from shuffledp.output import write_all
from shuffledp.planning import Question, plan
from shuffledp.privacy.calibration import check_users
from shuffledp.privacy.guarantee import check_target
from shuffledp.protocols.parts.linear import check_estimator
from shuffledp.protocols.registry import PROTOCOLS, find
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, RandomSource

__all__ = [
    "BEST",
    "ColumnOption",
    "DataArgument",
    "DropMissingOption",
    "Engine",
    "EngineOption",
    "OutOption",
    "ProtocolOption",
    "Route",
    "RouteOption",
    "Target",
    "check_early",
    "check_paths",
    "deliver",
    "note_caveats",
    "run_one",
    "say_guarantee",
    "with_caveats",
]


class Engine(StrEnum):
    """Where the run happens."""

    local = "local"


BEST = "best"


class Route(StrEnum):
    """How the round is carried out; the distribution of the result is the same."""

    auto = "auto"
    messages = "messages"
    counts = "counts"


DataArgument = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV (also .gz) or Parquet file, a row per user.")]
ColumnOption = Annotated[str, typer.Option("--column", help="The column with the users' values.", metavar="C")]
ProtocolOption = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="The protocol by name, or best: the one with the least error that plan finds.",
        metavar="NAME",
    ),
]
DropMissingOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows without a value.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the result: .json, .csv or .parquet.")
]
RouteOption = Annotated[
    Route, typer.Option("--route", help="Make every message, or draw their counts by the same distribution.")
]
EngineOption = Annotated[Engine, typer.Option("--engine", help="Where to run.")]


class Target(NamedTuple):
    """The protocol and what its noise is calibrated for."""

    protocol: str
    epsilon: float
    delta: float
    calibration: Calibration
    honest_fraction: float

    def protocol_for(self, question: Question) -> Any:
        """The protocol calibrated for the question, or the best one that the planner finds."""
        if self.protocol == BEST:
            return plan(question, epsilon=self.epsilon, delta=self.delta, honest_fraction=self.honest_fraction).best
        calibrated = find(question.shelf, self.protocol).calibrate(
            **question.settings(),
            epsilon=self.epsilon,
            delta=self.delta,
            calibration=self.calibration,
            honest_fraction=self.honest_fraction,
        )
        return question.answered_by(calibrated)


def check_early(
    shelf: str, target: Target, estimator: str | None, confidence: float, out: Path | None, plot: Path | None
) -> None:
    """Refuse what can be refused before a large file is read."""
    check_target(target.epsilon, target.delta)
    check_users(2, target.honest_fraction)
    if not 0 < confidence < 1:
        raise ParameterError(f"The confidence must lie between 0 and 1, not {confidence:g}.")
    if target.protocol != BEST:
        kind = find(shelf, target.protocol)
        if estimator is not None:
            check_estimator(estimator, kind.estimators)
    else:
        if target.calibration is not Calibration.tight:
            raise ParameterError("--protocol best chooses the calibration too; name a protocol to use the paper's.")
        if estimator is not None:
            kinds = (find(shelf, name) for name in PROTOCOLS[shelf])
            check_estimator(estimator, tuple(dict.fromkeys(name for kind in kinds for name in kind.estimators)))
    if out is not None:
        check_result_path(out)
    if plot is not None:
        check_figure_path(plot)


def run_one(
    question: Question,
    values: NDArray[Any],
    target: Target,
    estimator: str | None,
    engine: Engine,
    route: Route,
    seed: int | None,
) -> Any:
    """One round over users of whom so many hold each index, or whose numbers lie at these places."""
    with waiting("Randomizing, shuffling and counting"):
        protocol = target.protocol_for(question)
        if target.protocol == BEST and estimator is not None and estimator not in protocol.estimators:
            raise ParameterError(
                f"There is no estimator {estimator!r} of {protocol.name}, the best protocol, which has "
                f"{', '.join(protocol.estimators)}. Choose one of these, or name a protocol (--protocol)."
            )
        run = _engine(engine)[question.shelf == "sum"]
        return run(values, lambda _: protocol, estimator=estimator or "", route=route, source=_source(seed))


def _engine(engine: Engine) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What runs a round of counts, and one of places; loaded when it is needed, since it takes a while."""
    from shuffledp.engines.local import run_counts, run_places

    return {Engine.local: (run_counts, run_places)}[engine]


def check_paths(*paths: Path | None) -> None:
    """Refuse to write over what is read, or two results into one file."""
    seen: set[Path] = set()
    for path in filter(None, paths):
        if path.resolve() in seen:
            raise ParameterError(f"{path} is named twice: the data, the domain and each output are different files.")
        seen.add(path.resolve())


def _source(seed: int | None) -> RandomSource:
    return SYSTEM if seed is None else InsecureSeededRandomness(seed)


def deliver(
    estimate: Any, result: dict[str, Any], confidence: float, out: Path | None, plot: Path | None, subject: str
) -> None:
    """Write the result and the figure, both or neither: half a release would invite a second one."""
    contents: dict[Path, bytes] = {}
    if out is not None:
        contents[out] = result_content(out.suffix.lower(), result, estimate.to_table(confidence))
    if plot is not None:
        kind = "Private estimate" if estimate.secure else "NOT PRIVATE: seeded estimate"
        contents[plot] = estimate.figure(plot.suffix.lower(), confidence=confidence, title=f"{kind} of {subject}")
    write_all(contents)
    for written in contents:
        note(f"wrote {written}")


def note_caveats(estimate: Any) -> None:
    """What the guarantee does not cover, and where it is weak, beside a JSON result."""
    for caveat in estimate.caveats:
        note(caveat)
    if estimate.secure:
        note_warnings(estimate.guarantee.warnings)


def say_guarantee(estimate: Any) -> None:
    """The guarantee in plain words."""
    say(estimate.guarantee_sentence())


def with_caveats(
    estimate: Any, *, drop_missing: bool, domain: ChosenDomain | None = None, clipped: bool = False
) -> Any:
    """Say with the estimate what its guarantee does not cover."""
    caveats = []
    if domain is not None and domain.source == "data":
        caveats.append("The list of categories was taken from the data: which ones occur is not protected.")
    if drop_missing:
        caveats.append("Rows without a value were left out: who has one, and the number of users, is not protected.")
    if clipped:
        caveats.append("Numbers outside the bounds were moved to the nearer one: what is estimated is of these.")
    return replace(estimate, caveats=tuple(caveats))
