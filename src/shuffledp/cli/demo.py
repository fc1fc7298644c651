"""``shuffledp demo``: the main job on a bundled data set, next to the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from shuffledp.cli.screen import print_table, say
from shuffledp.datasets import COMMUTE_MODES, commute_path
from shuffledp.domain import Categories
from shuffledp.engines.local import FileColumn, run_counts
from shuffledp.figures import bars, check_figure_path
from shuffledp.output import write_whole
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram

__all__ = ["demo"]

_EPSILON = 1.0
_DELTA = 1e-8


def demo(
    plot: Annotated[Path, typer.Option("--plot", metavar="FILE", help="Where to draw the figure.")] = Path(
        "shuffledp-demo.png"
    ),
) -> None:
    """Estimate how people commute from 25,000 bundled answers, and compare with the truth.

    Example: shuffledp demo --plot commute.svg
    """
    check_figure_path(plot)
    domain = Categories.of(COMMUTE_MODES)
    truth = FileColumn(commute_path(), "mode").histogram(domain)
    users = int(truth.sum())
    protocol = BalcerCheuHistogram.calibrate(users=users, categories=domain, epsilon=_EPSILON, delta=_DELTA)
    say(f"{users:,} people each answer: how did you get to work today?")
    say(
        f"Each device sends about {protocol.cost.messages_per_user:.1f} messages, one of which is the answer; "
        f"{users * protocol.cost.messages_per_user:,.0f} messages are shuffled, counted and corrected for noise."
    )
    estimate = run_counts(truth, lambda _: protocol, route="messages")
    intervals = estimate.interval(0.95)
    print_table(
        ["mode", "private estimate", "95% interval", "truth", "off by"],
        [
            [name, f"{count:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{true:,}", f"{count - true:+,.0f}"]
            for name, count, (low, high), true in zip(domain.names, estimate.counts, intervals, truth, strict=True)
        ],
    )
    predicted = protocol.expected_error(counts=truth).rmse
    actual = float(np.sqrt(np.mean((estimate.counts - truth) ** 2)))
    paper = BalcerCheuHistogram.calibrate(
        users=users, categories=domain, epsilon=_EPSILON, delta=_DELTA, calibration="paper"
    )
    say(
        f"What the noise cost: off by {actual:.1f} users a category (predicted: {predicted:.1f}). "
        f"The paper's own constants would have cost {paper.expected_error(counts=truth).rmse:,.1f}."
    )
    say(estimate.guarantee_sentence())
    picture = bars(
        plot.suffix.lower(),
        names=list(domain.names),
        values=estimate.counts,
        intervals=intervals,
        truth=truth.astype(np.float64),
        title="How 25,000 people got to work, privately",
        value_title=f"users (of {users:,})",
        caption=[
            "Bars: private estimate with its 95% interval. Triangles: the truth.",
            f"Differentially private in the shuffled model: epsilon = {_EPSILON:g}, delta = {_DELTA:g}.",
        ],
    )
    write_whole(plot, picture)
    say(f"Picture: {plot}")
