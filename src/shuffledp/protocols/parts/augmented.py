"""Protocols of an augmented shuffler: users send their value, sealed; the shuffler samples reports and adds dummies."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.parts.clear import ClearProtocol
from shuffledp.protocols.parts.thresholded import check_unreleased
from shuffledp.protocols.protocol import Cost
from shuffledp.randomness import SYSTEM, RandomSource, binomials

MAX_DUMMIES = 10**8
"""Maximum number of dummies in a round; each takes the shuffler about 80 microseconds to seal."""


class AugmentedProtocol(ClearProtocol):
    """Users send the index of their value; the shuffler keeps a sample of the reports and adds dummies.

    In a collection messages are sealed, and the shuffler drops and adds them without reading any. ``release`` has the
    same effect on counts.
    """

    trust: ClassVar[str] = "augmented"

    if TYPE_CHECKING:  # a field of each protocol that is not part of its document

        @property
        def shufflers(self) -> int:
            """The number of shufflers, each of which adds all dummies."""

    def with_shufflers(self, shufflers: int) -> Self:
        """The protocol as a chain carries it out: estimates and errors with a draw of dummies of every shuffler.

        The guarantee is that of one honest shuffler.
        """
        if shufflers > 1 and self.shuffler_keeps.fraction < 1:
            raise ParameterError(f"{self.name} samples reports, which a chain of shufflers does not support.")
        chained = copy(self)
        object.__setattr__(chained, "shufflers", shufflers)
        return chained

    @property
    @abstractmethod
    def mean_dummies(self) -> float:
        """Expected number of dummies per round."""

    @property
    @abstractmethod
    def most_dummies(self) -> int:
        """A number of dummies that one draw exceeds with a probability of at most 2^-80."""

    @abstractmethod
    def draw_dummy_counts(self, source: RandomSource) -> NDArray[np.int64]:
        """The number of dummies of each index."""

    def draw_dummies(self, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The dummies of one round: indices, in increasing order."""
        counts = self.draw_dummy_counts(source)
        return np.repeat(np.arange(self.domain_size, dtype=self.message_format.dtype), counts)

    @property
    def cost(self) -> Cost:
        """One index, and the dummies of the shuffler."""
        return Cost(1.0, 1, self.message_format.bits, self.mean_dummies / self.target.users)

    def most_users(self, tally: Tally, messages: int) -> int | None:  # noqa: ARG002
        """Unknown: the analyzer cannot tell messages of users from dummies."""
        return None

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for one index."""
        return 0.0, 1.0

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """The counts that the analyzer sees: the reports that the shuffler keeps, and its dummies."""
        check_unreleased(tally, self.domain_size)
        kept = binomials(tally.counts, self.shuffler_keeps, source)
        counts = kept
        for _ in range(self.shufflers):
            counts = counts + self.draw_dummy_counts(source)
        return Tally(counts, tally.users, tally.secure and source.secure, released=True)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts, sampled and with dummies."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: a count per index, none below 0."""
        if len(tally.counts) != self.domain_size:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} values does not fit a domain of {self.domain_size:,}."
            )
        if int(tally.counts.min()) < 0:
            raise ParameterError("A tally counts messages; no count can be below 0.")


def check_dummies(mean: float, categories: int) -> None:
    """Refuse a domain for which the shuffler would add too many dummies."""
    if not mean <= MAX_DUMMIES:
        raise InfeasibleError(
            f"With {categories:,} categories the shuffler would add about {mean:.3g} dummies to every round; at most "
            f"{MAX_DUMMIES:,} are possible. Use fewer categories, or a protocol of the shuffled model.",
            dummies=mean,
        )
