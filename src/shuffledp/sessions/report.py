"""The report of a session for a methods section: what was released, by which protocol, with which guarantee."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass

import shuffledp
from shuffledp.notebook import card, cell, facts, note, table
from shuffledp.privacy.guarantee import REPLACE_ONE, REPLACE_ONE_USER
from shuffledp.sessions.budget import Budget, Release

_WIDTH = 100
_SHOWN_PARTS = 12
"""Maximum number of parts of a parameter that is a list, such as the levels of a tree."""
NOT_PRIVATE = "NOT PRIVATE: the noise of at least one release came from a fixed seed; do not publish these results."
_EXACT_CONDITION = (
    "The privacy curves of the releases are composed exactly. This is valid if everything that the curve of a release "
    "depends on was fixed without looking at earlier results of the session: its share or epsilon, its protocol, the "
    "kind of the question, and the size of its domain (the number of categories or bins, the range of integers). Which "
    "column was asked for and what the categories are may have been chosen in the light of earlier results."
)
_ADAPTIVE_CONDITION = (
    "The pairs (epsilon, delta) of the releases are added up. This is valid even if each release was chosen in the "
    "light of earlier results (Rogers, Roth, Ullman and Vadhan 2016)."
)
_NEIGHBOURS = {
    REPLACE_ONE: "Neighbouring data sets differ in one user, whose values in all releases are replaced by any others "
    "(replace-one).",
    REPLACE_ONE_USER: "Neighbouring data sets differ in one user, all of whose rows are replaced by any others "
    "(replace-one-user); in each release one row of a user counts.",
}
_TRUST = {
    "shuffled": "in the shuffled model: the shuffler is trusted to shuffle; no party is trusted with a value",
    "augmented": "in the augmented model: the shuffler is trusted to shuffle and to add dummies; it reads no value",
    "local": "in the local model: no party is trusted",
    "central": "in the central model: the party that collects the data is trusted with every value",
}


@dataclass(frozen=True)
class Report:
    """The report of a session: a ``title``, one entry per release in ``releases``, and ``paragraphs`` about privacy.

    ``str()`` of it is plain text for a methods section.
    """

    title: str
    releases: tuple[str, ...]
    paragraphs: tuple[str, ...]

    def __str__(self) -> str:
        items = [
            textwrap.fill(f"{number}. {text}", _WIDTH, subsequent_indent="   ")
            for number, text in enumerate(self.releases, start=1)
        ]
        return "\n\n".join([self.title, "\n".join(items) or "Nothing was released.", *map(_filled, self.paragraphs)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The report as notebooks show it."""
        numbered = [(f"{number}.", text) for number, text in enumerate(self.releases, start=1)]
        releases = facts(numbered) if numbered else note("Nothing was released.")
        privacy = [paragraph for paragraph in self.paragraphs if paragraph != NOT_PRIVATE]
        warnings = [NOT_PRIVATE] if NOT_PRIVATE in self.paragraphs else []
        return card(self.title, releases, *map(note, privacy), warnings=warnings)


def session_report(budget: Budget, caveats: tuple[str, ...] = ()) -> Report:
    """The report of a session with this budget; ``caveats`` are sentences about what the guarantee does not cover."""
    spent = budget.spent
    paragraphs = [] if budget.secure else [NOT_PRIVATE]
    if budget.releases and budget.secure:
        paragraphs.append(f"Guarantee of all releases together: {spent.sentence()}")
    paragraphs.append(
        f"Budget: epsilon = {spent.epsilon:.6g} is spent of {budget.epsilon:g}, at delta = {budget.delta:g}. A release "
        "beyond that is refused before any noise is drawn, and a release that failed counts as spent."
    )
    paragraphs.append(f"Composition: {_ADAPTIVE_CONDITION if budget.adaptive else _EXACT_CONDITION}")
    paragraphs.append(
        f"Privacy unit: {_NEIGHBOURS[spent.neighbours]} The number of users, {budget.users:,}, is public."
    )
    if budget.releases:
        paragraphs.append(f"Proof: {spent.theorem}.")
    paragraphs.extend(caveats)
    paragraphs.append(f"Software: shuffledp {shuffledp.__version__}.")
    number = f"{len(budget.releases):,} release{'s' * (len(budget.releases) != 1)}"
    title = f"{number} about {budget.users:,} users, {_TRUST[budget.trust]}."
    return Report(title, tuple(_entry(release) for release in budget.releases), tuple(paragraphs))


def session_html(budget: Budget, caveats: tuple[str, ...] = ()) -> str:
    """A session as notebooks show it: its releases, what they spent together, and what is left."""
    spent, left = budget.spent, budget.left
    rows = [
        [
            cell(release.label),
            release.protocol.name,
            f"{release.guarantee.epsilon:.4g}",
            f"{release.guarantee.delta:.2g}",
            "" if release.share is None else f"{release.share:.4g}",
            f"{release.released_at:%Y-%m-%d %H:%M}",
            _state(release),
        ]
        for release in budget.releases
    ]
    header = ["release", "protocol", "epsilon alone", "delta alone", "share", "time (UTC)", ""]
    guarantee = [spent.statement(), *caveats] if budget.secure else caveats
    return card(
        f"Session about {budget.users:,} users: epsilon = {spent.epsilon:.4g} of {budget.epsilon:g} spent, "
        f"delta = {budget.delta:g}",
        table(header, rows, words=(0, 1, 6)) if rows else note("Nothing was released."),
        note(f"Left: epsilon = {left.epsilon:.4g}, a share of {left.share:.4g}. report() is for a methods section."),
        *map(note, guarantee if rows else caveats),
        warnings=spent.warnings if budget.secure else [NOT_PRIVATE],
    )


def _state(release: Release) -> str:
    """What is unusual about a release, in a table."""
    unusual = {"not finished": not release.finished, "seeded": not release.secure}
    return ", ".join(name for name, applies in unusual.items() if applies)


def _entry(release: Release) -> str:
    """What was released, by which protocol with which parameters, and the guarantee of the release alone."""
    protocol, guarantee = release.protocol, release.guarantee
    parameters = ", ".join(
        f"{name} = {_short(value)}" for name, value in protocol.parameters().items() if name != "users"
    )
    failed = "" if release.finished else " It failed after noise may have been drawn; it counts as spent."
    insecure = "" if release.secure else " NOT PRIVATE: its noise came from a fixed seed."
    own = f"epsilon = {guarantee.epsilon:.6g}, delta = {guarantee.delta:.4g}"
    return (
        f"{_named(release)}, by {protocol.question}/{protocol.name} "
        f"({own} alone; {parameters}), at {release.released_at:%Y-%m-%d %H:%M} UTC.{failed}{insecure}"
    )


def _named(release: Release) -> str:
    default_label = f"{release.statistic} of {release.subject}"
    return default_label if release.label == default_label else f"{release.label}: {default_label}"


def _short(value: object) -> str:
    """A parameter in a sentence: exact probabilities as decimal numbers, long lists and strings shortened."""
    if isinstance(value, dict):
        if "value" in value:
            return f"{value['value']:.6g}"
        if value.keys() == {"numerator", "bits"}:
            return f"{value['numerator'] / (1 << value['bits']):.6g}"
        return " and ".join(f"{name} {_short(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_short, value[:_SHOWN_PARTS]))}{', ...' if len(value) > _SHOWN_PARTS else ''}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _filled(paragraph: str) -> str:
    return textwrap.fill(paragraph, _WIDTH)
