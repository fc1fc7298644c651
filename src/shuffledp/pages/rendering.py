"""Rendering of templates with Jinja2: every value is escaped, and an undefined one is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shuffledp.extras import extra

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, **context: Any) -> bytes:
    """The page that a template of ``pages/templates`` makes of these values, as UTF-8."""
    return _environment().get_template(template).render(context).encode()


@cache
def _environment() -> Environment:
    with extra("collection", "A page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    return Environment(
        loader=PackageLoader("shuffledp.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
