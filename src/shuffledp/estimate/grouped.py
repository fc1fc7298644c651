"""Estimates by group: one estimate for each group that has enough users."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shuffledp.display import percent, shortened
from shuffledp.estimate.estimate import Estimate
from shuffledp.estimate.histogram import HistogramEstimate
from shuffledp.estimate.quantiles import EstimatedNumber, QuantileEstimate
from shuffledp.notebook import MAX_ROWS, card, cell, note, table
from shuffledp.tabular import arrow_table, data_frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from shuffledp.figures import InlineFigure
    from shuffledp.privacy.guarantee import Guarantee

RELEASED = "released"
_SUMMARIZED = 6  # groups in a repr
_SHOWN_NUMBERS = 4  # of a group in a repr
_LONGEST_NAME = 40  # characters of a group in a repr


@dataclass(frozen=True)
class TooFewUsers:
    """A group with too few ``users`` for the target: nothing was released about it but this number."""

    status: ClassVar[str] = "too few users"
    users: int


@dataclass(frozen=True, eq=False, repr=False)
class GroupedEstimate(Mapping[str, Estimate | TooFewUsers]):
    """Estimates by group: a mapping from each group to its estimate, or to ``TooFewUsers``, as ``results`` has them.

    ``by`` names the column of groups, ``statistic`` says what is estimated, and ``guarantee`` holds for all groups
    together; it is None if no group has enough users. With ``private`` groups, which group a user belongs to is
    protected too: the estimates are then counts out of all users, and ``size`` estimates how many a group has.

    >>> minutes, regions = [10.0, 30.0] * 4_000, ["north", "south"] * 4_000
    >>> estimate = sdp.mean([*minutes, 5.0], group_by=[*regions, "east"], lower=0, upper=60, epsilon=1.0, delta=1e-6)
    >>> list(estimate), estimate["east"], estimate.guarantee.neighbours
    (['east', 'north', 'south'], TooFewUsers(users=1), 'replace-one-within-group')
    """

    by: str
    statistic: str
    results: Mapping[str, Estimate | TooFewUsers]
    guarantee: Guarantee | None
    private: bool = False
    """Whether membership in groups is protected, too."""

    def __getitem__(self, group: str) -> Estimate | TooFewUsers:
        return self.results[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def released(self) -> dict[str, Any]:
        """The estimates of the groups that have enough users."""
        return {name: result for name, result in self.results.items() if isinstance(result, Estimate)}

    @property
    def too_few(self) -> dict[str, int]:
        """The numbers of users of the other groups."""
        return {name: result.users for name, result in self.results.items() if isinstance(result, TooFewUsers)}

    def status(self, group: str) -> str:
        """``released`` or ``too few users``."""
        result = self.results[group]
        return result.status if isinstance(result, TooFewUsers) else RELEASED

    @property
    def users(self) -> int:
        """The number of users of all groups, which is public."""
        if self.private:
            return next(iter(self.released.values())).users  # type: ignore[no-any-return]
        return sum(result.users for result in self.results.values())

    @property
    def secure(self) -> bool:
        """False if noise came from a seed: then there is no privacy."""
        return all(estimate.secure for estimate in self.released.values())

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the guarantee does not cover, a sentence each."""
        estimates = self.released.values()
        caveats = dict.fromkeys(caveat for estimate in estimates for caveat in estimate.caveats)
        if self.private:
            caveats["Which group a user belongs to is protected, too; the list of groups is public."] = None
        if few := len(self.too_few):
            groups = "1 group has" if few == 1 else f"{few:,} groups have"
            caveats[f"{groups} too few users for this target: only the number of users was released."] = None
        return tuple(caveats)

    def size(self, group: str, confidence: float = 0.95) -> EstimatedNumber:
        """The number of users of a group: public, or estimated if groups are private."""
        result = self.results[group]
        if not self.private or not isinstance(result, HistogramEstimate):
            return EstimatedNumber(result.users, result.users, result.users, confidence)
        low, high = result.interval(confidence, simultaneous=True).sum(axis=0).tolist()
        low, high = max(low, 0.0), min(high, float(result.users))
        return EstimatedNumber(min(max(float(result.counts.sum()), low), high), low, high, confidence)

    def guarantee_sentence(self) -> str:
        """The guarantee and its caveats in sentences, or that there is none because the noise came from a seed."""
        if not self.secure:
            return "NOT PRIVATE: the noise came from a fixed seed; do not release this result."
        if self.guarantee is None:
            return " ".join(("Only the numbers of users are shown, which are public.", *self.caveats))
        several = not self.private and len(self.released) > 1
        numbers = ["These numbers are those of the smallest group; every other group has its own."] if several else []
        return " ".join((self.guarantee.sentence(), *numbers, *self.caveats))

    def __repr__(self) -> str:
        shown = []
        for name in list(self.results)[:_SUMMARIZED]:
            result = self.results[name]
            cells = (
                [result.status]
                if isinstance(result, TooFewUsers)
                else [number.text for number in result.shown()[: _SHOWN_NUMBERS + 1]]
            )
            more = ", ..." * (len(cells) > _SHOWN_NUMBERS)
            shown.append(f"{shortened(name, _LONGEST_NAME)!r}: {', '.join(cells[:_SHOWN_NUMBERS])}{more}")
        others = [f"... {len(self) - _SUMMARIZED:,} more"] if len(self) > _SUMMARIZED else []
        return (
            f"GroupedEstimate({self.statistic} by {self.by}; {{{', '.join(shown + others)}}}; {self.users:,} users; "
            f"{len(self.released):,} of {len(self):,} groups released; {self._privacy()})"
        )

    def _privacy(self) -> str:
        if not self.secure:
            return "NOT PRIVATE: seeded"
        if self.guarantee is None:
            return "nothing released"
        return f"epsilon = {self.guarantee.epsilon:.4g}, delta = {self.guarantee.delta:.2g}"

    @property
    def _kind(self) -> type[Estimate] | None:
        """The class of the estimates; None if there are none."""
        return next((type(estimate) for estimate in self.released.values()), None)

    def listing(self, confidence: float = 0.95, groups: int | None = None) -> tuple[list[str], list[list[str]]]:
        """The header and rows of a table for people, of the first groups."""
        columns = {
            HistogramEstimate: ["category", "users", "interval", "share"],
            QuantileEstimate: ["quantile", "value", "interval"],
        }.get(self._kind or Estimate, [self.statistic, "interval"])
        header = [self.by, "estimated size" if self.private else "group size", *columns]
        header[header.index("interval")] = f"{percent(confidence)} interval"
        rows = []
        for name in list(self.results)[:groups]:
            size = f"{self.size(name, confidence).value:,.0f}"
            rows += [[name, size, *cells] for cells in self._cells(name, confidence)]
        return header, rows

    def _cells(self, name: str, confidence: float) -> list[list[str]]:
        """The rows of a group in a table for people, without the name and size of the group."""
        result = self.results[name]
        if isinstance(result, TooFewUsers):
            extra = {HistogramEstimate: 3, QuantileEstimate: 2}.get(self._kind or Estimate, 1)
            return [[result.status, *[""] * extra]]
        numbers = result.shown(confidence)
        if isinstance(result, HistogramEstimate):
            named = zip(result.categories, numbers, strict=True)
            return [[category, number.text, number.interval, number.share] for category, number in named]
        if isinstance(result, QuantileEstimate):
            shares = zip(result.asked, numbers, strict=True)
            return [[f"{share:g}", number.text, number.interval] for share, number in shares]
        return [[number.text, number.interval] for number in numbers]

    def _repr_html_(self) -> str:
        """The estimates as notebooks show them."""
        header, rows = self.listing(groups=MAX_ROWS)
        more = len(rows) > MAX_ROWS or len(self) > MAX_ROWS
        rows = [[cell(value) for value in row] for row in rows[:MAX_ROWS]]
        warnings: tuple[str, ...] = () if self.secure else (self.guarantee_sentence(),)
        if self.secure and self.guarantee is not None:
            warnings = self.guarantee.warnings
        privacy = [self.guarantee.statement()] if self.secure and self.guarantee is not None else []
        return card(
            self._title(f"{self.statistic} by {self.by} of {self.users:,} users"),
            table(header, rows, words=(0, 2) if len(header) > 4 else (0,)),
            note(f"The first of {len(self):,} groups; to_frame() has all." if more else ""),
            *map(note, (*privacy, *self.caveats)),
            warnings=warnings,
        )

    def _title(self, subject: str) -> str:
        return f"{'Private' if self.secure else 'NOT PRIVATE'} {subject}"

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "statistic": self.statistic,
            "group_by": self.by,
            "private_groups": self.private,
            "guarantee": self.guarantee.to_json() if self.secure and self.guarantee is not None else None,
            "secure": self.secure,
            "caveats": list(self.caveats) if self.secure else [self.guarantee_sentence(), *self.caveats],
            "users": self.users,
            "confidence": confidence,
            "groups": [self._group_json(name, confidence) for name in self.results],
        }

    def _group_json(self, name: str, confidence: float) -> dict[str, Any]:
        result, size = self.results[name], self.size(name, confidence)
        return {
            "group": name,
            "status": self.status(name),
            "users": size.value,
            "users_interval": [size.low, size.high] if self.private else None,
            "estimate": result.to_json(confidence) if isinstance(result, Estimate) else None,
        }

    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimates as named columns, one row per estimated number, and one per group with too few users."""
        tables = {name: estimate.columns(confidence) for name, estimate in self.released.items()}
        names = ["group", "group_users", "status", *next(iter(tables.values()), {})]
        rows: dict[str, list[Any]] = {name: [] for name in names}
        for group in self.results:
            values = tables.get(group, {})
            length = len(next(iter(values.values()))) if values else 1
            rows["group"] += [group] * length
            rows["group_users"] += [self.size(group, confidence).value] * length
            rows["status"] += [self.status(group)] * length
            for name in names[3:]:
                rows[name] += list(values[name]) if values else [None]
        return rows

    def to_table(self, confidence: float = 0.95) -> pa.Table:
        """The estimates as an Arrow table; needs the extra ``files``."""
        return arrow_table(self.columns(confidence))

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The estimates as a pandas data frame; needs the extra ``pandas``."""
        return data_frame(self.columns(confidence))

    def plot(
        self, path: str | Path | None = None, *, confidence: float = 0.95, title: str | None = None
    ) -> InlineFigure | None:
        """Draw the estimates with their intervals: to a file (.png, .svg or .html), or without a path in a notebook."""
        from shuffledp.figures import show_or_write

        return show_or_write(lambda suffix: self.figure(suffix, confidence=confidence, title=title), path)

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None, dark: bool = False) -> bytes:
        """The estimates of the groups, as the content of a .png, .svg or .html file."""
        from shuffledp.figures import DARK, LIGHT
        from shuffledp.figures.grouped import group_panels, group_rows

        drawn: dict[str, Any] = {
            "suffix": suffix,
            "too_few": self.too_few,
            "title": title or self._title(f"{self.statistic} by {self.by}"),
            "caption": self._caption(confidence),
            "theme": DARK if dark else LIGHT,
        }
        if self._kind is HistogramEstimate:
            return group_panels(
                panels={name: self._bars(estimate, confidence) for name, estimate in self.released.items()},
                sizes={name: round(self.size(name, confidence).value) for name in self.released},
                value_title="users" if self.private else "share of the group's users",
                shares=not self.private,
                **drawn,
            )
        return group_rows(
            rows={name: self._marks(estimate, confidence) for name, estimate in self.released.items()},
            sizes={name: estimate.users for name, estimate in self.released.items()},
            value_title={"count": "users", "quantiles": "value"}.get(self.statistic, self.statistic),
            **drawn,
        )

    @staticmethod
    def _bars(estimate: HistogramEstimate, confidence: float) -> list[tuple[str, float, float, float]]:
        """Each category with its share, or number of users, and the interval."""
        return [
            (category, number.value, low, high)
            for category, number, (low, high) in zip(
                estimate.categories, estimate.shown(confidence), estimate.interval(confidence).tolist(), strict=True
            )
        ]

    @staticmethod
    def _marks(estimate: Estimate, confidence: float) -> list[tuple[str, float, float, float]]:
        """The numbers of a group with their labels and intervals."""
        if isinstance(estimate, QuantileEstimate):
            numbers = zip(estimate.asked, estimate.quantiles(confidence=confidence), strict=True)
            return [(f"{share:g}", number.value, number.low, number.high) for share, number in numbers]
        (number,), ((low, high),) = estimate.shown(confidence), estimate.intervals(confidence).tolist()
        return [(number.text, number.value, low, high)]

    def _caption(self, confidence: float) -> list[str]:
        lines = [f"Lines: {percent(confidence)} confidence. {self.users:,} users in {len(self):,} groups."]
        if not self.secure or self.guarantee is None:
            return [*lines, self.guarantee_sentence()]
        factor = math.exp(min(self.guarantee.epsilon, 700.0))
        lines.append(
            f"Differentially private in the {self.guarantee.trust} model: epsilon = {self.guarantee.epsilon:.4g} "
            f"(any outcome at most {factor:.3g} times likelier), delta = {self.guarantee.delta:.2g}."
        )
        public = [] if self.private else ["Who belongs to which group, and the number of users in each, is public."]
        return [*lines, *public, *(caveat for caveat in self.caveats if "too few users" not in caveat)]
