"""Figures as values that a notebook displays, or as files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shuffledp.figures.rendering import check_figure_packages, check_figure_path, picture_of
from shuffledp.output import write_whole

_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([0-9.]+)"[^>]*?\bheight="([0-9.]+)"')


@dataclass(frozen=True)
class InlineFigure:
    """A figure, which notebooks display where it is the value of a cell."""

    svg: str = field(repr=False)

    def __repr__(self) -> str:
        return 'InlineFigure(displayed by notebooks; to write it to a file, pass a path: plot("figure.svg"))'

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        """The PNG at twice the resolution of the display, and its width and height there."""
        size = _SIZE.search(self.svg)
        names = ("width", "height")
        shown = {name: round(float(length)) for name, length in zip(names, size.groups(), strict=True)} if size else {}
        return picture_of(self.svg.encode()), shown


def show_or_write(draw: Callable[[str], bytes], path: str | Path | None) -> InlineFigure | None:
    """Write what ``draw`` makes for the suffix of the path; without a path, return it for a notebook to display."""
    if path is None:
        check_figure_packages()
        return InlineFigure(draw(".svg").decode())
    suffix = check_figure_path(path).suffix.lower()
    write_whole(path, draw(suffix))
    return None
