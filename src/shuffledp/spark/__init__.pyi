"""The public names of ``shuffledp.spark``, each listed once; ``exports`` loads them on first use."""

from shuffledp.engines.spark.session import start_session as start_session
