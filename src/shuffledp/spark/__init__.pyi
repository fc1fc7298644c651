"""The public names of ``shuffledp.spark``, each listed once; ``exports`` loads them on first use."""

from shuffledp.engines.spark.mixing import mix as mix
from shuffledp.engines.spark.randomizing import randomize as randomize
from shuffledp.engines.spark.record_files import RecordFiles as RecordFiles
from shuffledp.engines.spark.session import start_session as start_session
from shuffledp.engines.spark.tallying import tally as tally
from shuffledp.sessions.on_spark import count as count
from shuffledp.sessions.on_spark import run as run
from shuffledp.sessions.on_spark import run_groups as run_groups
from shuffledp.sessions.on_spark import table as table
