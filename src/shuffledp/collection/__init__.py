"""The deployed form of the shuffled model: devices send reports, a shuffler shuffles, an analyzer releases.

The public names are listed in ``__init__.pyi`` and loaded on first use: a server loads no client, a device no server.
"""

from shuffledp.exports import exports

__getattr__, __dir__ = exports(__name__)
