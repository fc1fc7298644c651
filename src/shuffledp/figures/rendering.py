"""Rendering of chart specifications as PNG, SVG or stand-alone HTML pages, for light or dark backgrounds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.display import printable
from shuffledp.errors import OutputError
from shuffledp.extras import check_extra, extra
from shuffledp.figures.text_extent import with_whole_text
from shuffledp.output import check_writable

FORMATS = (".png", ".svg", ".html")
_PURPOSE = "Drawing a figure"


def check_figure_path(path: str | Path) -> Path:
    """Refuse, before any work is done, a figure that cannot be written."""
    target = check_writable(path)
    if target.suffix.lower() not in FORMATS:
        raise OutputError(
            f"Cannot draw {target}: a figure ends in {', '.join(FORMATS)}, not {target.suffix or 'nothing'!r}.",
            path=str(target),
        )
    check_figure_packages()
    return target


def check_figure_packages() -> None:
    """Refuse, before any work is done, to draw without the packages of the extra ``plot``."""
    check_extra("plot", _PURPOSE, "altair", "vl_convert")


def load_altair() -> Any:
    """The package altair, which is imported when the first figure is drawn."""
    with extra("plot", _PURPOSE):
        import altair
    return altair


def _load_renderer() -> Any:
    with extra("plot", _PURPOSE):
        import vl_convert
    return vl_convert


@dataclass(frozen=True)
class Theme:
    """Colours for one background; those of curves are distinguishable with colour blindness."""

    background: str
    ink: str
    soft_ink: str
    grid: str
    curves: tuple[str, ...]


LIGHT = Theme(
    background="#ffffff",
    ink="#222222",
    soft_ink="#555555",
    grid="#e6e6e6",
    curves=(
        *("#4477aa", "#cc3311", "#228833", "#aa3377", "#997700", "#009988"),
        *("#ee7733", "#555555", "#6a51a3", "#0b3c6f", "#8c564b", "#e0559a"),
    ),
)
DARK = Theme(
    background="#16181c",
    ink="#e8e8e8",
    soft_ink="#b0b4ba",
    grid="#33373d",
    curves=(
        *("#77aadd", "#ee8866", "#7fc97f", "#ee99cc", "#ddcc77", "#44bb99"),
        *("#ffb570", "#c0c0c0", "#b9a4e6", "#d7e9ff", "#c9a08f", "#ff5fa8"),
    ),
)


def render(
    chart: Any,
    suffix: str,
    title: str,
    caption: list[str],
    *,
    height: int | None = None,
    width: int | None = 520,
    theme: Theme = LIGHT,
) -> bytes:
    """Render the chart with its title and caption as the content of a file with this suffix."""
    alt, vl_convert = load_altair(), _load_renderer()
    sizes = {name: size for name, size in (("width", width), ("height", height)) if size is not None}
    finished = (
        chart.properties(
            **sizes,
            padding={"left": 12, "top": 12, "right": 48, "bottom": 12},
            background=theme.background,
            title=alt.TitleParams(
                text=title,
                subtitle=caption,
                anchor="start",
                fontSize=17,
                color=theme.ink,
                subtitleFontSize=11,
                subtitleColor=theme.soft_ink,
            ),
        )
        .configure_view(stroke=None)
        .configure_axis(
            labelFontSize=12,
            titleFontSize=12,
            gridColor=theme.grid,
            labelColor=theme.ink,
            titleColor=theme.ink,
            domainColor=theme.soft_ink,
            tickColor=theme.soft_ink,
        )
        .configure_legend(labelColor=theme.ink, titleColor=theme.ink)
        .configure_header(labelColor=theme.ink, titleColor=theme.ink)
    )
    specification = json.dumps(_drawable(finished.to_dict()))
    if suffix == ".html":
        return _page(specification)
    drawing: str = vl_convert.vegalite_to_svg(specification)
    # a PNG is drawn with the font that the text was measured with; an SVG may be shown with a wider one
    return with_whole_text(drawing).encode() if suffix == ".svg" else picture_of(drawing.encode())


def _drawable(value: Any) -> Any:
    """The specification with all strings made printable: other characters would make the renderer abort the process."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_drawable(item) for item in value]
    return {key: _drawable(item) for key, item in value.items()} if isinstance(value, dict) else value


def picture_of(drawing: bytes) -> bytes:
    """The PNG of an SVG, with twice as many pixels."""
    picture: bytes = _load_renderer().svg_to_png(drawing.decode(), scale=2)
    return picture


def _page(specification: str) -> bytes:
    """A page that needs no network; values of the data are escaped so that they cannot end the script element."""
    placeholder = "\ue0fc"  # a private-use character; the renderer may write it as an escape sequence
    page: str = _load_renderer().vegalite_to_html(specification.replace("<", placeholder), bundle=True)
    return page.replace(placeholder, "\\u003c").replace("\\ue0fc", "\\u003c").encode()
