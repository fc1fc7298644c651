"""Run every command and notebook of the documentation and update outputs, then the numbers of the catalogue.

    python tools/refresh_docs.py [PAGE ...]

Where noise is drawn, a block stays unchanged if its shape agrees. A command with an unexpected exit status
is reported and left as it is. Run it from the environment that has shuffledp installed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
PART = re.compile(r"^\$ ", re.MULTILINE)


def _checks(name: str) -> Any:
    """One of the test modules of the pages, which know what agrees with what."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"docs/{name}.py is missing.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Pages:
    """The pages with their console blocks, and what went wrong with them."""

    def __init__(self) -> None:
        self.console = _checks("test_console_blocks")
        self.catalogue = _checks("test_catalogue")
        self.failures: list[str] = []

    def refresh(self, page: Path) -> bool:
        """Rewrite the page where it is out of date; True if it was."""
        if page.suffix == ".ipynb":
            return self._run_notebook(page)
        before = page.read_text(encoding="utf-8")
        after = self.console.BLOCK.sub(lambda block: f"```console\n{self._block(block[1], page)}```", before)
        if page == self.catalogue.CATALOGUE:
            after = self.catalogue.refreshed(after)
        if after != before:
            page.write_text(after, encoding="utf-8")
        return bool(after != before)

    def _run_notebook(self, path: Path) -> bool:
        """Store the outputs of a new run where their shape differs; True if it did."""
        print(path.name, flush=True)
        notebooks = _checks("test_notebooks")
        notebook = notebooks.read(path)
        with TemporaryDirectory() as directory:
            run = notebooks.executed(notebook, directory)
        if notebooks.shapes(run) == notebooks.shapes(notebook):
            return False
        notebooks.write(path, run)
        return True

    def _block(self, block: str, page: Path) -> str:
        """The block, each command followed by what it prints now."""
        before, *parts = PART.split(block)
        written = [before]
        for place, part in enumerate(parts):
            following = parts[place + 1] if place + 1 < len(parts) else ""
            written.append("$ " + self._part(part, following, page))
        return "".join(written)

    def _part(self, part: str, following: str, page: Path) -> str:
        command, shown = _divided(part)
        joined = command.replace("\\\n", "")
        if joined.split()[0] not in self.console.PROGRAMS:
            return part
        expected = int(following.partition("\n")[2]) if following.startswith("echo $?\n") else 0
        step = self.console.Step(joined, shown.strip(), expected)
        print(f"{page.name}: {' '.join(joined.split())}", flush=True)
        with TemporaryDirectory() as directory:
            for each in ("src", "examples"):
                (Path(directory) / each).symlink_to(ROOT / each)
            result = self.console.run(step, directory)
        if result.returncode != expected:
            self.failures.append(f"{page.name}: {joined}\n  exit status {result.returncode}: {result.stdout.strip()}")
            return part
        if self.console.agree(joined, step.shown, result.stdout):
            return part
        print("  rewritten")
        return "\n".join([command, *self.console.lines(result.stdout)]) + "\n"


def _divided(part: str) -> tuple[str, str]:
    """The command, which may continue over several lines, and what is shown below it."""
    lines = part.split("\n")
    last = next(place for place, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])


def main(names: list[str]) -> int:
    """Refresh the named pages, or all."""
    pages = Pages()
    wanted = {Path(name).name for name in names}
    paths = [*pages.console.PAGES, *(ROOT / "docs").glob("*.ipynb")]
    every = [path for path in paths if not names or path.name in wanted]
    changed = [page.name for page in every if pages.refresh(page)]
    print("Changed: " + (", ".join(changed) or "nothing"))
    for failure in pages.failures:
        print(f"FAILED {failure}")
    return 1 if pages.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
