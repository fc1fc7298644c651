"""Check that a release tag, the version of the package and the changelog agree.

Usage: ``python tools/check_release.py v0.1.0``. Needs nothing but the standard library.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def package_version(root: Path = ROOT) -> str:
    """The value of ``__version__``, read without importing the package."""
    tree = ast.parse((root / "src/shuffledp/__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__version__"]:
            return str(ast.literal_eval(node.value))
    raise SystemExit("src/shuffledp/__init__.py assigns no __version__")


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """The reasons why the tag cannot be released; empty if it can."""
    version = package_version(root)
    headings = re.findall(r"^## (.+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    reasons = []
    if tag != f"v{version}":
        reasons.append(f"the tag is {tag}, but the version is {version}: expected v{version}")
    if not headings or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", headings[0]):
        reasons.append(f"the first heading of CHANGELOG.md must be '## {version} (YYYY-MM-DD)'; got {headings[:1]}")
    return reasons


def main() -> int:
    """Print every mismatch; the exit status is 1 if there is one."""
    if len(sys.argv) != 2:
        print("usage: check_release.py TAG", file=sys.stderr)
        return 2
    reasons = problems(sys.argv[1])
    for reason in reasons:
        print(f"error: {reason}", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
