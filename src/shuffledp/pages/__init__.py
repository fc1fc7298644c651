"""Rendering of HTML pages: templates with autoescaping, and charts as SVG. Nothing here computes an estimate."""

from shuffledp.pages.charts import Bar, CurvePoint, bar_chart, cumulative_chart, interval_chart
from shuffledp.pages.rendering import render_page

__all__ = ["Bar", "CurvePoint", "bar_chart", "cumulative_chart", "interval_chart", "render_page"]
