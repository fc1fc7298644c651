"""The histogram of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019), section 6.2.2: one noisy bit per category.

A user's category is a one-hot row of bits, and each bit is flipped with probability f. Only ones are counted, so zeros
carry no information: the paper's form (``bits``) sends them, the other form (``ones``) does not. In both forms the
number of messages does not depend on the category: it is d, or the sum of one Bernoulli variable with probability
1 - f and d - 1 with probability f.

Accounting: ``shuffledp.privacy.cheu``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.cheu import FlippedHistogram, least_histogram_flip, paper_histogram_flip
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.category_noise import Responses
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.sparse import check_cells, messages_of_cells, scattered_bernoulli
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials

FORMS = ("ones", "bits")
_LARGEST_LISTED = 12


@dataclass(frozen=True)
class CheuHistogram(HistogramProtocol):
    """A histogram from one flipped bit per category (Cheu and others 2019); shuffled.

    Options of ``calibrate``:

    - ``form``: ``ones`` sends only the bits that are 1, ``bits`` sends all of them, as in the paper.
    """

    name: ClassVar[str] = "cheu"
    independent_categories: ClassVar[bool] = True
    grows_with_domain: ClassVar[bool] = True

    flip: Dyadic
    """The probability of flipping each bit."""
    domain_size: int
    categories: Categories | None = None
    form: str = "ones"
    """``ones``: a message for each bit that is one; ``bits``: a labelled bit for every category."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in FORMS:
            raise UnknownNameError(f"There is no form {self.form!r}; choose one of {', '.join(FORMS)}.", form=self.form)
        if 2 * self.flip.fraction >= 1:
            raise ParameterError(f"The flip probability must be below 1/2, not {self.flip}.", flip=self.flip)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, form: str = "ones") -> Self:
        """The least flip probability with which both changed categories together are (epsilon, delta)-private."""
        size, named = cls.domain_fields(domain)
        return cls(
            target, _flip(target.calibration, target.honest_users, target.epsilon, target.delta), size, named, form
        )

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """The paper's form."""
        return ({"form": "bits"},)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, for all values of the other users."""
        curve = FlippedHistogram(self.target.honest_users, self.flip)
        return self.target.guarantee(
            curve,
            theorem="certified numerically: divergence of the flipped bits, bounded over all data",
            local_epsilon=curve.local_epsilon,
        )

    @property
    def cost(self) -> Cost:
        """Every bit; or only the ones, little more than one message if the domain is smaller than 1 / f."""
        ones = float(self.flip.complement.fraction + (self.domain_size - 1) * self.flip.fraction)
        messages = ones if self.form == "ones" else float(self.domain_size)
        return Cost(messages, self.domain_size, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """Every bit; or none, if all are zero."""
        return self.domain_size if self.form == "bits" else 0

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A category's index, followed by its bit if zeros are sent too."""
        return MessageFormat((self.domain_size,), flags=int(self.form == "bits"))

    def report_pmf(self, value: int) -> Pmf:
        """Independent bits, each true with probability 1 - f; at most twelve categories."""
        owned = check_index(value, self.domain_size)
        if self.domain_size > _LARGEST_LISTED:
            raise ParameterError(f"A report over {self.domain_size:,} categories has too many outcomes to list.")
        flip = self.flip.fraction
        pmf: dict[tuple[int, ...], Fraction] = {}
        for bits in product((0, 1), repeat=self.domain_size):
            flipped = sum(bit != (category == owned) for category, bit in enumerate(bits))
            copies = bits if self.form == "ones" else tuple(count for bit in bits for count in (1 - bit, bit))
            pmf[copies] = flip**flipped * (1 - flip) ** (self.domain_size - flipped)
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        check_cells(len(owned), self.message_format)
        ones = self._ones(owned, source)
        if self.form == "ones":
            return messages_of_cells(ones, len(owned), self.message_format, source)
        sent = np.zeros((len(owned) * self.domain_size, 2), dtype=self.message_format.dtype)
        sent[:, 0] = np.tile(np.arange(self.domain_size, dtype=self.message_format.dtype), len(owned))
        sent[ones, 1] = 1
        offsets = np.arange(len(owned) + 1, dtype=np.int64) * self.domain_size
        return Messages(sent, len(owned), offsets, source.secure)

    def _ones(self, owned: NDArray[np.int64], source: RandomSource) -> NDArray[np.int64]:
        """The cells (user, category) whose bit is one after the flips."""
        own = np.arange(len(owned), dtype=np.int64) * self.domain_size + owned
        flipped = scattered_bernoulli(self.flip, len(owned) * self.domain_size, source)
        others = flipped[flipped % self.domain_size != owned[flipped // self.domain_size]]
        return np.concatenate((own[~bernoulli(self.flip, len(owned), source)], others))

    def tally(self, messages: Messages) -> Tally:
        """The number of ones of each category; zeros are not counted."""
        counted = super().tally(messages)
        return counted if self.form == "ones" else Tally(counted.counts[1::2], counted.users, counted.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The holders whose bit is not flipped, and the others whose bit is."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        unflipped = true - binomials(true, self.flip, source)
        return Tally(unflipped + binomials(users - true, self.flip, source), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: at most one 1 per user and category."""
        if len(tally.counts) != self.domain_size or int(tally.counts.max()) > tally.users:
            raise ParameterError(f"This tally cannot come from {tally.users:,} users who follow the protocol.")

    def without_excess(self, tally: Tally) -> Tally:
        """At most one message per user and category: an honest user does not send a category twice."""
        return replace(tally, counts=np.minimum(tally.counts, tally.users))

    @property
    def category_noise(self) -> Responses:
        """The distribution of the number of ones of a category."""
        return Responses(self.flip.complement, self.flip)

    def analysis(self, users: int) -> LinearAnalysis:
        """(C - n f) / (1 - 2 f); every bit has the same variance."""
        flip = float(self.flip)
        slope = float(1 - 2 * self.flip.fraction)
        return LinearAnalysis(
            offset=users * flip,
            slope=slope,
            error=IndependentTerms(users * flip * (1 - flip) / slope**2, 0.0, (1 - flip) / slope),
            largest=users,
            numbers=self.domain_size,
        )


@lru_cache(maxsize=64)
def _flip(calibration: str, honest_users: int, epsilon: float, delta: float) -> Dyadic:
    """The flip probability; cached, since it does not depend on the form or the domain."""
    choose = paper_histogram_flip if calibration == "paper" else least_histogram_flip
    return choose(honest_users, epsilon, delta)
