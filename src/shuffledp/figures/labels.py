"""Placement of labels: near their points and without overlap."""

from __future__ import annotations

import math

LABEL_HEIGHT, LETTER_WIDTH = 13, 6.1
"""In pixels, at the size in which labels are drawn."""
LABEL_OVERHANG = 30
"""By how many pixels a label may extend beyond the right edge of the panel."""

_LINE_SHIFTS = range(-5, 6)
"""By how many lines a label may be moved up or down: further away it would not read as the label of its point."""

Label = tuple[str, str]
Spot = tuple[float, float]
Box = tuple[float, float, float, float]


def place_labels(labels: dict[Label, Spot], dots: list[Spot], width: int, height: int) -> dict[Label, Spot]:
    """The left end of each label, near its point and, if possible, clear of points and other labels."""
    occupied: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    placed: dict[Label, Spot] = {}
    for (name, trust), (x, y) in sorted(labels.items(), key=lambda item: -item[1][1]):
        label_width = LETTER_WIDTH * len(name)
        spots = [
            (x + aside, y + lines * LABEL_HEIGHT)
            for lines in _LINE_SHIFTS
            for aside in (9, 25, 45, -9 - label_width, -25 - label_width, -45 - label_width)
        ]
        spots.sort(key=lambda spot: _distance(spot, label_width, x, y))
        inside = [
            (left, low)
            for left, low in spots
            if left >= 0
            and left + label_width <= width + LABEL_OVERHANG
            and LABEL_HEIGHT / 2 <= low <= height - LABEL_HEIGHT / 2
        ]
        free = (spot for spot in inside if _is_free(spot, label_width, occupied))
        choice = next(free, None) or min(
            inside, key=lambda spot: _overlap(spot, label_width, occupied), default=(x + 9, y)
        )
        placed[name, trust] = choice
        occupied.append(_box(choice, label_width))
    return placed


def _distance(spot: Spot, label_width: float, x: float, y: float) -> float:
    """From the point to the nearer end of the label; vertical distance has more weight."""
    left, low = spot
    return math.hypot(min(abs(left - x), abs(left + label_width - x)), 1.5 * (low - y))


def _box(spot: Spot, label_width: float) -> Box:
    left, low = spot
    return left - 2, low - LABEL_HEIGHT / 2, left + label_width + 2, low + LABEL_HEIGHT / 2


def _is_free(spot: Spot, label_width: float, occupied: list[Box]) -> bool:
    left, low, right, high = _box(spot, label_width)
    return all(right <= a or c <= left or high <= b or d <= low for a, b, c, d in occupied)


def _overlap(spot: Spot, label_width: float, occupied: list[Box]) -> float:
    left, low, right, high = _box(spot, label_width)
    return sum(max(min(right, c) - max(left, a), 0.0) * max(min(high, d) - max(low, b), 0.0) for a, b, c, d in occupied)


def spread_out(heights: list[float], gap: float, lowest: float, highest: float) -> list[float]:
    """The heights that are nearest to the given ones, at least ``gap`` apart, and within the ends if possible."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    groups: list[tuple[float, int]] = []  # the middle of each group of adjacent labels, and its number of labels
    for index in order:
        middle, size = heights[index], 1
        while groups and groups[-1][0] + gap * groups[-1][1] / 2 > middle - gap * size / 2:
            below, count = groups.pop()
            middle, size = (below * count + middle * size) / (count + size), count + size
        groups.append((middle, size))
    result = [0.0] * len(heights)
    start = 0
    for middle, size in groups:
        for step in range(size):
            result[order[start + step]] = middle + gap * (step - (size - 1) / 2)
        start += size
    return _within(result, order, gap, lowest, highest)


def _within(heights: list[float], order: list[int], gap: float, lowest: float, highest: float) -> list[float]:
    """The heights moved inside the ends, each label pushing the next one."""
    floor = lowest
    for index in order:
        heights[index] = max(heights[index], floor)
        floor = heights[index] + gap
    ceiling = highest
    for index in reversed(order):
        heights[index] = min(heights[index], ceiling)
        ceiling = heights[index] - gap
    return heights
