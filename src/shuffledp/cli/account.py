"""``shuffledp account``: the privacy curve of a protocol, and of several releases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import (
    Calibration,
    JsonOption,
    OptionalEpsilonOption,
    PlotOption,
    QualifiedProtocolOptions,
    integer,
    number,
    takes_groups,
)
from shuffledp.cli.screen import note, note_warnings, print_json, print_table, say
from shuffledp.errors import ParameterError
from shuffledp.figures import check_figure_path, curves
from shuffledp.output import write_whole
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.tokens import TokenProtocol
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import find, find_qualified

_CURVE = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
_STEPS = 100


@takes_groups
def account(
    options: QualifiedProtocolOptions,
    epsilon: OptionalEpsilonOption = None,
    absence: Annotated[
        float | None,
        typer.Option(
            "--absence",
            parser=number,
            metavar="Q",
            help="For balcer-cheu, instead of --epsilon: the probability that a token is left out.",
        ),
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="count, histogram, sum or quantiles, if PROTOCOL is only a name.")
    ] = None,
    calibration: Annotated[
        Calibration | None,
        typer.Option("--calibration", help="With --epsilon: by exact numerics (tight), or by the paper's theorem."),
    ] = None,
    releases: Annotated[
        int, typer.Option("--releases", parser=integer, metavar="K", help="Number of releases over the same users.")
    ] = 1,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the exact privacy curve of a protocol, and what several releases add up to.

    Example: shuffledp account histogram/balcer-cheu --users 10000 --epsilon 1 --delta 1e-6 --releases 12
    """
    if plot is not None:
        check_figure_path(plot)
    if releases < 1:
        raise ParameterError(f"The number of releases must be at least 1, not {releases}.")
    kind = find(question, options.protocol) if question else find_qualified(options.protocol)
    chosen = _parametrized(kind, options.arguments(kind), epsilon, absence, calibration)
    users, delta = options.users, options.delta
    single: Guarantee = chosen.guarantee
    total = single.after(releases, delta=delta) if releases > 1 else single
    curve = [{"epsilon": point, "delta": total.delta_at(point)} for point in _curve_points(total.epsilon)]
    exact_epsilon = single.epsilon_at(delta)
    result = {
        "protocol": chosen.name,
        "question": chosen.question,
        "parameters": chosen.parameters(),
        "guarantee": single.to_json(),
        "exact_epsilon": exact_epsilon if math.isfinite(exact_epsilon) else None,
        "releases": releases,
        "composed": total.to_json(),
        "least_delta": total.least_delta,
        "curve": curve,
    }
    if plot is not None:
        _draw(plot, chosen, single, total, delta)
        note(f"wrote {plot}")
    if as_json:
        print_json(result)
        note_warnings(total.warnings)
        return
    print_table(
        ["epsilon", "delta"],
        [[f"{point['epsilon']:.4g}", _delta_text(point["delta"], releases)] for point in curve],
        title=f"{chosen.question}/{chosen.name}, {users:,} users{_absence(chosen)}"
        + (f", {releases} releases" if releases > 1 else ""),
    )
    say(f"One release at delta = {delta:g}: epsilon = {exact_epsilon:.6g}.")
    if releases > 1:
        say(f"{releases} releases at delta = {delta:g}: epsilon = {_epsilon_text(total.epsilon)}.")
    say(total.sentence())


def _parametrized(
    kind: type[Protocol],
    arguments: dict[str, Any],
    epsilon: float | None,
    absence: float | None,
    calibration: Calibration | None,
) -> Protocol:
    """The protocol calibrated for epsilon, or with the given noise."""
    if (epsilon is None) == (absence is None):
        raise ParameterError("Give either --epsilon, to calibrate for it, or --absence, the noise itself.")
    if epsilon is not None:
        return kind.calibrate(epsilon=epsilon, calibration=calibration or Calibration.tight, **arguments)
    if calibration is not None:
        raise ParameterError("--calibration chooses the noise for --epsilon; with --absence it is given.")
    if absence is None or not issubclass(kind, TokenProtocol):
        raise ParameterError(f"{kind.name} leaves no tokens out; give --epsilon instead of --absence.")
    return kind.with_noise(absence=absence, **arguments)


def _absence(chosen: Protocol) -> str:
    return f", absence {chosen.absence}" if isinstance(chosen, TokenProtocol) else ""


def _curve_points(epsilon: float) -> list[float]:
    """Points around the guarantee's own epsilon."""
    scale = epsilon if math.isfinite(epsilon) and epsilon > 0 else 1.0
    return [factor * scale for factor in _CURVE]


def _delta_text(delta: float, releases: int) -> str:
    """The delta with its certain digits; below what composition resolves, only as an upper bound."""
    if releases == 1 or delta >= 100 * CERTIFIED_DOWN_TO:
        return f"{delta:.3g}"
    return f"{delta:.2g}" if delta >= CERTIFIED_DOWN_TO else f"< {CERTIFIED_DOWN_TO:g}"


def _epsilon_text(epsilon: float) -> str:
    return f"{epsilon:.6g}" if math.isfinite(epsilon) else "none (no epsilon holds at this delta)"


def _draw(plot: Path, chosen: Protocol, single: Guarantee, total: Guarantee, delta: float) -> None:
    """Draw the curves as far as they are resolved, and the point at which the guarantee is stated."""
    widest = max(_curve_points(total.epsilon))
    lines = {"one release": _resolved(single, widest, 0.0)}
    if total.releases > 1:
        lines[f"{total.releases} releases"] = _resolved(total, widest, CERTIFIED_DOWN_TO)
    stated = (total.epsilon, delta) if math.isfinite(total.epsilon) else (single.epsilon, single.delta)
    drawing = curves(
        plot.suffix.lower(),
        lines=lines,
        title=f"Privacy of {chosen.question}/{chosen.name}",
        x_title="epsilon",
        y_title="delta",
        caption=[
            f"{single.users:,} users, {single.honest_users:,} honest; every point (epsilon, delta) of a curve holds.",
            "A curve ends where delta stops decreasing, or falls below what the accountant resolves.",
        ],
        mark=(f"epsilon {stated[0]:.4g}, delta {stated[1]:g}", stated) if stated[1] > 0 else None,
    )
    write_whole(plot, drawing)


def _resolved(guarantee: Guarantee, widest: float, least_delta: float) -> list[tuple[float, float]]:
    """The curve up to where delta no longer falls: at the limit of the protocol, or of what the accountant resolves."""
    end = widest
    for _ in range(2):  # again with the steps over the part that is drawn
        points = [(end * step / _STEPS, guarantee.delta_at(end * step / _STEPS)) for step in range(_STEPS + 1)]
        floor = max(points[-1][1], least_delta)
        drawn = [point for point in points if point[1] > floor * (1 + 1e-9)]
        if len(drawn) >= _STEPS // 2 or not drawn:
            break
        end = points[min(len(drawn), _STEPS)][0]
    return drawn or points
