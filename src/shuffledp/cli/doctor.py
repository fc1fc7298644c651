"""``shuffledp doctor``: versions, kernels, packages and extras of this installation, and a check of them."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from typing import Any

import typer

import shuffledp
from shuffledp.cli.options import JsonOption
from shuffledp.cli.screen import print_json, say
from shuffledp.native import STATUS

_PACKAGES = ("numpy", "cryptography", "scipy", "dp-accounting", "typer", "rich")
_EXTRAS = {
    "files": ("pyarrow",),
    "plot": ("altair", "jinja2", "vl-convert-python"),
    "collection": ("httptools", "jinja2", "prometheus-client", "starlette", "uvicorn", "uvloop"),
    "postgres": ("psycopg", "psycopg-pool"),
    "pandas": ("pandas",),
    "opendp": ("opendp",),
    "spark": ("pandas", "pyarrow", "pyspark"),
}
_SPEED_BYTES = 1 << 24


def doctor(as_json: JsonOption = False) -> None:
    """Show the version, the active kernels and why, installed packages and extras, and the speed of random bits.

    Example: shuffledp doctor
    """
    state = _examine()
    if as_json:
        print_json(state)
    else:
        _show(state)
    if not state["sound"]:
        raise typer.Exit(1)


def _examine() -> dict[str, Any]:
    packages = [{"name": name, "version": _version(name)} for name in _PACKAGES]
    speed = _keystream_speed()
    return {
        "version": shuffledp.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count() or 1,
        "native": {"active": STATUS.active, "reason": STATUS.reason},
        "keystream_gigabytes_per_second": round(speed, 2),
        "packages": packages,
        "extras": [
            {"name": extra, "missing": [name for name in names if _version(name) is None]}
            for extra, names in _EXTRAS.items()
        ],
        "sound": not STATUS.wrong and all(package["version"] for package in packages) and speed > 0,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _keystream_speed() -> float:
    """Secure random bytes per nanosecond; 0 if two draws are the same."""
    from shuffledp.randomness import SYSTEM, draw_bytes

    first = draw_bytes(_SPEED_BYTES, SYSTEM)
    second = first.copy()
    start = time.perf_counter_ns()
    SYSTEM.fill(first)
    elapsed = time.perf_counter_ns() - start
    return 0.0 if (first == second).all() else _SPEED_BYTES / elapsed


def _show(state: dict[str, Any]) -> None:
    native = state["native"]
    say(f"shuffledp {state['version']}, Python {state['python']}, {state['system']}, {state['processors']} processors")
    say(f"kernels: {'compiled' if native['active'] else 'numpy'} ({native['reason']})")
    say(f"secure random bits: AES-256-CTR, {state['keystream_gigabytes_per_second']:.1f} GB/s")
    say(
        "packages: "
        + ", ".join(f"{package['name']} {package['version'] or 'MISSING'}" for package in state["packages"])
    )
    for extra in state["extras"]:
        if missing := ", ".join(extra["missing"]):
            say(f"{extra['name']}: missing {missing}; pip install 'shuffledp[{extra['name']}]'")
        else:
            say(f"{extra['name']}: installed")
    if not state["sound"]:
        say("This installation has a problem: see above.")
