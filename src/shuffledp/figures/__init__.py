"""Figures of results as PNG, SVG or stand-alone HTML pages, for light or dark backgrounds."""

from shuffledp.figures.bars import bars
from shuffledp.figures.cumulative import MarkedQuantile, cumulative
from shuffledp.figures.curves import Curve, Panel, curves, panels
from shuffledp.figures.frontier import frontier
from shuffledp.figures.inline import InlineFigure, show_or_write
from shuffledp.figures.labels import place_labels
from shuffledp.figures.number_line import number_line
from shuffledp.figures.rendering import (
    DARK,
    FORMATS,
    LIGHT,
    Theme,
    check_figure_packages,
    check_figure_path,
    picture_of,
)

__all__ = [
    "DARK",
    "FORMATS",
    "LIGHT",
    "Curve",
    "InlineFigure",
    "MarkedQuantile",
    "Panel",
    "Theme",
    "bars",
    "check_figure_packages",
    "check_figure_path",
    "cumulative",
    "curves",
    "frontier",
    "number_line",
    "panels",
    "picture_of",
    "place_labels",
    "show_or_write",
]
