"""Questions about data in Spark: the public functions of the Spark engine, loaded on first use.

The public names are listed in ``__init__.pyi``.
"""

from shuffledp.exports import exports

__getattr__, __dir__ = exports(__name__)
