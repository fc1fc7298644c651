"""Frequent strings in one round: the hash of a prefix of each user's string, hidden by uniform messages.

A string becomes a word of scrambled bits, of which every level of a tree covers a growing prefix. Each user sends the
bucket of their prefix on one level, drawn uniformly, and uniform pairs of level and bucket. The analyzer walks the tree
of prefixes. That every user reports on one level only is the idea of Luo, Wang and Yi (2022); here the uniform messages
are spread over all levels, too, so that the levels cost no privacy.

For two strings x and y let N_x be the number of messages in the cells of x, one per level. Among uniform messages each
hits a cell of x with probability 1/buckets, whatever the number of levels, and the likelihood ratio of x and y is
N_x / N_y. So the divergence is that of ``histogram/uniform-blanket`` with as many categories as buckets; cells that x
and y share only reduce it.

Accounting: ``shuffledp.privacy.amplification.uniform_blanket`` and ``shuffledp.privacy.amplification.clones``.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.domain import Strings, check_index
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.estimate import StringsEstimate
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.amplification import Slots, least_slots
from shuffledp.privacy.guarantee import Guarantee, PrivacyCurve
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.parts.blanket import (
    BlanketProtocol,
    blanket_offsets,
    blanket_report_pmf,
    most_buckets,
    too_few_users,
)
from shuffledp.protocols.parts.linear import IndependentTerms
from shuffledp.protocols.protocol import ExpectedError, Pmf, check_estimator
from shuffledp.protocols.strings.protocol import SearchProgress, StringsProtocol
from shuffledp.protocols.strings.tree import MAX_LEVELS, StringTree
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, binomial, integers, uniform_counts

if TYPE_CHECKING:
    from shuffledp.protocols.strings.decoder import Decoded
    from shuffledp.protocols.strings.search_plan import SearchPlan, SearchSettings

Floats = NDArray[np.float64]

TREE_THEOREM = "exact sum over the blanket messages that hit the cells of either string, one per level"
_LONGER, _LONGEST = 80, 128  # bits of a word, for the default number of levels
_BITS_PER_LEVEL = 6
_MAX_BUCKETS = 1 << 30
_MAX_CELLS = 1 << 26
_DRAWN_TOGETHER = 1 << 12  # users of one string
_USERS_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class TreeBlanketStrings(BlanketProtocol, StringsProtocol):
    """Strings that are frequent, from hashed prefixes among uniform messages (after Luo, Wang and Yi 2022); shuffled.

    Options of ``calibrate``:

    - ``most_messages``: maximum number of messages per user.
    - ``buckets``: buckets per level; chosen from ``most_messages`` unless given.
    - ``levels``: levels of the tree; 24 unless words are long.
    - ``tail``: levels that cover the whole word.
    - ``first_bits``: bits that the first level covers.
    - ``seed``: a public number that chooses the hash functions; a task draws a new one.
    """

    name: ClassVar[str] = "tree-blanket"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)
    estimators: ClassVar[tuple[str, ...]] = ("sequential",)
    exact_error: ClassVar[bool] = False

    blanket: Slots
    """Number of uniform messages that each user adds."""
    buckets: int
    levels: int
    tail: int
    first_bits: int
    seed: int

    def __post_init__(self) -> None:
        if self.levels * self.buckets > _MAX_CELLS:
            raise InfeasibleError(
                f"{self.levels} levels of {self.buckets:,} buckets are more than {_MAX_CELLS:,} counters; allow fewer "
                "messages (most_messages).",
                levels=self.levels,
                buckets=self.buckets,
            )
        self.tree  # noqa: B018 - checks the parameters

    @classmethod
    def for_target(
        cls,
        target: Target,
        domain: Strings,
        *,
        buckets: int | None = None,
        most_messages: int = 11,
        levels: int | None = None,
        tail: int | None = None,
        first_bits: int = 16,
        seed: int = 1,
    ) -> Self:
        """The most buckets that ``most_messages`` allow, or the fewest messages for the number of buckets."""
        if most_messages < 2:
            raise ParameterError(f"At least 2 messages are needed, not {most_messages}.", most_messages=most_messages)
        depth = default_levels(domain) if levels is None else levels
        if not 1 <= depth <= MAX_LEVELS:
            raise ParameterError(f"levels must be from 1 to {MAX_LEVELS}, not {depth}.", levels=depth)
        shape = depth, depth // 4 if tail is None else tail, first_bits, seed
        honest, largest = target.honest_users, min(_MAX_BUCKETS, _MAX_CELLS // depth)
        if buckets is not None:
            slots = least_slots(honest, buckets, target.epsilon, target.delta)
            return cls(target, domain, slots, buckets, *shape)
        added = most_messages - 1
        chosen = most_buckets(target, added, largest)
        if chosen < 2:
            needed = least_slots(honest, 2, target.epsilon, target.delta).mean
            raise too_few_users(honest, most_messages, math.ceil(needed) + 1)
        slots = Slots(added, Dyadic(0))
        if chosen == largest:
            slots = least_slots(honest, chosen, target.epsilon, target.delta)
        return cls(target, domain, slots, chosen, *shape)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Fewer messages, fewer buckets, more noise."""
        return ({"most_messages": 2}, {"most_messages": 4})

    @classmethod
    def options_of_a_round(cls) -> dict[str, Any]:
        """New hash functions in every round, so that no string always collides; the seed has 53 bits, exact in JSON."""
        return {"seed": secrets.randbits(53)}

    @cached_property
    def tree(self) -> StringTree:
        """The cells of every string."""
        return StringTree(self.domain, self.buckets, self.levels, self.tail, self.first_bits, self.seed)

    @cached_property
    def guarantee(self) -> Guarantee:
        """From the uniform messages of the honest users; it depends neither on the hash functions nor on the levels."""
        curve: PrivacyCurve = PureCurve(0.0)
        if self.domain_size > 1:
            curve = self.blanket.curve(self.target.honest_users, self.buckets)
        local = math.inf if self.domain_size > 1 else 0.0
        return self.target.guarantee(curve, theorem=TREE_THEOREM, local_epsilon=local)

    @property
    def message_format(self) -> MessageFormat:
        """A level and a bucket."""
        return MessageFormat((self.levels, self.buckets))

    def report_pmf(self, value: int) -> Pmf:
        """The bucket of one of the levels, and every multiset of uniform messages."""
        word = self.tree.word(check_index(value, self.domain_size))
        cells = self.tree.cells([word])[0] + np.arange(self.levels) * self.buckets
        own = {int(cell): Fraction(1, self.levels) for cell in cells}
        return blanket_report_pmf(own, self.message_format.codes, self.blanket)

    def randomize(self, value: Any, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The randomizer on one user's index."""
        return self.randomize_all(self.domain.index_array([check_index(value, self.domain_size)]), source=source).values

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the number of messages does not depend on the values."""
        owned = self.check_indices(values)
        offsets = blanket_offsets(len(owned), self.blanket, source)
        sent = self.message_format.empty(int(offsets[-1]))
        sent[:, 0] = integers(self.levels, len(sent), source)
        sent[:, 1] = integers(self.buckets, len(sent), source)
        own = offsets[:-1]
        sent[own, 1] = self._buckets(owned, sent[own, 0].astype(np.int64))
        return Messages(sent, len(owned), offsets, source.secure)

    def _buckets(self, indices: NDArray[Any], levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bucket of each user's string on the user's level."""
        distinct, inverse = np.unique(indices, return_inverse=True)
        buckets = np.empty(len(indices), dtype=np.int64)
        words = [self.tree.word(int(index)) for index in distinct.tolist()]
        rank = np.empty(len(distinct), dtype=np.int64)
        for length, rows, limbs in self.tree.by_length(words):
            rank[rows] = np.arange(len(rows))
            member = np.zeros(len(distinct), dtype=np.bool_)
            member[rows] = True
            holders = np.flatnonzero(member[inverse])
            for level in range(self.levels):
                chosen = holders[levels[holders] == level]
                prefixes = self.tree.prefixes(length, level, limbs[rank[inverse[chosen]]])
                buckets[chosen] = self.tree.bucket_of(length, level, prefixes)
        return buckets

    def sample_tally(self, data: NDArray[Any], *, source: RandomSource = SYSTEM) -> Tally:
        """The levels that the holders of each string draw, and all uniform messages at once."""
        indices, counts = self.check_summary(data)
        users = int(counts.sum())
        tally = np.zeros((self.levels, self.buckets), dtype=np.int64)
        many = counts >= _DRAWN_TOGETHER
        if many.any():
            cells = self.tree.cells([self.tree.word(int(index)) for index in indices[many].tolist()])
            for row, count in zip(cells, counts[many].tolist(), strict=True):
                tally[np.arange(self.levels), row] += uniform_counts(count, self.levels, source)
        few, ends = indices[~many], np.cumsum(counts[~many])
        for start in range(0, int(ends[-1]) if len(ends) else 0, _USERS_AT_A_TIME):
            holders = np.arange(start, min(start + _USERS_AT_A_TIME, int(ends[-1])))
            held = few[np.searchsorted(ends, holders, side="right")]
            levels = integers(self.levels, len(holders), source).astype(np.int64)
            np.add.at(tally, (levels, self._buckets(held, levels)), 1)
        added = users * self.blanket.whole + int(binomial(users, self.blanket.rest, 1, source)[0])
        flat = tally.ravel()
        flat += uniform_counts(added, len(flat), source)
        return Tally(flat, users, source.secure)

    def moved_by_report(self, messages: int) -> float:
        """All messages of a report in cells of one string."""
        return float(messages)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: every user adds ``whole`` messages or one more."""
        sent, cells = int(tally.counts.sum()), self.levels * self.buckets
        fewest = tally.users * self.min_messages_per_user
        largest = fewest + tally.users * (self.blanket.rest.numerator > 0)
        if not fewest <= sent <= largest or len(tally.counts) != cells:
            raise ParameterError(
                f"{tally.users:,} users of this protocol send {fewest:,} to {largest:,} messages to {cells:,} cells, "
                f"not {sent:,} to {len(tally.counts):,}.",
                messages=sent,
            )

    def find_strings(
        self,
        tally: Tally,
        *,
        estimator: str = "",
        settings: SearchSettings | None = None,
        candidates: Collection[str] = (),
        progress: SearchProgress = lambda _: None,
    ) -> StringsEstimate:
        """The strings that the decoder finds, with their counts."""
        from shuffledp.protocols.strings.decoder import Decoder
        from shuffledp.protocols.strings.search_plan import SearchSettings

        estimator = estimator or self.estimators[0]
        self.check_round(tally, estimator)
        chosen = settings or SearchSettings()
        counts = tally.counts.reshape(self.levels, self.buckets)
        listed = {index for text in candidates if (index := self.domain.find(text)) is not None}
        decoded = Decoder(self.tree, counts, tally.users, chosen, progress).decode(sorted(listed))
        texts = [self.domain.string(string.index) or "" for string in decoded.found]
        found = np.array([string.count for string in decoded.found], dtype=np.float64)
        cells = np.array([string.cells for string in decoded.found], dtype=np.float64)
        errors = FoundErrors(self.levels, decoded.variance, tally.users)
        return StringsEstimate(
            **self.origin(tally, estimator),
            intervals=partial(errors.intervals, found, cells),
            caveats=() if decoded.complete else (_INCOMPLETE,),
            strings=tuple(texts),
            counts=found,
            standard_errors=errors.standard_errors(found, cells),
            found_from=tuple(decoded.found_from(length) for length in range(self.domain.max_length + 1)),
            found_with=chosen.probability,
            recall_of=_Recall(decoded),
            symbol="byte" if self.domain.symbols is None else "symbol",
        )

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, users: int | None = None
    ) -> ExpectedError:
        """The error of the counts of found strings: of a typical one, and of all that can be found."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        check_confidence(confidence)
        noise = self._noise(users or self.users)
        error = IndependentTerms(noise, 0.0, 1.0)
        most_found = max(1.0, (users or self.users) / max(1.0, math.sqrt(noise)))
        radius = error.radius((1 - confidence) / most_found, 0.0)
        return ExpectedError(math.sqrt(noise), radius, confidence)

    def _noise(self, users: int) -> float:
        """The expected number of messages of others in the cells of a string."""
        return users * (1 + self.blanket.mean) / self.buckets

    def expected_found_from(self, length: int) -> float | None:
        """The count of the expected plan, if no string is very frequent."""
        plan = self.search_plan(length)
        return None if plan is None else plan.count

    def search_plan(self, length: int, *, settings: SearchSettings | None = None) -> SearchPlan | None:
        """The expected plan of the search for strings of this length, if no string is very frequent."""
        from shuffledp.protocols.strings.search_plan import SearchSettings, expected_cells, plan_search

        return plan_search(
            expected_cells(self._noise(self.users) / self.levels, self.levels),
            length,
            self.tree.depths(length),
            settings=settings or SearchSettings(),
            largest_count=float(self.users),
        )


@dataclass(frozen=True)
class FoundErrors:
    """Errors of the counts of found strings, each of which is estimated from some of its cells."""

    levels: int
    variance: float
    """Of the number of messages of others in one cell."""
    users: int

    def _error(self, cells: float) -> IndependentTerms:
        used = self.levels / cells
        return IndependentTerms(used * self.levels * self.variance, used - 1, used)

    def standard_errors(self, counts: Floats, cells: Floats) -> Floats:
        """The standard deviation of each estimate."""
        used = self.levels / cells
        return np.sqrt(used * self.levels * self.variance + np.maximum(counts, 0.0) * (used - 1))

    def intervals(self, counts: Floats, cells: Floats, confidence: float) -> Floats:
        """A confidence interval per string."""
        ends = np.empty((len(counts), 2))
        for number in np.unique(cells).tolist():
            rows = cells == number
            ends[rows] = np.stack(self._error(number).interval(counts[rows], 1 - confidence), axis=-1)
        return np.clip(ends, 0.0, self.users)


@dataclass(frozen=True, eq=False)
class _Recall:
    decoded: Decoded

    def __call__(self, length: int, count: float) -> float:
        return self.decoded.recall(length, count)


_INCOMPLETE = "The search for strings reached its memory limit: fewer strings than predicted may have been found."


def default_levels(domain: Strings) -> int:
    """The number of levels of a tree for these strings."""
    bits = domain.word_bits(domain.max_length)
    if bits <= _LONGEST:
        return 24 if bits <= _LONGER else 32
    levels = 32
    while (bits - 16) > _BITS_PER_LEVEL * (levels - levels // 4 - 1):
        levels += 4
    return levels
