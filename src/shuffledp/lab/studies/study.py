"""Data types of a study: its claim, the settings of a run, and the outcome with tables, figures and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffledp.errors import ParameterError
from shuffledp.figures import LIGHT, Panel, Theme, panels
from shuffledp.lab.studies.checks import Check
from shuffledp.randomness import SYSTEM, RandomSource

Progress = Callable[[float], None]
"""A callback that receives the completed fraction, from 0 to 1."""

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """The settings of one run of a study."""

    quick: bool = False
    """Run a smaller version that takes seconds."""
    source: RandomSource = SYSTEM
    progress: Progress = field(default=lambda _: None)

    def pick(self, quick: T, full: T) -> T:
        """The value for the quick or for the full version."""
        return quick if self.quick else full

    def steps(self, items: Sequence[T], weights: Sequence[float] | None = None) -> Iterator[T]:
        """Yield the items and report the progress after each; ``weights`` are relative durations, by default equal."""
        shares = [1.0] * len(items) if weights is None else [float(weight) for weight in weights]
        done, total = 0.0, sum(shares) or 1.0
        self.progress(0.0)
        for item, share in zip(items, shares, strict=True):
            yield item
            done += share
            self.progress(min(done / total, 1.0))

    def part(self, start: float, end: float) -> Settings:
        """The settings for one part of a study, whose progress covers ``start`` to ``end`` of the total."""
        return Settings(self.quick, self.source, lambda share: self.progress(start + (end - start) * share))


@dataclass(frozen=True)
class ResultTable:
    """Columns of equal length, by name."""

    columns: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise ParameterError(f"The columns of a table have different lengths: {sorted(lengths)}.")

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> ResultTable:
        """A table from rows; a column that a row lacks is empty there."""
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({name: [row.get(name) for row in rows] for name in names})

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples."""
        return list(zip(*self.columns.values(), strict=True))


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn in any format and theme."""

    description: str
    """The alternative text."""
    draw: Callable[[str, Theme], bytes]
    """Maps a file suffix and a theme to the content of the file."""
    name: str = ""
    """Distinguishes the figures of one study; empty for the main figure."""


def span(values: Iterable[float], form: str = ",.0f") -> str:
    """The formatted range of some numbers, or one number if both ends are formatted the same."""
    numbers = list(values)
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def curve_figure(
    description: str,
    *,
    panels_shown: Sequence[Panel],
    title: str,
    x_title: str,
    y_title: str,
    caption: Sequence[str] = (),
    name: str = "",
    **more: Any,
) -> Figure:
    """A figure of curves in panels; ``more`` is passed to :func:`shuffledp.figures.panels`."""

    def draw(suffix: str, theme: Theme = LIGHT) -> bytes:
        return panels(
            suffix,
            panels=panels_shown,
            title=title,
            x_title=x_title,
            y_title=y_title,
            caption=list(caption),
            theme=theme,
            **more,
        )

    return Figure(description, draw, name)


@dataclass(frozen=True)
class Outcome:
    """The results of a study."""

    measured: Sequence[str]
    """What was measured and the results, as paragraphs."""
    tables: Mapping[str, ResultTable]
    """The data tables by name; the name of the main table is ``""``."""
    figures: Sequence[Figure]
    checks: Sequence[Check]

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)


@dataclass(frozen=True)
class Study:
    """A table, theorem or claim of the literature, and the function that measures it."""

    name: str
    title: str
    source: str
    """The publication of the claim, for example ``Balcer and Cheu (2020), Theorem 11``."""
    claimed: Sequence[str]
    """The claim, as paragraphs. Strings between backticks are set as code."""
    reading: Sequence[str]
    """How to read the figures and tables, as paragraphs."""
    measure: Callable[[Settings], Outcome]
