"""Generate the test vectors for other implementations: vectors/v1/*.json and vectors/v2/*.json.

    python tools/make_vectors.py [DIRECTORY]

All content is fixed, including the keys and the randomness of sealing, so the files are reproducible. vectors/README.md
says how to use them. The keys are public: never use them for anything else. Each file has its module in vector_files/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vector_files import Document
from vector_files.augmented import augmented_file
from vector_files.batch import batch_file
from vector_files.budget import budget_file
from vector_files.carriers import carrier_file
from vector_files.chain import chain_file
from vector_files.clusters import cluster_file
from vector_files.hybrid import hybrid_file
from vector_files.key_documents import keys_file
from vector_files.randomizers import randomizer_file
from vector_files.report import report_file
from vector_files.sealing import sealing_file
from vector_files.task import task_file
from vector_files.tokens import token_file
from vector_files.version_2 import batch_file_2, report_file_2, series_file, task_file_2

TARGET = Path(__file__).parents[1] / "vectors"


def vectors() -> dict[str, bytes]:
    """The content of every file."""
    made = {
        "v1/task": task_file(),
        "v1/randomizers": randomizer_file(),
        "v1/clusters": cluster_file(),
        "v1/report": report_file(),
        "v1/sealing": sealing_file(),
        "v1/batch": batch_file(),
        "v2/task": task_file_2(),
        "v2/report": report_file_2(),
        "v2/batch": batch_file_2(),
        "v2/series": series_file(),
        "v2/token": token_file(),
        "v2/keys": keys_file(),
        "v2/augmented": augmented_file(),
        "v2/chain": chain_file(),
        "v2/hybrid": hybrid_file(),
        "v2/budget": budget_file(),
        "v2/carriers": carrier_file(),
    }
    return {f"{name}.json": _written(name, content) for name, content in made.items()}


def _written(name: str, content: Document) -> bytes:
    version = int(name[1])
    return json.dumps({"format": "shuffledp-vectors", "version": version, **content}, indent=1).encode() + b"\n"


def main(directory: Path) -> None:
    """Write the files."""
    for name, content in vectors().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
