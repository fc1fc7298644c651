"""Protocols for histograms: how many users hold each category."""
