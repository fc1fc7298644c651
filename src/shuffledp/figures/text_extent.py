"""Extent of text in an SVG: its largest width in any common sans-serif font, and a view box that contains it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

_WIDTHS = ((" .,:;'|!()[]/ijltfI-", 0.46), ("mwMW@%", 1.0), ("ABCDEFGHJKLNOPQRSTUVXYZ", 0.8), ("0123456789", 0.7))
"""Advance widths in ems, at least those of Verdana and DejaVu Sans, the widest of the common sans-serif fonts."""
_OTHER_WIDTH, _WIDE_WIDTH, _BOLD = 0.68, 1.05, 1.12
_WIDE_FROM = 0x1100
_MARGIN = 6.0
_HEAD = re.compile(
    r'width="(?P<width>[\d.]+)" height="(?P<height>[\d.]+)" viewBox="0 0 [\d.]+ [\d.]+"><rect width="[\d.]+" '
    r'height="[\d.]+"'
)
_TRANSFORM = re.compile(r"(translate|rotate)\(([-\d.e]+)(?:[ ,]+([-\d.e]+))?\)")

Box = tuple[float, float, float, float]


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper bound on the width of a line in pixels, whichever sans-serif font is used."""
    ems = 0.0
    for character in text:
        width_in_ems = next((width for characters, width in _WIDTHS if character in characters), _OTHER_WIDTH)
        ems += _WIDE_WIDTH if ord(character) >= _WIDE_FROM else width_in_ems
    return ems * size * (_BOLD if bold else 1.0)


def distinct_labels(names: list[str], width: float, size: float) -> list[str]:
    """The names; names that begin alike over the width of a label are shortened in the middle, so that they differ."""
    beginnings = [_beginning(name, width, size) for name in names]
    times = Counter(beginnings)
    shortened = [
        _without_middle(name, width, size) if times[beginning] > 1 and beginning != name else name
        for name, beginning in zip(names, beginnings, strict=True)
    ]
    return shortened if len(set(shortened)) == len(names) else names  # one label each, however long


def shortened(text: str, width: float, size: float) -> str:
    """The text if it surely fits, else as much of its beginning as fits with an ellipsis."""
    return text if text_width(text, size) <= width else f"{_beginning(text, width - size, size)}…"


def _without_middle(name: str, width: float, size: float) -> str:
    ending = _beginning(name[::-1], width / 2, size)[::-1]
    return f"{_beginning(name, width / 2 - size, size)}…{ending}"


def _beginning(text: str, width: float, size: float) -> str:
    """As much of the beginning as surely fits."""
    end = 0
    while end < len(text) and text_width(text[: end + 1], size) <= width:
        end += 1
    return text[:end]


def with_whole_text(drawing: str) -> str:
    """The SVG with its view box widened to the left and right as far as text may extend in another font."""
    head = _HEAD.search(drawing)
    if head is None:
        return drawing
    width, height = float(head["width"]), float(head["height"])
    try:
        boxes = list(text_boxes(drawing))
    except ElementTree.ParseError:  # a name has a character that XML does not allow: nothing can be measured
        return drawing
    left = min([0.0, *(box[0] - _MARGIN for box in boxes)])
    right = max([width, *(box[2] + _MARGIN for box in boxes)])
    size = f'{right - left:.0f}" height="{height:.0f}"'
    view = f'width="{size} viewBox="{left:.0f} 0 {right - left:.0f} {height:.0f}"><rect x="{left:.0f}" width="{size}'
    return drawing[: head.start()] + view + drawing[head.end() :]


def text_boxes(drawing: str) -> Iterator[Box]:
    """The bounding box (left, top, right, bottom) of every line of text, in any common sans-serif font."""
    yield from _boxes(ElementTree.fromstring(drawing), (1.0, 0.0, 0.0, 1.0, 0.0, 0.0))  # noqa: S314


Matrix = tuple[float, float, float, float, float, float]


def _boxes(element: ElementTree.Element, outer: Matrix) -> Iterator[Box]:
    inner = _moved(outer, element.get("transform", ""))
    if element.tag.endswith("}text"):
        size = float(element.get("font-size", "11px").removesuffix("px"))
        bold = element.get("font-weight") in ("bold", "600", "700")
        spans = [span.text or "" for span in element.iter() if span is not element] or [element.text or ""]
        for line in spans:
            line_width = text_width(line, size, bold=bold)
            start = {"middle": -line_width / 2, "end": -line_width}.get(element.get("text-anchor", "start"), 0.0)
            corners = [_at(inner, x, y) for x in (start, start + line_width) for y in (-size, size * 0.3)]
            xs, ys = zip(*corners, strict=True)
            yield min(xs), min(ys), max(xs), max(ys)
        return
    for child in element:
        yield from _boxes(child, inner)


def _moved(matrix: Matrix, transform: str) -> Matrix:
    """The matrix with the transformation of an element; rotations are by quarter turns."""
    for kind, first, second in _TRANSFORM.findall(transform):
        if kind == "translate":
            x, y = _at(matrix, float(first), float(second or 0.0))
            matrix = (*matrix[:4], x, y)
        else:
            a, b, c, d, x, y = matrix
            quarter = {0.0: (1, 0), 90.0: (0, 1), 180.0: (-1, 0), 270.0: (0, -1)}[float(first) % 360]
            cosine, sine = quarter
            matrix = (
                a * cosine + c * sine,
                b * cosine + d * sine,
                c * cosine - a * sine,
                d * cosine - b * sine,
                x,
                y,
            )
    return matrix


def _at(matrix: Matrix, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, left, top = matrix
    return a * x + c * y + left, b * x + d * y + top
