"""P^hist of Balcer and Cheu (2020), Figure 2 and Theorem 12: a histogram whose error does not grow with the domain.

P^zsum runs on every category: a user sends a noise token of each category with probability p close to 1, and one token
of their own category. A category that nobody holds is estimated as exactly zero.

Accounting: ``shuffledp.privacy.balcer_cheu`` and ``shuffledp.privacy.binomial_noise``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally, count_values
from shuffledp.native import ACTIVE
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialHistogram
from shuffledp.privacy.guarantee import ComposableCurve
from shuffledp.protocols.count.balcer_cheu import theorem_11_alpha
from shuffledp.protocols.histogram.protocol import HistogramProtocol, check_categories
from shuffledp.protocols.parts.category_noise import MissingTokens
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.postprocessing import ESTIMATORS, TokenAnalysis
from shuffledp.protocols.parts.projected import PROJECTED, Negated, projected_analysis
from shuffledp.protocols.parts.tokens import TokenProtocol
from shuffledp.protocols.protocol import Cost, ExpectedError
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, bernoulli_indices, binomial

if ACTIVE:
    from shuffledp.native import _reports

_CHUNK_CELLS = 1 << 22


@dataclass(frozen=True)
class BalcerCheuHistogram(TokenProtocol, HistogramProtocol):
    """A histogram with exact zeros, about one message per category (Balcer and Cheu 2020, Theorem 12); shuffled.

    Options of ``calibrate``:

    - ``padded``: send dummies in place of tokens that are left out.
    """

    name: ClassVar[str] = "balcer-cheu"
    theorem: ClassVar[str] = "Theorem 12"
    changed_categories: ClassVar[int] = 2
    estimators: ClassVar[tuple[str, ...]] = (*ESTIMATORS, PROJECTED)
    exchangeable_noise: ClassVar[bool] = True
    exact_zeros: ClassVar[bool] = True
    independent_categories: ClassVar[bool] = True
    grows_with_domain: ClassVar[bool] = True

    domain_size: int
    categories: Categories | None = None
    """The names of the categories; without them values are indices."""
    padded: bool = False
    """Send a dummy instead of each token that is left out; the number of messages never depends on the value."""

    def __post_init__(self) -> None:
        TokenProtocol.__post_init__(self)
        HistogramProtocol.__post_init__(self)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, padded: bool = False) -> Self:
        """The least noise with which both changed categories together are (epsilon, delta)-private."""
        return cls(target, cls.least_absence(target), *cls.domain_fields(domain), padded)

    @classmethod
    def of_absence(cls, target: Target, absence: Dyadic, domain: Categories | Numbered) -> Self:
        """The protocol with this noise."""
        return cls(target, absence, *cls.domain_fields(domain))

    @classmethod
    def curve_of(cls, noise: Binomial) -> ComposableCurve:
        """The exact divergence of both changed categories."""
        return BinomialHistogram(noise)

    @property
    def cost(self) -> Cost:
        """One token, and a noise token or dummy per category."""
        noise_messages = self.domain_size * (1.0 if self.padded else float(self.absence.complement))
        return Cost(
            messages_per_user=1 + noise_messages,
            max_messages_per_user=1 + self.domain_size,
            bits_per_message=self.message_format.bits,
        )

    @property
    def min_messages_per_user(self) -> int:
        """The user's own token; if padded, all messages."""
        return 1 + self.domain_size if self.padded else 1

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """Messages are category indices, and one more value as the dummy if padded."""
        return MessageFormat((self.domain_size + self.padded,))

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""
        return self._noise_parameters() | {"domain_size": self.domain_size, "padded": self.padded}

    def report_pmf(self, index: int) -> dict[tuple[int, ...], Fraction]:
        """The exact distribution of one report, as copies of each category (and dummies); at most twelve categories."""
        if self.domain_size > 12:
            raise ParameterError(f"A report over {self.domain_size:,} categories has too many outcomes to list.")
        index = check_index(index, self.domain_size)
        absence = self.absence.fraction
        pmf: dict[tuple[int, ...], Fraction] = {}
        for noise_tokens in product((0, 1), repeat=self.domain_size):
            copies = [tokens + (category == index) for category, tokens in enumerate(noise_tokens)]
            dummies = [self.domain_size + 1 - sum(copies)] if self.padded else []
            present = sum(noise_tokens)
            pmf[(*copies, *dummies)] = (1 - absence) ** present * absence ** (self.domain_size - present)
        return pmf

    def randomize(self, index: int, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The randomizer of Figure 2 on one user's category."""
        index = check_index(index, self.domain_size)
        copies = (~bernoulli(self.absence, self.domain_size, source)).astype(np.int64)
        copies[index] += 1
        tokens = np.repeat(np.arange(self.domain_size, dtype=self._dtype), copies)
        if not self.padded:
            return tokens
        dummies = np.full(self.domain_size + 1 - len(tokens), self.domain_size, dtype=self._dtype)
        return np.concatenate((tokens, dummies))

    def randomize_all(self, indices: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: their own tokens, and noise tokens except the absent ones."""
        owned = np.ascontiguousarray(check_indices(indices, self.domain_size))
        width = self.domain_size + 1
        values = np.empty(len(owned) * width, dtype=self._dtype)
        offsets = np.zeros(len(owned) + 1, dtype=np.int64)
        rows = max(1, _CHUNK_CELLS // width)
        row = np.arange(self.domain_size, dtype=self._dtype)
        write = _reports.write_reports if ACTIVE else _write_reports
        filled = 0
        for start in range(0, len(owned), rows):
            chunk, ends = owned[start : start + rows], offsets[start + 1 : start + rows + 1]
            absent = bernoulli_indices(self.absence, len(chunk) * self.domain_size, source)
            write(absent, row, chunk, self.domain_size if self.padded else -1, values[filled:], ends)
            ends += filled
            filled = int(ends[-1])
        return Messages(values[:filled], len(owned), offsets, source.secure)

    def tally(self, messages: Messages) -> Tally:
        """How often each category occurred among the messages; dummies are dropped."""
        counts = count_values(messages.values, self.domain_size + self.padded)
        return Tally(counts[: self.domain_size], messages.users, messages.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A tally with the distribution of the whole round, from the true count of each category."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        absent = binomial(users, self.absence, self.domain_size, source)
        return Tally(true + users - absent, users, source.secure)

    def _expected(
        self, estimator: str, confidence: float, truth: NDArray[Any] | None = None, *, users: int | None = None
    ) -> ExpectedError:
        """The larger error of a category of average size and of one that is large compared with the noise.

        Or the error of given true counts.
        """
        expected = super()._expected(estimator, confidence, truth, users=users)
        if truth is not None:
            return expected
        users = users or self.users
        analysis = self.analysis_by(estimator or self.estimators[0], users)
        if isinstance(analysis, LinearAnalysis):
            return expected
        average = analysis.mean_squared_error(round(users / self.domain_size))
        return replace(expected, rmse=max(expected.rmse, math.sqrt(average)))

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: a count per category, and a number of messages that this many users can send."""
        sent = int(tally.counts.sum())
        check_categories(tally, self.domain_size)
        if not tally.users <= sent <= tally.users * (self.domain_size + 1):
            raise ParameterError(f"{sent:,} messages cannot come from {tally.users:,} users who follow the protocol.")

    def analysis(self, users: int) -> TokenAnalysis:
        """The analyzer of Figure 2."""
        return self.token_analysis(users, self.domain_size, self.estimators[0])

    def analysis_by(self, estimator: str, users: int) -> TokenAnalysis | LinearAnalysis:
        """The analyzer of Figure 2, or another estimator by name; thresholds are compared as integers."""
        if estimator == PROJECTED:
            noise = Binomial(users, self.absence)
            omitted = FixedNoise(Negated(noise))
            unbiased = LinearAnalysis(users - noise.mean, 1.0, omitted, largest=users, numbers=self.domain_size)
            return projected_analysis(unbiased, users)
        return self.token_analysis(users, self.domain_size, estimator)

    @property
    def category_noise(self) -> MissingTokens:
        """The distribution of the number of tokens of a category."""
        return MissingTokens(self.absence)

    def chance_shown(self, counts: NDArray[np.int64], *, least: float = 0.0) -> NDArray[np.float64]:
        """Pr[c > N and c - N + E[N] >= least] for each count c, where N is the number of omitted tokens."""
        noise = Binomial(self.users, self.absence)
        bound = counts - 1
        if least:
            bound = np.minimum(bound, np.floor(counts + noise.mean - least).astype(np.int64))
        chances: NDArray[np.float64] = np.where(bound < 0, 0.0, noise.lower_tail(np.minimum(bound, noise.trials)))
        return chances

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.message_format.dtype


def _write_reports(
    absent: NDArray[np.int64],
    row: NDArray[Any],
    owned: NDArray[np.int64],
    dummy: int,
    values: NDArray[Any],
    ends: NDArray[np.int64],
) -> int:
    """Write the row of each user without the absent cells (or with dummies there), then the own token; set ``ends``.

    The numpy version of the kernel ``write_reports``.
    """
    sent = np.empty((len(owned), len(row) + 1), dtype=row.dtype)
    sent[:, :-1] = row
    sent[:, -1] = owned
    users, columns = np.divmod(absent, len(row))
    ends[:] = np.arange(1, len(owned) + 1) * sent.shape[1]
    if dummy >= 0:
        sent[users, columns] = dummy
        values[: sent.size] = sent.ravel()
    else:
        ends -= np.cumsum(np.bincount(users, minlength=len(owned)))
        present = np.ones(sent.shape, dtype=np.bool_)
        present[users, columns] = False
        values[: int(ends[-1])] = sent[present]
    return int(ends[-1])


def theorem_12_alpha(users: int, epsilon: float, delta: float, beta: float, *, simultaneous: bool = False) -> float:
    """Theorem 12 (ii) and (iii): the error of each frequency, or of all, except with probability beta.

    ``epsilon`` and ``delta`` are those of the theorem, with which the protocol is (2 epsilon, 2 delta)-private. The
    bound on all frequencies is a union bound over at most ``users`` non-empty categories, and needs beta >= users
    delta^25.
    """
    if simultaneous and not beta < 1:
        raise ConditionError(f"Theorem 12 (iii) needs beta < 1; given {beta:g}.", beta=beta)
    return theorem_11_alpha(users, epsilon, delta, beta / users if simultaneous else beta)
