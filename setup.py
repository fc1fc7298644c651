"""Builds the compiled kernels where that is possible; without a compiler the package installs all the same.

What happened is noted beside the kernels, so that ``shuffledp doctor`` can say why they are there or not.
``SHUFFLEDP_NATIVE_FLAGS`` adds flags for compiler and linker, such as ``-fsanitize=address``.
``SHUFFLEDP_REQUIRE_KERNELS=1`` makes a failed kernel build an error: wheels and images are built with it.
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


def required() -> bool:
    """Whether a failed kernel build fails the installation."""
    value = os.environ.get("SHUFFLEDP_REQUIRE_KERNELS", "")
    if value not in ("", "0", "1"):
        raise SystemExit(f"SHUFFLEDP_REQUIRE_KERNELS is {value!r}; expected 0 or 1")
    return value == "1"


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
    """Builds all kernels or none; fails only if they are required."""

    def finalize_options(self) -> None:
        """C files go where other things that are made go."""
        self.cython_c_in_temp = True
        super().finalize_options()

    def run(self) -> None:
        """Compile, write the outcome to the note, and print a warning if nothing could be compiled."""
        must_build = required()
        if must_build and not self.extensions:
            raise SystemExit("SHUFFLEDP_REQUIRE_KERNELS is 1, but there is no kernel source to compile")
        directory = (HERE / KERNELS) if self.inplace else Path(self.build_lib) / "shuffledp" / "native"
        directory.mkdir(parents=True, exist_ok=True)
        try:
            super().run()
            note = f"built with {' '.join(flags())}"
        except Exception as error:
            if must_build:
                raise
            note = "not built: " + (str(error).strip() or type(error).__name__).splitlines()[0]
            print(f"shuffledp: the compiled kernels were {note}", file=sys.stderr)
            print(
                "shuffledp: numpy replaces them: same distributions, slower. A C compiler is needed.", file=sys.stderr
            )
            self.extensions[:] = []
            for stale in (*directory.glob("*.so"), *directory.glob("*.pyd")):
                stale.unlink()
        (directory / NOTE).write_text(note + "\n")


setup(ext_modules=extensions(), cmdclass={"build_ext": build_kernels})
