"""Security headers of HTML pages with scripts: a strict content security policy, and nothing of third parties."""

from __future__ import annotations

from collections.abc import Sequence


def content_security_policy(
    *, connect: Sequence[str] = (), trusted_types: Sequence[str] = (), forms: bool = False
) -> str:
    """A policy that allows only files of the page's own origin, requests to it, and requests to ``connect``.

    With ``forms``, the page may send forms to its own origin. Scripts cannot write HTML: only the named
    ``trusted_types`` policies may exist. ``frame-ancestors`` is not part of it, since browsers ignore that in a
    ``<meta>`` element; ``security_headers`` adds it.
    """
    return "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            " ".join(["connect-src 'self'", *connect]),
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'self'" if forms else "form-action 'none'",
            "require-trusted-types-for 'script'",
            " ".join(["trusted-types", *(trusted_types or ["'none'"])]),
        ]
    )


def security_headers(
    *, connect: Sequence[str] = (), trusted_types: Sequence[str] = (), forms: bool = False
) -> dict[str, str]:
    """The headers of every response of a page's origin."""
    policy = content_security_policy(connect=connect, trusted_types=trusted_types, forms=forms)
    return {
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "geolocation=(), camera=(), microphone=(), browsing-topics=()",
        "Cache-Control": "no-cache",
    }
