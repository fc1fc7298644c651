"""The public conformance kit: is a protocol what it says it is?"""

from shuffledp.testing.conformance import Check, ConformanceError, check_protocol
from shuffledp.testing.faults import planted_faults

__all__ = ["Check", "ConformanceError", "check_protocol", "planted_faults"]
