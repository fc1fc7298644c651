"""Protocols for quantiles: how many users lie below each edge of ordered bins."""
