"""Builds the compiled kernels where that is possible; without a compiler the package installs all the same.

What happened is noted beside the kernels, so that ``shuffledp doctor`` can say why they are there or not.
``SHUFFLEDP_NATIVE_FLAGS`` adds flags for compiler and linker, such as ``-fsanitize=address``.
"""

import os
import platform
import shlex
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
KERNELS = Path("src/shuffledp/native")
NOTE = "_built.txt"


def flags() -> list[str]:
    """Optimized, for any processor of the last fifteen years."""
    if sys.platform == "win32":
        return ["/O2"]
    baseline = ["-march=x86-64-v2"] if platform.machine() in ("x86_64", "AMD64") else []
    return ["-O3", *baseline, *shlex.split(os.environ.get("SHUFFLEDP_NATIVE_FLAGS", ""))]


def extensions() -> list[Extension]:
    """One extension a kernel file."""
    added = shlex.split(os.environ.get("SHUFFLEDP_NATIVE_FLAGS", ""))
    return [
        Extension(
            f"shuffledp.native.{path.stem}",
            [path.relative_to(HERE).as_posix()],
            extra_compile_args=flags(),
            extra_link_args=added,
        )
        for path in sorted((HERE / KERNELS).glob("*.pyx"))
    ]


class build_kernels(build_ext):  # noqa: N801
    """Builds all kernels or none, and never fails for it."""

    def finalize_options(self) -> None:
        """C files go where other things that are made go."""
        self.cython_c_in_temp = True
        super().finalize_options()

    def run(self) -> None:
        """Compile, note the outcome, and say it when nothing could be compiled."""
        folder = (HERE / KERNELS) if self.inplace else Path(self.build_lib) / "shuffledp" / "native"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            super().run()
            note = f"built with {' '.join(flags())}"
        except Exception as error:  # noqa: BLE001
            note = "not built: " + (str(error).strip() or type(error).__name__).splitlines()[0]
            print(f"shuffledp: the compiled kernels were {note}", file=sys.stderr)
            print(
                "shuffledp: numpy replaces them: same distributions, slower. A C compiler is needed.", file=sys.stderr
            )
            self.extensions[:] = []
            for left in (*folder.glob("*.so"), *folder.glob("*.pyd")):
                left.unlink()
        (folder / NOTE).write_text(note + "\n")


setup(ext_modules=extensions(), cmdclass={"build_ext": build_kernels})
