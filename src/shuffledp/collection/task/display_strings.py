"""Checks of the strings that a task shows to people, by fixed lists of code points.

The rule must not depend on the Unicode tables of the program that reads the task: the same signed task is valid on
every device or on none. So neither ``str.isprintable`` nor plain NFC is used. docs/collection/task.md has the same
lists.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from shuffledp.errors import ParameterError

LONGEST_STRING = 2000
LONGEST_CATEGORY = 200

REFUSED: tuple[tuple[int, int], ...] = (
    (0x0000, 0x001F),
    (0x007F, 0x00A0),
    (0x00AD, 0x00AD),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x1680, 0x1680),
    (0x180E, 0x180E),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x2064),
    (0x2066, 0x206F),
    (0x3000, 0x3000),
    (0xD800, 0xF8FF),
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0001, 0xE0001),
    (0xE0020, 0xE007F),
    (0xF0000, 0xFFFFD),
    (0x100000, 0x10FFFD),
)
"""Cc, Cf, Cs, Co, Zl, Zp, and Zs except the space, in Unicode 15 to 17; unassigned code points are not refused."""

NORMALIZED: tuple[tuple[int, int], ...] = (
    (0x0000, 0x0377),
    (0x037A, 0x037F),
    (0x0384, 0x038A),
    (0x038C, 0x038C),
    (0x038E, 0x03A1),
    (0x03A3, 0x052F),
    (0x0591, 0x05C7),
    (0x05D0, 0x05EA),
    (0x0600, 0x070D),
    (0x0898, 0x0983),
    (0x1100, 0x11FF),
    (0x1D00, 0x1F15),
    (0x1F18, 0x1F1D),
    (0x1F20, 0x1F45),
    (0x1F48, 0x1F4D),
    (0x1F50, 0x1F57),
    (0x1F59, 0x1F59),
    (0x1F5B, 0x1F5B),
    (0x1F5D, 0x1F5D),
    (0x1F5F, 0x1F7D),
    (0x1F80, 0x1FB4),
    (0x1FB6, 0x1FC4),
    (0x1FC6, 0x1FD3),
    (0x1FD6, 0x1FDB),
    (0x1FDD, 0x1FEF),
    (0x1FF2, 0x1FF4),
    (0x1FF6, 0x1FFE),
    (0x20D0, 0x20F0),
    (0x2100, 0x218B),
    (0x2190, 0x2426),
    (0x3041, 0x3096),
    (0x3099, 0x30FF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFA6D),
    (0xFA70, 0xFAD9),
)
"""Ranges in which Unicode 14 assigns every code point, so that NFC never changes there."""


def _characters(ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


_REFUSED = re.compile(f"[{_characters(REFUSED)}]")
_NORMALIZED = re.compile(f"[{_characters(NORMALIZED)}]+")


def check_string(name: str, value: str, *, min_length: int, max_length: int, of: str = "a task") -> None:
    """Refuse a string that is too short or too long, or has a character that is invisible or ambiguous."""
    if not min_length <= len(value) <= max_length:
        raise ParameterError(
            f"The {name} of {of} must have {min_length} to {max_length:,} characters, not {len(value):,}."
        )
    if refused := _REFUSED.search(value):
        raise ParameterError(
            f"The {name} of {of} has the character U+{ord(refused[0]):04X}, which is not allowed: "
            "no control, format or private-use characters, and no white space but the space."
        )


def comparable(name: str) -> str:
    """A key that is equal for names that look the same: NFC of each run of code points of ``NORMALIZED``."""
    return _NORMALIZED.sub(lambda run: unicodedata.normalize("NFC", run[0]), name)


def check_category_names(names: Sequence[str]) -> None:
    """Refuse names of categories that people cannot tell apart."""
    names_by_key: dict[str, str] = {}
    for name in names:
        check_string("category", name, min_length=1, max_length=LONGEST_CATEGORY)
        key = comparable(name)
        if key in names_by_key:
            raise ParameterError(
                f"The categories {_with_code_points(names_by_key[key])} and {_with_code_points(name)} look the same: "
                "they are equal in Unicode's normalization form C. Name each category once."
            )
        names_by_key[key] = name


def _with_code_points(name: str) -> str:
    code_points = " ".join(f"U+{ord(character):04X}" for character in name[:8])
    return f"{name[:20]!r} ({code_points}{' ...' if len(name) > 8 else ''})"
