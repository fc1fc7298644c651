"""Differential privacy in the shuffled model: plan, run and account for private statistics.

The public names are listed in ``__init__.pyi``.
"""

from shuffledp.exports import exports

__version__ = "0.1.0"

__getattr__, __dir__ = exports(__name__)
