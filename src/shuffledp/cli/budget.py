"""``shuffledp budget``: what a device has spent of its budget."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import BudgetOption, JsonOption
from shuffledp.cli.screen import print_json, print_table, say
from shuffledp.errors import DataError

if TYPE_CHECKING:
    from shuffledp.collection.device.spending import Usage

budget_app = typer.Typer(help="What a device has spent of its budget.", no_args_is_help=True)


@budget_app.callback()
def _budget() -> None:
    """What a device has spent of its budget."""


@budget_app.command("show")
def show_budget(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Directory of the device's state.")],
    budget: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a device has spent within the window of its budget, in total and on the authors of --budget.

    Example: shuffledp budget show device --budget budget.toml
    """
    from shuffledp.collection.device import DeviceBudget, Policy
    from shuffledp.collection.device.authors import PinnedAuthors
    from shuffledp.collection.device.spending import Spending, usage

    limits = DeviceBudget.of_policy(Policy()) if budget is None else DeviceBudget.load(budget)
    if not directory.is_dir():
        raise DataError(f"{directory} is not a directory; name the state directory of a device.", path=str(directory))
    record, now, pinned = Spending(directory, limits).read(), datetime.now(UTC), PinnedAuthors(directory)
    total = usage(record, limits, now=now)
    authors = {author: usage(record, limits, now=now, author=pinned.first_id(author)) for author in limits.authors}
    if as_json:
        rows = [
            {"author": author, **_shown(spent), "limit": limits.authors[author].epsilon}
            | {"series_limit": limits.authors[author].series}
            for author, spent in authors.items()
        ]
        header = {"window_days": limits.window_days, "delta": limits.delta, "limit": limits.epsilon}
        print_json({**header, **_shown(total), "authors": rows})
        return
    reports = "1 report" if total.releases == 1 else f"{total.releases:,} reports"
    say(
        f"{reports} in {limits.window_days:,} days: epsilon = {total.epsilon:.4g} of {limits.epsilon:g} is spent, at "
        f"delta = {limits.delta:g}."
    )
    if total.oldest_expires is not None:
        say(f"The oldest report counts until {total.oldest_expires.isoformat()}.")
    if authors:
        print_table(
            ["author", "reports", "epsilon", "series"], [_row(a, s, limits.authors[a]) for a, s in authors.items()]
        )


def _shown(spent: Usage) -> dict[str, Any]:
    return {
        "reports": spent.releases,
        "series": spent.series,
        "epsilon": spent.epsilon if math.isfinite(spent.epsilon) else None,
        "oldest_expires": None if spent.oldest_expires is None else spent.oldest_expires.isoformat(),
    }


def _row(author: str, spent: Usage, limits: Any) -> list[str]:
    epsilon = f"{spent.epsilon:.4g}" + ("" if limits.epsilon is None else f" of {limits.epsilon:g}")
    series = f"{spent.series:,}" + ("" if limits.series is None else f" of {limits.series:,}")
    return [author, f"{spent.releases:,}", epsilon, series]
