"""Benchmark of a device that imports the library and randomizes one value."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import python, side_by_side

_FORBIDDEN = ("scipy", "pandas", "pyarrow", "altair", "matplotlib", "typer")

_RANDOMIZE = """
import shuffledp
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
target, absence = Target(100_000, 1.0, 1e-6), Dyadic.at_least(0.001)
shuffledp.BalcerCheuHistogram(target, absence, domain_size=100).randomize(3)
"""
_LIST_MODULES = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def measure(quick: bool) -> Iterator[Finding]:
    """Seconds from the start of Python to one user's messages, compared with importing numpy alone."""
    times = side_by_side(
        {
            "shuffledp": lambda: python("-c", _RANDOMIZE),
            "numpy": lambda: python("-c", "import numpy"),
            "python": lambda: python("-c", "pass"),
        },
        repetitions=7 if quick else 15,
    )
    yield at_most(
        "import shuffledp and randomize one value, from the start of Python",
        times.seconds("shuffledp"),
        0.25,
        "s",
        f"processor time {seconds(times.processor_seconds('shuffledp'))}; "
        f"import numpy alone {seconds(times.seconds('numpy'))}, Python alone {seconds(times.seconds('python'))}",
    )
    yield report("the same over import numpy", f"{times.ratio('shuffledp', 'numpy'):.2f}x")
    loaded = set(json.loads(python("-c", _RANDOMIZE + _LIST_MODULES))) & set(_FORBIDDEN)
    yield Finding(
        "heavy libraries loaded by it",
        ", ".join(sorted(loaded)) or "none",
        f"looked for {', '.join(_FORBIDDEN)}",
        "none",
        0.0 if loaded else 1.0,
    )
