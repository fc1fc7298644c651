"""The interface of estimates: what every released statistic has, whatever its kind."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, percent, withheld_sentence
from shuffledp.notebook import Html, card, note, table
from shuffledp.tabular import arrow_table, data_frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from shuffledp.figures import InlineFigure
    from shuffledp.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]
_CAPTION_WIDTH = 110  # characters of a line under a figure's title
Intervals = Callable[[float], Floats]
"""From a confidence to the lower and upper ends, one row per estimated number."""
Thresholds = Callable[[float], int | None]
"""From a confidence to ``withheld_below``; None if nothing is withheld."""


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """Base class of estimates: the released numbers with their errors, and the guarantee of the release.

    ``protocol``, ``estimator`` and ``users`` say how it was made, ``secure`` is False if the noise came from a seed,
    and ``caveats`` are sentences about what the ``guarantee`` does not cover. ``intervals`` and ``threshold_at`` are
    functions of the confidence; use ``interval()`` and ``withheld_below()``.
    """

    protocol: str
    estimator: str
    users: int
    guarantee: Guarantee
    intervals: Intervals = field(repr=False)
    secure: bool
    """False if the noise came from a seed: then there is no privacy."""
    caveats: tuple[str, ...] = field(default=(), kw_only=True)
    """What the guarantee does not cover, a sentence each."""
    threshold_at: Thresholds | None = field(default=None, kw_only=True, repr=False)

    def withheld_below(self, confidence: float = 0.95) -> int | None:
        """The threshold below which counts may be withheld; None if the estimator withholds none.

        A withheld count has the estimate 0. A count of at least the threshold is withheld with a probability of at most
        (1 - confidence) / 2.
        """
        check_confidence(confidence)
        return None if self.threshold_at is None else self.threshold_at(confidence)

    @abstractmethod
    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The estimated numbers formatted for people, clipped to their intervals and rounded to the error."""

    @property
    def withheld(self) -> Any:
        """Whether each count was withheld because noise alone can be as large; its estimate is then 0."""
        return False

    def withheld_sentence(self, confidence: float = 0.95) -> str:
        """An explanation of withheld counts; empty if none was withheld."""
        return withheld_sentence(self.withheld_below(confidence), confidence) if np.any(self.withheld) else ""

    def _summary(self, *parts: str) -> str:
        """The repr, of the given parts and the guarantee."""
        privacy = f"epsilon = {self.guarantee.epsilon:.4g}, delta = {self.guarantee.delta:.2g}"
        privacy = privacy if self.secure else "NOT PRIVATE: seeded"
        return f"{type(self).__name__}({'; '.join(parts)}; {self.users:,} users; {self.protocol}, {privacy})"

    def guarantee_sentence(self) -> str:
        """The guarantee and its caveats in sentences, or that there is none because the noise came from a seed."""
        if not self.secure:
            return "NOT PRIVATE: the noise came from a fixed seed; do not release this result."
        return " ".join((self.guarantee.sentence(), *self.caveats))

    def _to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "estimator": self.estimator,
            "guarantee": self.guarantee.to_json() if self.secure else None,
            "secure": self.secure,
            "caveats": list(self.caveats) if self.secure else [self.guarantee_sentence(), *self.caveats],
            "users": self.users,
        }

    @abstractmethod
    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form, with arrays and tuples, which take less memory than lists."""

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """The documented JSON form."""
        return {key: _plain(value) for key, value in self.to_document(confidence).items()}

    @abstractmethod
    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns of equal length, one row per estimated number."""

    def to_table(self, confidence: float = 0.95) -> pa.Table:
        """The estimate as an Arrow table, one row per estimated number; needs the extra ``files``."""
        return arrow_table(self.columns(confidence))

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The estimate as a pandas data frame, one row per estimated number; needs the extra ``pandas``."""
        return data_frame(self.columns(confidence))

    def _repr_html_(self) -> str:
        """The estimate as notebooks show it: a table of the numbers, their errors and the guarantee."""
        privacy = [self.guarantee.statement(), *self.caveats] if self.secure else self.caveats
        warnings = self.guarantee.warnings if self.secure else [self.guarantee_sentence()]
        return card(
            f"{self._title(self._subject)} of {self.users:,} users",
            self._html_table(0.95),
            note(self.withheld_sentence()),
            *map(note, privacy),
            note(f"Protocol {self.protocol}, estimator {self.estimator}."),
            warnings=warnings,
        )

    @property
    def _subject(self) -> str:
        """What is estimated, in a title."""
        return "estimate"

    def _html_table(self, confidence: float) -> Html:
        """The estimated numbers in a notebook."""
        numbers = self.shown(confidence)
        rows = [[number.text, number.error, number.interval, number.share] for number in numbers]
        header = [self._subject, "standard error", f"{percent(confidence)} interval", "share of users"]
        columns = len(header) if any(number.share for number in numbers) else len(header) - 1
        return table(header[:columns], [row[:columns] for row in rows], words=())

    def _caption(self, confidence: float) -> list[str]:
        """The lines under the title of a figure: what the bars are, the guarantee, and its caveats."""
        lines = [f"Lines: {percent(confidence)} confidence. {self.users:,} users, protocol {self.protocol}."]
        withheld = textwrap.wrap(self.withheld_sentence(confidence), _CAPTION_WIDTH)
        if not self.secure:
            return [*lines, *withheld, self.guarantee_sentence()]
        factor = math.exp(min(self.guarantee.epsilon, 700.0))
        lines.append(
            f"Differentially private in the {self.guarantee.trust} model: epsilon = {self.guarantee.epsilon:.4g} "
            f"(any outcome at most {factor:.3g} times likelier), delta = {self.guarantee.delta:.2g}."
        )
        return [*lines, *withheld, *self.caveats]

    def _title(self, subject: str) -> str:
        return f"{'Private' if self.secure else 'NOT PRIVATE'} {subject}"

    def _bars(
        self, suffix: str, names: Sequence[str], numbers: tuple[Floats, Floats, Floats], confidence: float, title: str
    ) -> bytes:
        """Draw counts with their intervals as bars."""
        from shuffledp.figures import bars

        values, errors, intervals = numbers
        return bars(
            suffix,
            names=names,
            values=values,
            errors=errors,
            intervals=intervals,
            withheld_below=self.withheld_below(confidence),
            users=self.users,
            title=title,
            value_title=f"users (of {self.users:,})",
            caption=self._caption(confidence),
        )

    def plot(
        self, path: str | Path | None = None, *, confidence: float = 0.95, title: str | None = None
    ) -> InlineFigure | None:
        """Draw the estimate with its intervals: to a file (.png, .svg or .html), or without a path in the notebook."""
        from shuffledp.figures import show_or_write

        return show_or_write(lambda suffix: self.figure(suffix, confidence=confidence, title=title), path)

    @abstractmethod
    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """The figure as the content of a file with this suffix."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
