"""Sessions: several releases about the same users under one (epsilon, delta)."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, Unpack, cast

from shuffledp.checks import check_confidence
from shuffledp.domain import DEFAULT_BINS, DiscreteDomain
from shuffledp.errors import BudgetError, DataError, OutputError, ParameterError
from shuffledp.estimate import CountEstimate, Estimate, HistogramEstimate, StringsEstimate, SumEstimate
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES, EstimatedNumber, QuantileEstimate
from shuffledp.extras import check_extra
from shuffledp.output import check_writable, write_whole
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.flow import choose_route
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.sessions.asking import (
    Ask,
    ask_count,
    ask_histogram,
    ask_mean,
    ask_quantiles,
    ask_strings,
    ask_sum,
    ask_variance,
)
from shuffledp.sessions.budget import Budget, Left, Release
from shuffledp.sessions.choosing import with_chosen
from shuffledp.sessions.data import DataOptions, RowsOfUsers, check_options, column_of
from shuffledp.sessions.domains import Bound
from shuffledp.sessions.prepared import Prepared
from shuffledp.sessions.release import check_release, run_prepared
from shuffledp.sessions.report import Report, session_html, session_report
from shuffledp.sessions.saved import SessionFile, check_label
from shuffledp.tabular import data_frame

if TYPE_CHECKING:
    import pandas as pd

    from shuffledp.engines.spark.table import CompleteSparkTable
    from shuffledp.sessions.complete import CompleteTable

_MAX_SUBJECT = 120
"""Maximum number of characters of the subject of a release."""


class SpendingOptions(TypedDict, total=False):
    """How much of the budget a release spends, and its name."""

    share: float
    """Share of the session's epsilon by which this release may raise what all releases spend together."""
    epsilon: float
    """The epsilon of this release alone, instead of a share."""
    delta: float
    """The delta of this release alone; by default that of the session."""
    label: str
    """The name of the release in reports; by default, for example, "mean of minutes"."""


class HowOptions(TypedDict, total=False):
    """How a question is answered."""

    protocol: str
    calibration: str
    estimator: str | None
    route: str
    source: RandomSource


class SessionOptions(DataOptions, SpendingOptions, HowOptions, total=False):
    """Options of every question of a session."""


