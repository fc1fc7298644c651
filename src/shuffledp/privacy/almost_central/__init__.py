"""Privacy accounting of ``almost-central``: sums with noise messages in groups (atoms) that add up to 0.

After Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021), in a form in which every user sends exactly one real message: the
number x + 1 for a value x in 0 .. levels. All users together add geometric numbers of "+1" and "-1", whose difference
remains in the sum, and a negative binomial number of copies of each *atom*. An atom is a few numbers that add up to 0:
{+1, -1}, and a number with its parts, which have the opposite sign and nearly equal sizes: {i, -ceil(i/2), -floor(i/2)}
in the paper, four parts here.

Proof of privacy. By repeated division, a message i equals an integer number of copies of each atom, plus n_+ messages
"+1" and minus n_- messages "-1", with n_+ + n_- = i; copies of atoms with a negative leading number are subtracted. So
replacing i by j shifts the *numbers of copies*: the analyzer sees a function of independent numbers of copies, some of
which are shifted up or down, and of the numbers U+ and U- of "+1" and "-1". Of these, D = U+ - U- and M = min(U+, U-)
are independent; D is discrete Laplace and is shifted by j - i, and M is shifted by between n_+(j) - n_+(i) and
n_-(i) - n_-(j), depending on D. ``pairs`` composes these losses. The numbers of copies are log-concave, so
larger shifts in the same direction are worse, and the shift of an atom that both messages have is no worse than the two
shifts one after the other. Hence the privacy loss is at most that of the product of D, shifted by at least |j - i|, of
the worst shift of M, of the shifts by adding i, and of the shifts by removing j. ``replacements`` takes the worst of
these products for groups of messages, and of the losses of pairs where the former are not enough.

The shift of D uses up most of epsilon if i and j are at opposite ends. Messages in the middle are never that far from
any other, so their atoms may lose more privacy, and need less noise: version 2 of the parameters grades the atoms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from shuffledp.checks import LARGEST_EPSILON, check_epsilon, check_open_unit, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.almost_central.atoms import Atom, atoms_of, check_levels, graded_atoms, tolerances
from shuffledp.privacy.almost_central.replacements import replacement_pair
from shuffledp.privacy.almost_central.shifts import AtomNoise
from shuffledp.privacy.correlated_noise import flooding_of_theorem_13
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.randomness import Dyadic

CERTIFIED_DOWN_TO = 1e-11
_CELLS_PER_STEP = 6
_CELLS_IN_SEARCH = 5
_SPARE_STEPS = 20
"""Losses of an atom above this many steps count as infinite. Every number gives a valid bound."""
_MAX_SHAPE = 1000
_SHAPES = (10, 13, 17, 22, 29, 40)
_CLOSE = 0.05  # relative distance of delta from the target; the step is then much closer to the largest one
_CLOSE_IN_SEARCH = 0.2
_USUAL_CORRECTION = 1.03  # of the step, since the search has looser bounds and a coarser grid
_USUAL_POWER = 8.0  # delta is about proportional to this power of the step
_MAX_ROUNDS = 25
_MAX_STEP = 0.9
_PARTS = 4  # into which messages are divided; with two, a sixth more messages are needed
_MAX_PARTS = 16
_SLOPE = 0.9
"""Relative to the rate at which the part of epsilon that is left by the shift of the sum grows with the distance."""
_WIDEST = 4.0
_MAX_WIDEST = 8  # bounds the time and memory of verifying a document
_WIDEST_STEP = 0.25
_MAX_SLOPE = 1e6


class _AtomCurve(ABC):
    """The privacy curve of the shuffled messages, for values 0 .. levels."""

    levels: int
    ratio: Dyadic
    shape: int
    step: float

    def _check(self) -> None:
        check_levels(self.levels)
        if not 2 <= self.shape <= _MAX_SHAPE:
            raise ParameterError(
                f"The shape must be an integer between 2 and {_MAX_SHAPE:,}, not {self.shape}.", shape=self.shape
            )
        check_open_unit("step", self.step)

    @property
    @abstractmethod
    def noise(self) -> AtomNoise:
        """All atoms and their noise."""

    @property
    def flooding(self) -> tuple[tuple[Atom, Fraction, Dyadic], ...]:
        """Each atom with the shape and the ratio of the number of its copies."""
        noise = self.noise
        return tuple((atom, Fraction(self.shape), noise.flood_ratio(atom.reach, atom.factor)) for atom in noise.atoms)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; at least the resolution of the method."""
        check_epsilon(epsilon)
        return self._pair.delta(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One pair of distributions that bounds the privacy loss in both directions."""
        return ((self._pair,),)

    @cached_property
    def _pair(self) -> DiscretePair:
        return replacement_pair(self.noise, _CELLS_PER_STEP, thorough=True)


@dataclass(frozen=True)
class AlmostCentralCurve(_AtomCurve):
    """Noise of version 1: messages are divided into two parts, and every atom has the same noise.

    ``ratio`` is that of the geometric numbers of "+1" and "-1" that remain in the sum. An atom has
    NB(shape, 1 - step/reach) copies, so that a shift by its reach has about the same privacy loss for every atom.
    """

    levels: int
    ratio: Dyadic
    shape: int
    step: float
    spare: float
    """Privacy losses of one atom above this count as infinite. Every value gives a valid bound."""

    def __post_init__(self) -> None:
        self._check()
        if not 0 < self.spare <= LARGEST_EPSILON:
            raise ParameterError(
                f"The spare epsilon must be above 0 and at most {LARGEST_EPSILON:g}, not {self.spare}.",
                spare=self.spare,
            )

    def flood_ratio(self, reach: int) -> Dyadic:
        """The ratio of the number of copies of an atom of this reach."""
        return self.noise.flood_ratio(reach, 1.0)

    @cached_property
    def noise(self) -> AtomNoise:
        """All atoms and their noise."""
        return AtomNoise(self.levels, 2, self.ratio, self.shape, self.step, self.spare, atoms_of(self.levels))


@dataclass(frozen=True)
class GradedAlmostCentralCurve(_AtomCurve):
    """Noise of version 2: atoms of messages in the middle have less noise than those of the smallest and largest.

    An atom has NB(shape, 1 - step factor/reach) copies, with the factor of ``graded_atoms``.
    """

    levels: int
    ratio: Dyadic
    shape: int
    step: float
    parts: int
    slope: float
    widest: float
    """The largest factor."""

    def __post_init__(self) -> None:
        self._check()
        if not 2 <= self.parts <= _MAX_PARTS:
            raise ParameterError(
                f"A number is divided into 2 to {_MAX_PARTS} parts, not {self.parts}.", parts=self.parts
            )
        if not 0 <= self.slope <= _MAX_SLOPE:
            raise ParameterError(
                f"The slope must lie between 0 and {_MAX_SLOPE:g}, not {self.slope}.", slope=self.slope
            )
        if not (1 <= self.widest <= _MAX_WIDEST and self.step * self.widest < 1):
            raise ParameterError(
                f"The largest factor must be from 1 to {_MAX_WIDEST} and below 1/step, not {self.widest}.",
                widest=self.widest,
            )

    @cached_property
    def noise(self) -> AtomNoise:
        """All atoms and their noise."""
        atoms = graded_atoms(self.levels, self.parts, self.slope, self.widest)
        spare = _SPARE_STEPS * self.step
        return AtomNoise(self.levels, self.parts, self.ratio, self.shape, self.step, spare, atoms)


def expected_noise_messages(curve: AlmostCentralCurve | GradedAlmostCentralCurve) -> float:
    """The expected number of noise messages of all users together."""
    staying = 2 * float(curve.ratio) / float(curve.ratio.complement)
    return staying + sum(
        len(atom.members) * float(shape) * float(ratio) / float(ratio.complement)
        for atom, shape, ratio in curve.flooding
    )


@lru_cache(maxsize=64)
def almost_central_noise(levels: int, epsilon: float, delta: float, split: float = 0.9) -> GradedAlmostCentralCurve:
    """The noise with the fewest messages that meets (epsilon, delta); split * epsilon is spent on the remaining noise.

    Every honest user adds a share of 1/(honest users) of each shape. The target is checked at exactly these parameters.
    """
    _check_split(levels, epsilon, delta, split)
    ratio = least_ratio(split * epsilon, sensitivity=levels)
    atom_epsilon = epsilon * (1 - split)

    def curve_of(step: float, shape: int) -> GradedAlmostCentralCurve:
        widest = max(1.0, min(_WIDEST, _WIDEST_STEP / step))
        return GradedAlmostCentralCurve(levels, ratio, shape, step, _PARTS, _SLOPE * split / (1 - split), widest)

    best, step, power = 0, min(atom_epsilon / 5, 0.5), _USUAL_POWER
    for shape in _SHAPES:

        def rough_delta(step: float, shape: int = shape) -> float:
            noise = curve_of(step, shape).noise
            return replacement_pair(noise, _CELLS_IN_SEARCH, thorough=False).delta(epsilon)

        largest, power = _largest_step(
            rough_delta, delta, step, power, least=atom_epsilon / 500, close=_CLOSE_IN_SEARCH
        )
        if best and (not largest or shape / largest > best / step):
            break
        if largest:
            best, step = shape, largest
    if not best:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} need more noise than can be accounted for; "
            "use a larger epsilon or a smaller split.",
            epsilon=epsilon,
            delta=delta,
        )

    curves: dict[float, GradedAlmostCentralCurve] = {}

    def exact_delta(step: float) -> float:
        curves[step] = curve_of(step, best)
        return curves[step].delta_at(epsilon)

    step, _ = _largest_step(exact_delta, delta, _USUAL_CORRECTION * step, power, least=atom_epsilon / 1000)
    if step in curves and curves[step].delta_at(epsilon) <= delta:
        return curves[step]
    raise InfeasibleError(f"No noise meets epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon, delta=delta)


def _largest_step(
    delta_of: Callable[[float], float], delta: float, guess: float, power: float, *, least: float, close: float = _CLOSE
) -> tuple[float, float]:
    """About the largest step that meets the target (0 if none does), and the exponent of delta as a power of the step.

    By the secant method on logarithms, within a bracket of a feasible and an infeasible step.
    """
    low, high = (0.0, 0.0), (_MAX_STEP, math.inf)  # step, ln(delta / target)
    x = min(guess, _MAX_STEP)
    before: tuple[float, float] | None = None
    for _ in range(_MAX_ROUNDS):
        y = math.log(max(delta_of(x), 1e-300) / delta)
        if -close <= y <= 0 or (y <= 0 and x >= _MAX_STEP):
            return x, power
        low, high = ((x, y), high) if y <= 0 else (low, (x, y))
        if before is not None and before[0] != x:
            power = min(max((y - before[1]) / math.log(x / before[0]), 2.0), 60.0)
        before = x, y
        if x <= least and y > 0:
            return 0.0, power
        if high[0] < low[0] * 1.002:
            break
        aim = -close / 2
        x = max(x * math.exp(min(max((aim - y) / power, -1.0), 1.0)), least)
        if not low[0] < x < high[0]:
            x = min(math.sqrt(max(low[0], least) * high[0]), _MAX_STEP)
    return low[0], power


def paper_almost_central_noise(
    levels: int, epsilon: float, delta: float, split: float = 0.9
) -> tuple[Dyadic, tuple[tuple[Atom, Fraction, Dyadic], ...]]:
    """The ratio of the remaining noise, and each atom's shape and ratio, by the paper's constants.

    The proof of Ghazi and others (2021), with Theorem 13 of Ghazi, Kumar, Manurangsi and Pagh (2020) for each atom.

    Half of (1 - split) epsilon and of delta is spent on {+1, -1} at its largest shift, half on the other atoms. With a
    vector t such that copies_s / t_s sum to at most 1 for every message, a shift of atom s by c copies is (epsilon c /
    (2 t_s))-private, and the shifts of the two messages are epsilon-private in total.
    """
    _check_split(levels, epsilon, delta, split)
    atom_epsilon = epsilon * (1 - split)
    if not atom_epsilon < 1:
        raise ConditionError(
            f"Theorem 13 needs (1 - split) epsilon < 1; given {atom_epsilon:g}. Use the tight calibration.",
            atom_epsilon=atom_epsilon,
        )
    atoms = atoms_of(levels)
    ends, *others = atoms
    noise = [(ends, *flooding_of_theorem_13(atom_epsilon / 2, delta / 2, sensitivity=ends.reach))]
    for atom, tolerance in zip(others, tolerances(levels), strict=True):
        flooding = flooding_of_theorem_13(atom_epsilon / 2, delta / 2 / len(others), sensitivity=2 * tolerance)
        noise.append((atom, *flooding))
    return least_ratio(split * epsilon, sensitivity=levels), tuple(noise)


def _check_split(levels: int, epsilon: float, delta: float, split: float) -> None:
    check_target(epsilon, delta)
    check_levels(levels)
    check_open_unit("split", split)
    if delta < CERTIFIED_DOWN_TO:
        raise InfeasibleError(
            f"The accounting of atoms is certified for delta >= {CERTIFIED_DOWN_TO:g}; got {delta:g}.", delta=delta
        )
