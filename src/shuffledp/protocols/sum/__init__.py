"""Sums of bounded numbers."""
