"""What a study is: a claim, a way to measure it, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffledp.errors import ParameterError
from shuffledp.figures import LIGHT, Panel, Theme, panels
from shuffledp.lab.studies.checks import Check
from shuffledp.randomness import SYSTEM, RandomSource

Progress = Callable[[float], None]
"""Told how much is done, from 0 to 1."""

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """How a study is run."""

    quick: bool = False
    """A small form that shows the same in seconds."""
    source: RandomSource = SYSTEM
    progress: Progress = field(default=lambda _: None)

    def pick(self, quick: T, full: T) -> T:
        """The one or the other, as the study is run."""
        return quick if self.quick else full

    def steps(self, items: Sequence[T], weights: Sequence[float] | None = None) -> Iterator[T]:
        """The items one by one, telling the progress; ``weights`` say how long each takes, if that differs."""
        shares = [1.0] * len(items) if weights is None else [float(weight) for weight in weights]
        done, total = 0.0, sum(shares) or 1.0
        self.progress(0.0)
        for item, share in zip(items, shares, strict=True):
            yield item
            done += share
            self.progress(min(done / total, 1.0))

    def part(self, start: float, end: float) -> Settings:
        """The same for one part of a study, whose progress goes from ``start`` to ``end`` of the whole."""
        return Settings(self.quick, self.source, lambda share: self.progress(start + (end - start) * share))


@dataclass(frozen=True)
class Table:
    """Columns of equal length, by name."""

    columns: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise ParameterError(f"The columns of a table have different lengths: {sorted(lengths)}.")

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Table:
        """From rows; a row may lack a column, which is then empty there."""
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({name: [row.get(name) for row in rows] for name in names})

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Row by row."""
        return list(zip(*self.columns.values(), strict=True))


@dataclass(frozen=True)
class Figure:
    """A picture that can be drawn in any format and theme."""

    description: str
    """What is to be seen, for those who cannot see it."""
    draw: Callable[[str, Theme], bytes]
    """From a suffix and a theme to the content of a file."""
    name: str = ""
    """Tells the figures of one study apart; the main figure has none."""


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
    """A figure of curves in panels; ``more`` goes to :func:`shuffledp.figures.panels`."""

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
    """What a study found."""

    measured: Sequence[str]
    """What was measured and what came out, in words with numbers; a paragraph each."""
    tables: Mapping[str, Table]
    """The data, by name; the main table has the name ``""``."""
    figures: Sequence[Figure]
    checks: Sequence[Check]

    @property
    def holds(self) -> bool:
        """Whether everything lies on the right side of its bound."""
        return all(check.holds for check in self.checks)


@dataclass(frozen=True)
class Study:
    """A table, theorem or claim of the literature, and how to measure it."""

    name: str
    title: str
    source: str
    """Where it is claimed, for example ``Balcer and Cheu (2020), Theorem 11``."""
    claimed: Sequence[str]
    """What is claimed; a paragraph each. Text between backticks is set as code."""
    reading: Sequence[str]
    """How to read the figure and the table; a paragraph each."""
    measure: Callable[[Settings], Outcome]