class Session:
    """Several releases about the same users, whose guarantees together stay within one (epsilon, delta).

    ``users`` is the public number of users: every question is about all of them. ``trust`` is ``shuffled``, ``local``
    or ``central``; ``honest_fraction`` is the fraction of users who follow the protocol. ``releases`` announces the
    number of releases, among which the budget is divided equally if they have no ``share``. With ``path``, every
    release is recorded in that file before its noise is drawn; ``Session.load`` continues such a session.

    The privacy curves of the releases are composed exactly. That requires that shares, protocols and the sizes of
    domains are not chosen in the light of earlier results; with ``adaptive`` they may be, and the pairs (epsilon,
    delta) are added up.

    >>> session = sdp.Session(users=10_000, epsilon=1.0, delta=1e-6)
    >>> modes = ["bus"] * 7_000 + ["bike"] * 3_000
    >>> session.histogram(modes, categories=["bus", "bike"], share=0.5).categories
    ('bus', 'bike')
    >>> 0.49 < session.spent.epsilon <= 0.5, session.left.share
    (True, 0.5)
    """

    def __init__(
        self,
        *,
        users: int,
        epsilon: float,
        delta: float,
        trust: str = "shuffled",
        honest_fraction: float = 1.0,
        releases: int | None = None,
        adaptive: bool = False,
        path: str | Path | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._budget = Budget(users, epsilon, delta, honest_fraction, trust, adaptive, releases)
        self._file: SessionFile | None = None
        self._process = os.getpid()
        self._table: Any = None
        self._rows_of_users: RowsOfUsers | None = None
        self._caveats: tuple[str, ...] = ()
        self._answers: list[tuple[Release, Estimate]] = []
        if path is not None:
            self.save(path)

    @classmethod
    def of(
        cls,
        table: Any,
        *,
        columns: Sequence[str],
        epsilon: float,
        delta: float,
        missing: str | Sequence[str] = (),
        user: str | None = None,
        pick: str = "row",
        order_by: str | None = None,
        drop_missing_users: bool = False,
        **settings: Any,
    ) -> Self:
        """A session about the users who have a value in each of these ``columns`` of a table; see ``sdp.complete``.

        Its questions take the name of a column instead of its values. If users may have several rows, ``user`` names
        the column of their ids: the users are those with a row that has all values, and in each question one of these
        rows counts, chosen by ``pick`` and ``order_by`` as in ``sdp.count``. ``settings`` are those of ``Session``,
        without ``users``.

        >>> frame = {"mode": ["bus", "car", None] * 1_000, "minutes": [12.0, 30.0, 25.0] * 1_000}
        >>> session = sdp.Session.of(frame, columns=["mode", "minutes"], epsilon=1.0, delta=1e-6, releases=2)
        >>> session.users, session.mean("minutes", lower=0, upper=120).users
        (2000, 2000)
        """
        from shuffledp.sessions.complete import complete

        if user is None:
            answered, rows_of_users = complete(table, columns, missing=missing), None
        else:
            rows_of_users = RowsOfUsers(user, pick, order_by, drop_missing_users)
            answered = complete(table, rows_of_users.with_order(columns), missing=missing, user=user)
        users = answered.rows if rows_of_users is None else rows_of_users.count_users(answered, missing)
        session = cls(users=users, epsilon=epsilon, delta=delta, **settings)
        session.ask_about(answered, rows_of_users)
        return session

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The session that a file records; its further releases are recorded there too."""
        file = SessionFile(path)
        budget = file.read()  # without the lock, which would leave its file beside one that does not exist
        session = cls(users=budget.users, epsilon=budget.epsilon, delta=budget.delta, adaptive=budget.adaptive)
        session._budget, session._file = budget, file
        return session

    def save(self, path: str | Path) -> None:
        """Record the session in a new file; from then on, every release is recorded there before its noise is drawn."""
        if self._file is not None:
            raise ParameterError(f"This session is recorded in {self._file.path} already.")
        file = SessionFile(path)
        with self._lock:
            file.create(self._budget)
            self._file = file

    def ask_about(self, table: CompleteTable | CompleteSparkTable, rows_of_users: RowsOfUsers | None = None) -> None:
        """Let questions name columns of this table, a result of ``sdp.complete``; estimates get its caveat.

        ``rows_of_users`` says which row of a user counts, if users have several.
        """
        from shuffledp.sessions.complete import caveat_of

        self._table = table
        self._rows_of_users = rows_of_users
        self._caveats = (caveat_of(table),) if table.rows_left_out else ()

    def announce(self, releases: int) -> None:
        """Announce further releases, among which what is left is divided equally if they have no share."""
        with self._lock:
            self._budget = replace(self._budget, announced=len(self.releases) + releases)

    @property
    def users(self) -> int:
        """The number of users, which is public."""
        return self._budget.users

    @property
    def epsilon(self) -> float:
        """The epsilon of all releases together."""
        return self._budget.epsilon

    @property
    def delta(self) -> float:
        """The delta of all releases together."""
        return self._budget.delta

    @property
    def settings(self) -> dict[str, Any]:
        """The ``trust``, the ``honest_fraction`` and whether releases are ``adaptive``, as they were given."""
        budget = self._budget
        return {"trust": budget.trust, "honest_fraction": budget.honest_fraction, "adaptive": budget.adaptive}

    @property
    def spent(self) -> Guarantee:
        """The guarantee of all releases so far, with the least epsilon that is proved at the session's delta."""
        return self._budget.spent

    @property
    def left(self) -> Left:
        """What is left: ``epsilon``, ``delta``, and the ``share`` that releases can still ask for."""
        return self._budget.left

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases so far; one that failed after noise may have been drawn counts too."""
        return self._budget.releases

    @property
    def secure(self) -> bool:
        """False if the noise of a release came from a seed: then there is no privacy."""
        return self._budget.secure

    def would_spend(self, protocol: Protocol) -> Guarantee:
        """The guarantee of all releases so far and one more, by this protocol."""
        return self._budget.would_spend(protocol)

    def report(self) -> Report:
        """What was released, by which protocols, and the guarantee with its conditions, for a methods section."""
        return session_report(self._budget, self._caveats)

    def page(self, path: str | Path, *, title: str = "Private answers", confidence: float = 0.95) -> None:
        """Write one HTML page: every answer with its chart and table, then the report; needs the extra ``plot``.

        It shows the answers that this object gave: a session file has no answers, so those given before
        ``Session.load`` are missing.
        """
        check_confidence(confidence)
        if check_writable(path).suffix.lower() != ".html":
            raise OutputError(f"Cannot write {path}: its name must end in .html.", path=str(path))
        if not self._answers:
            raise ParameterError("There are no answers for a page: ask the session something first.")
        check_extra("plot", "A page", "jinja2")
        from shuffledp.sessions.page import session_page

        write_whole(path, session_page(title, self, self._answers, confidence))

    def columns(self) -> dict[str, list[Any]]:
        """The releases as named columns, one row per release."""
        releases = self.releases
        return {
            "label": [release.label for release in releases],
            "statistic": [release.statistic for release in releases],
            "subject": [release.subject for release in releases],
            "protocol": [release.protocol.name for release in releases],
            "epsilon": [release.guarantee.epsilon for release in releases],
            "delta": [release.guarantee.delta for release in releases],
            "share": [release.share for release in releases],
            "limit": [release.limit for release in releases],
            "released_at": [release.released_at for release in releases],
            "finished": [release.finished for release in releases],
            "secure": [release.secure for release in releases],
        }

    def to_frame(self) -> pd.DataFrame:
        """The releases as a pandas data frame, one row each; needs the extra ``pandas``."""
        return data_frame(self.columns())

    def __repr__(self) -> str:
        privacy = f"epsilon = {self.spent.epsilon:.4g} of {self.epsilon:g} spent, delta = {self.delta:g}"
        privacy = privacy if self.secure else "NOT PRIVATE: seeded"
        made = len(self.releases)
        return f"Session({self.users:,} users; {made} release{'s' * (made != 1)}; {privacy})"

    def _repr_html_(self) -> str:
        """The session as notebooks show it: its releases, what they spent and what is left."""
        return session_html(self._budget, self._caveats)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A session is not copied or pickled: each copy would have the whole budget. Use save and load.")

    def count(self, values: Any, *, equals: str | None = None, **options: Unpack[SessionOptions]) -> CountEstimate:
        """Count privately how many users said yes, or have the value ``equals``; see ``sdp.count``.

        Options: ``share`` or ``epsilon`` (and ``delta``) is what the release spends, ``label`` its name in reports;
        ``missing`` lists strings that mean a missing value; ``protocol``, ``estimator`` and others are those of
        ``sdp.count``.
        """
        return cast("CountEstimate", self._answer(values, ask_count(equals=equals), options))

    def histogram(
        self,
        values: Any,
        *,
        categories: Iterable[str] | DiscreteDomain | None = None,
        bins: int | Sequence[float] | None = None,
        by: str | None = None,
        lower: Bound | None = None,
        upper: Bound | None = None,
        other: str | None = None,
        clip: bool = False,
        **options: Unpack[SessionOptions],
    ) -> HistogramEstimate:
        """Count privately how many users have each value of a public domain; see ``sdp.histogram``.

        ``other`` names a category for values outside the domain and for missing ones, which are an error otherwise.
        Options are those of ``count``.
        """
        ask = ask_histogram(categories=categories, bins=bins, by=by, lower=lower, upper=upper, other=other, clip=clip)
        return cast("HistogramEstimate", self._answer(values, ask, options))

    def sum(
        self,
        values: Any,
        *,
        lower: float,
        upper: float,
        whole: bool = False,
        clip: bool = False,
        **options: Unpack[SessionOptions],
    ) -> SumEstimate:
        """Estimate privately the sum of the users' numbers, each from ``lower`` to ``upper``; see ``sdp.sum``.

        Options are those of ``count``.
        """
        ask = ask_sum(lower=lower, upper=upper, whole=whole, clip=clip)
        return cast("SumEstimate", self._answer(values, ask, options))

    def mean(
        self,
        values: Any,
        *,
        lower: float,
        upper: float,
        whole: bool = False,
        clip: bool = False,
        **options: Unpack[SessionOptions],
    ) -> SumEstimate:
        """Estimate privately the mean of the users' numbers, each from ``lower`` to ``upper``; see ``sdp.mean``.

        Options are those of ``count``.
        """
        ask = ask_mean(lower=lower, upper=upper, whole=whole, clip=clip)
        return cast("SumEstimate", self._answer(values, ask, options))

    def quantiles(
        self,
        values: Any,
        *,
        lower: float,
        upper: float,
        quantiles: Sequence[float] = DEFAULT_QUANTILES,
        bins: int = DEFAULT_BINS,
        clip: bool = False,
        **options: Unpack[SessionOptions],
    ) -> QuantileEstimate:
        """Estimate privately the distribution of the users' numbers, each from ``lower`` to ``upper``.

        See ``sdp.quantiles``; options are those of ``count``.
        """
        ask = ask_quantiles(lower=lower, upper=upper, quantiles=quantiles, bins=bins, clip=clip)
        return cast("QuantileEstimate", self._answer(values, ask, options))

    def strings(
        self,
        values: Any,
        *,
        alphabet: str,
        max_length: int,
        trim: bool = False,
        nfc: bool = False,
        case_fold: bool = False,
        other: bool = False,
        **options: Unpack[SessionOptions],
    ) -> StringsEstimate:
        """Find privately the strings that many users hold, which nobody lists; see ``sdp.strings``.

        Options are those of ``count``.
        """
        ask = ask_strings(
            alphabet=alphabet, max_length=max_length, trim=trim, nfc=nfc, case_fold=case_fold, other=other
        )
        return cast("StringsEstimate", self._answer(values, ask, options))

    def variance(
        self,
        values: Any,
        *,
        lower: float,
        upper: float,
        bins: int = DEFAULT_BINS,
        clip: bool = False,
        confidence: float = 0.95,
        **options: Unpack[SessionOptions],
    ) -> EstimatedNumber:
        """Estimate privately the variance of the users' numbers, each from ``lower`` to ``upper``.

        See ``sdp.variance``; options are those of ``count``.
        """
        check_confidence(confidence)
        ask = ask_variance(lower=lower, upper=upper, bins=bins, clip=clip)
        return cast("QuantileEstimate", self._answer(values, ask, options)).variance(confidence)

    def prepare(self, values: Any, ask: Ask, options: SessionOptions) -> Asked:
        """Check a question and read its data, without any noise; nothing is spent.

        What it returns is as secret as the data.
        """
        chosen = _Options(options)
        allowance = self._budget.allow(**chosen.spending)
        epsilon, delta = allowance.own or (allowance.limit, self.delta)
        check_release(ask.question, epsilon=epsilon, delta=delta, **chosen.choice)
        if chosen.data.get("drop_missing"):
            raise ParameterError(
                "A session is about a fixed number of users: rows without a value cannot be left out of one question. "
                "Give missing values a category (`other=NAME`), or start the session with the users who have all "
                "values (Session.of)."
            )
        subject = _shortened(f"{self._subject(values)}{ask.about}")
        prepared = ask.prepare(column_of(self._values(values), **self._data(values, chosen), source=chosen.source))
        if prepared.users != self.users:
            raise ParameterError(
                f"This session is about {self.users:,} users, and {subject} has {prepared.users:,} values: every "
                "question of a session needs one value of each user. Nothing was released.",
                users=self.users,
                values=prepared.users,
            )
        return Asked(ask.statistic, subject, prepared, chosen)

    def plan_all(self, questions: Sequence[Asked]) -> Budget:
        """The budget after releases that answer all these questions, with their protocols; nothing is spent."""
        budget = self._budget
        for asked in questions:
            chosen = asked.options
            budget = with_chosen(
                budget,
                asked.prepared.question,
                spending=chosen.spending,
                label=_label(chosen.label, f"{asked.statistic} of {asked.subject}", budget),
                subject=asked.subject,
                statistic=asked.statistic,
                choice=chosen.choice,
                secure=chosen.source.secure,
                neighbours=asked.prepared.neighbours,
            )
            # refuses what would fail while noise is drawn
            choose_route(budget.releases[-1].protocol, asked.prepared.users, chosen.route)
        return budget

    def release_all(self, questions: Sequence[Asked], planned: Budget | None = None) -> list[Estimate]:
        """Answer these questions: all releases are recorded before the first noise is drawn.

        ``planned`` is the result of ``plan_all``, which is computed again if there was another release meanwhile.
        """
        with self._changing():
            first = len(self.releases)
            if planned is None or planned.releases[:first] != self.releases:
                planned = self.plan_all(questions)
            self._replace(planned)
            releases = self.releases[first:]
        estimates = []
        for index, (asked, release) in enumerate(zip(questions, releases, strict=True), start=first):
            estimate = run_prepared(
                asked.prepared,
                release.protocol,
                estimator=asked.options.choice.get("estimator"),
                route=asked.options.route,
                source=asked.options.source,
            )
            estimates.append(replace(estimate, caveats=(*estimate.caveats, *self._caveats, self._context())))
            with self._changing():
                self._replace(self._budget.finished(index))
                self._answers.append((self.releases[index], estimates[-1]))
        return estimates

    def _answer(self, values: Any, ask: Ask, options: SessionOptions) -> Estimate:
        """Answer one question; everything that can be refused is refused before the release is recorded."""
        try:
            asked = self.prepare(values, ask, options)
        except DataError as error:  # rows cannot be left out of one question
            advice = str(error).replace("`drop_missing=True`", "Session.of(TABLE, columns=[...])")
            raise DataError(advice, **error.values) from None
        (estimate,) = self.release_all([asked])
        return estimate

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the locks under which the budget changes, and load what another process has recorded meanwhile."""
        with self._lock:
            if self._file is None:
                if os.getpid() != self._process:
                    raise BudgetError(
                        "This session is in the memory of another process, which does not learn what is spent here: "
                        "record it in a file (path=PATH) to use it from several. Nothing was released."
                    )
                yield
                return
            with self._file.locked():
                self._budget = self._file.updated(self._budget)
                yield

    def _replace(self, budget: Budget) -> None:
        if self._file is not None:
            self._file.write(budget)
        self._budget = budget

    def _values(self, values: Any) -> Any:
        """The column of the session's table with this name, or the values themselves."""
        if not isinstance(values, str):
            return values
        if self._table is None:
            raise ParameterError(
                f"This session has no table with a column {values!r}: give the column itself, such as "
                f"frame[{values!r}], or start the session with Session.of(frame, columns=[...])."
            )
        return self._table[values]

    def _data(self, values: Any, options: _Options) -> dict[str, Any]:
        """The options that describe the data; for a column of the session's table those of its users, too."""
        if self._rows_of_users is None or not isinstance(values, str):
            return options.data
        return self._rows_of_users.options() | options.data

    def _subject(self, values: Any) -> str:
        """The name of the column, if it has one."""
        name = values if isinstance(values, str) else getattr(values, "name", None)
        return name if isinstance(name, str) and name.strip() else "values"

    def _context(self) -> str:
        return (
            "All releases of this session about these users together have at most epsilon = "
            f"{self.epsilon:g} at delta = {self.delta:g}."
        )


@dataclass(frozen=True)
class Asked:
    """A question of a session with its data, before any noise: keep it as secret as the data."""

    statistic: str
    subject: str
    prepared: Prepared
    options: _Options


def _label(label: str | None, default: str, budget: Budget) -> str:
    """The label of the next release, which no other has."""
    labels = {release.label for release in budget.releases}
    if label is not None:
        if label in labels:
            raise ParameterError(f"There is a release labelled {label!r} already; choose another label.")
        return check_label("label", label)
    numbered = (default if number == 1 else f"{default} ({number})" for number in itertools.count(1))
    return next(name for name in numbered if name not in labels)


def _shortened(subject: str) -> str:
    """The name of a column or an expression as reports and files take it."""
    printable = "".join(character if character.isprintable() else "?" for character in subject)
    return printable if len(printable) <= _MAX_SUBJECT else f"{printable[: _MAX_SUBJECT - 3]}..."


class _Options:
    """The options of a question, by what they are about."""

    def __init__(self, options: SessionOptions) -> None:
        check_options(options, SessionOptions)
        rest = dict(options)
        self.label = cast("str | None", rest.pop("label", None))
        self.route = cast("str", rest.pop("route", "auto"))
        self.source = cast("RandomSource", rest.pop("source", SYSTEM))
        self.spending: dict[str, Any] = {key: rest.pop(key) for key in ("share", "epsilon", "delta") if key in rest}
        self.choice: dict[str, Any] = {key: rest.pop(key) for key in HowOptions.__annotations__ if key in rest}
        self.data: dict[str, Any] = rest
