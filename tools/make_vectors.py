"""Generate the test vectors for other implementations: vectors/v1/*.json.

    python tools/make_vectors.py [DIRECTORY]

All content is fixed, including the keys and the randomness of sealing, so the files are reproducible. vectors/README.md
says how to use them. The keys are public: never use them for anything else. Each file has its module in vector_files/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vector_files.batch import batch_file
from vector_files.randomizers import randomizer_file
from vector_files.report import report_file
from vector_files.sealing import sealing_file
from vector_files.task import task_file

TARGET = Path(__file__).parents[1] / "vectors" / "v1"


def vectors() -> dict[str, bytes]:
    """The content of every file."""
    made = {
        "task": task_file(),
        "randomizers": randomizer_file(),
        "report": report_file(),
        "sealing": sealing_file(),
        "batch": batch_file(),
    }
    return {
        f"{name}.json": json.dumps({"format": "shuffledp-vectors", "version": 1, **content}, indent=1).encode() + b"\n"
        for name, content in made.items()
    }


def main(directory: Path) -> None:
    """Write the files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in vectors().items():
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
