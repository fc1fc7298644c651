"""The public conformance kit: checks for any protocol, and planted faults that the checks must catch."""

from shuffledp.testing.conformance import Check, ConformanceError, check_protocol
from shuffledp.testing.faults import planted_faults

__all__ = ["Check", "ConformanceError", "check_protocol", "planted_faults"]
