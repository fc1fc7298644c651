"""Reports that each support some categories: the user's own with one probability, any other with a smaller one."""

from __future__ import annotations

from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis


def support_analysis(
    users: int, values: int, own: float, other: float, *, slope: float | None = None
) -> LinearAnalysis:
    """Unbiased estimates, if a report supports its user's value with probability ``own`` and others with ``other``.

    ``slope`` is own - other; given if it is available with less rounding.
    """
    if slope is None:
        slope = own - other
    return LinearAnalysis(
        offset=users * other,
        slope=slope,
        error=IndependentTerms(
            base_variance=users * other * (1 - other) / slope**2,
            variance_per_holder=(own * (1 - own) - other * (1 - other)) / slope**2,
            largest_term=1 / slope,
        ),
        largest=users,
        numbers=values,
    )


def check_supports(tally: Tally, values: int) -> None:
    """Reject a tally in which a value has more supporters than there are users."""
    if len(tally.counts) != values or int(tally.counts.max()) > tally.users:
        raise ParameterError(f"A tally of {tally.users:,} users must have {values:,} counts up to {tally.users:,}.")
