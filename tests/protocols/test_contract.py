"""Protocols are typed everywhere, and facts about them live in their classes: nothing else looks at their names."""

import ast
import re
from pathlib import Path

import shuffledp

SOURCE = Path(shuffledp.__file__).parent
NAMES = {"protocol", "kind", "chosen", "original"}
SUSPECT = re.compile(rf"\b({'|'.join(sorted(NAMES))})\s*(\.\s*(name|question)\b|:\s*Any\b)")


def offences(code: str) -> list[int]:
    """Lines with an untyped protocol, or a decision by the name or question of one."""
    lines: list[int] = []
    if not SUSPECT.search(code):  # parsing takes long
        return lines
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.arg | ast.AnnAssign) and isinstance(node.annotation, ast.Name):
            named = node.arg if isinstance(node, ast.arg) else getattr(node.target, "id", "")
            if named == "protocol" and node.annotation.id == "Any":
                lines.append(node.lineno)
        if isinstance(node, ast.Compare | ast.Match):
            subject = node.left if isinstance(node, ast.Compare) else node.subject
            if isinstance(subject, ast.Attribute) and subject.attr in ("name", "question"):
                owner = subject.value
                if getattr(owner, "attr", getattr(owner, "id", "")) in NAMES:
                    lines.append(node.lineno)
    return lines


def test_nothing_outside_decides_by_the_name_of_a_protocol():
    files = [file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] != "protocols"]
    assert len(files) > 100
    assert {str(file): lines for file in files if (lines := offences(file.read_text(encoding="utf-8")))} == {}


def test_no_protocol_is_untyped():
    for file in (SOURCE / "protocols").rglob("*.py"):
        assert "protocol: Any" not in file.read_text(encoding="utf-8")


def test_the_test_can_fail():
    for wrong in (
        "def run(protocol: Any): pass",
        "class Task:\n    protocol: Any",
        "found = task.protocol.question == 'sum'",
        "found = protocol.name in ('cheu', 'unary')",
        "match protocol.name:\n    case 'cheu': pass",
    ):
        assert offences(wrong)
    assert offences("def run(protocol: Protocol): return protocol.name, question.name == 'count'") == []
