"""Build the compiled kernels with AddressSanitizer and run their tests; a planted overflow must be detected.

Needs gcc or clang with the sanitizer's library. Takes arguments for pytest; the tests of the kernels if none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/native", "tests/randomness", "tests/shuffling", "tests/test_messages.py")
FLAGS = "-fsanitize=address -fno-omit-frame-pointer -g1 -O1"
PLANTED = '''# cython: boundscheck=False, wraparound=False
"""Writes one entry after the end, which must be noticed."""


def overflow(unsigned char[::1] items):
    items[items.shape[0]] = 1
'''
CALL = "import numpy; from shuffledp.native import _planted; _planted.overflow(numpy.zeros(64, numpy.uint8))"


def main() -> int:
    """Build, look whether the planted fault is noticed, run the tests."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        print(f"There is no {compiler}: nothing to check.", file=sys.stderr)
        return 1
    library = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as directory:
        tree, target = Path(directory, "tree"), Path(directory, "installed")
        tree.mkdir()
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
        (tree / "src/shuffledp/native/_planted.pyx").write_text(PLANTED)
        print("Building the kernels with AddressSanitizer", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run(
            [*pip, "install", "--no-deps", "--target", str(target), str(tree)],
            env=os.environ | {"SHUFFLEDP_NATIVE_FLAGS": FLAGS, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")},
            check=True,
        )
        environment = os.environ | {
            "PYTHONPATH": str(target),
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",  # what Python itself keeps until the end is not meant
            "PYTHONMALLOC": "malloc",
            "SHUFFLEDP_NATIVE": "on",
        }
        planted = subprocess.run(
            [sys.executable, "-c", CALL], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if planted.returncode == 0 or "heap-buffer-overflow" not in planted.stderr:
            print(f"The planted overflow was not noticed:\n{planted.stderr}", file=sys.stderr)
            return 1
        print("The planted overflow is noticed", flush=True)
        tests = sys.argv[1:] or [each for each in TESTS if (ROOT / each).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
