"""Description of the machine that the benchmarks run on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("numpy", "scipy", "pyarrow", "cryptography", "multi-freq-ldpy", "pure-ldp", "numba")


def describe_machine() -> str:
    """Processor, cores, memory, load, Python and packages."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, load {load}\n"
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {packages}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
