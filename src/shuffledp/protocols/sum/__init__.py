"""Protocols for sums of bounded numbers."""
