"""Protocols for binary sums: how many users hold a 1."""
