"""Privacy accounting of ``almost-central``: sums hidden by noise of atoms that add up to 0.

After Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021), in a form in which every user sends exactly one real message:
a value x in 0 .. levels as the number x + 1. All users together add geometrically many "+1" and "-1",
whose difference stays in the sum, and for each *atom*, a few numbers that add up to 0, negative binomially many copies.
Atoms are {+1, -1}, {i, -ceil(i/2), -floor(i/2)} and the same with signs exchanged.

Why it is private. Halving repeatedly, a message i is an integer number of copies of each atom, plus n_+ messages
"+1" and minus n_- messages "-1", n_+ + n_- = i. So replacing i by j moves the *numbers of copies*: what is seen
is a function of independent numbers of copies, some of which are moved, and of the numbers U+ and U- of "+1" and "-1".
Of these, D = U+ - U- and M = min(U+, U-) are independent; D is discrete Laplace and moves by j - i, M is moved
by between n_+(j) - n_+(i) and n_-(i) - n_-(j), depending on D. At depth h of the halving at most two atoms
are moved, by 2^h copies together. The numbers of copies are log-concave, so smaller moves hide better; hence the
privacy loss is at most that of the product, over all depths, of the worst moves up (for j) and down (for i) there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon, check_open_unit, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.almost_central.atoms import (
    Atom,
    Move,
    atoms_of,
    check_levels,
    most_ends,
    moves_by_depth,
    tolerances,
)
from shuffledp.privacy.almost_central.losses import Losses, negative_binomial_losses, worst_of
from shuffledp.privacy.correlated_noise import flooding_of_theorem_13
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, least_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

CERTIFIED_DOWN_TO = 1e-11
_MOST_CELLS = 2000  # of the privacy loss of one atom, on either side of 0
_CELLS_PER_STEP = 12
_CELLS_IN_SEARCH = 5
_ROUNDING = 5e-13  # of the Fourier transforms, added to delta
_SPARE_PER_REST = 2.0  # with 1, counting larger losses as infinite costs a sixth more messages
_FARTHEST_LOSS = 600.0
_MOST_SHAPE = 1000
_SHAPES = (8, 11, 15, 20, 28, 40)
_CLOSE = 0.1  # of delta below the target, relative: a step less than the largest by a fraction of it
_USUAL_POWER = 8.0  # delta grows about so with the step
_MOST_ROUNDS = 25
_MOST_STEP = 0.9


@dataclass(frozen=True)
class AlmostCentralCurve:
    """How private the mixed messages are, for values 0 .. levels.

    ``ratio`` is that of the "+1" and "-1" that stay in the sum. An atom of some reach has
    NB(shape, 1 - step/reach) copies: a move by its reach changes their distribution as much at any reach.
    """

    levels: int
    ratio: Dyadic
    shape: int
    step: float
    spare: float
    """Up to which privacy loss of one atom is told apart from an infinite one. Any value gives a bound; twice what
    epsilon leaves for atoms gives a good one."""

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if not 2 <= self.shape <= _MOST_SHAPE:
            raise ParameterError(
                f"The shape must be an integer between 2 and {_MOST_SHAPE:,}, not {self.shape}.", shape=self.shape
            )
        check_open_unit("step", self.step)
        if not 0 < self.spare <= LARGEST_EPSILON:
            raise ParameterError(
                f"The spare epsilon must be above 0 and at most {LARGEST_EPSILON:g}, not {self.spare}.",
                spare=self.spare,
            )

    def flood_ratio(self, reach: int) -> Dyadic:
        """The ratio of the number of copies of an atom of this reach."""
        return Dyadic.at_least(1 - self.step / reach)

    @property
    def flooding(self) -> tuple[tuple[Atom, Fraction, Dyadic], ...]:
        """Each atom with shape and ratio of the number of its copies."""
        return tuple((atom, Fraction(self.shape), self.flood_ratio(atom.reach)) for atom in atoms_of(self.levels))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        check_epsilon(epsilon)
        return self._pair.delta(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One pair of distributions that is at least as easy to tell apart as those seen, in either direction."""
        return ((self._pair,),)

    @cached_property
    def _pair(self) -> DiscretePair:
        return _composed(self, _CELLS_PER_STEP, thorough=True)


def expected_noise_messages(curve: AlmostCentralCurve) -> float:
    """The expected number of messages beyond the real ones, of all users together."""
    staying = 2 * float(curve.ratio) / float(curve.ratio.complement)
    return staying + sum(
        len(atom.members) * float(shape) * float(ratio) / float(ratio.complement)
        for atom, shape, ratio in curve.flooding
    )


@lru_cache(maxsize=64)
def almost_central_noise(levels: int, epsilon: float, delta: float, split: float = 0.9) -> AlmostCentralCurve:
    """The fewest messages for an overall (epsilon, delta), split * epsilon of it for the noise that stays.

    Every honest user adds its part 1/(honest users) of each shape. The distribution at just these parameters meets the
    target.
    """
    _check_split(levels, epsilon, delta, split)
    ratio = least_ratio(split * epsilon, sensitivity=levels)
    rest = epsilon * (1 - split)
    best, step, power = 0, min(rest / 6, 0.5), _USUAL_POWER
    for shape in _SHAPES:

        def roughly(step: float, shape: int = shape) -> float:
            curve = AlmostCentralCurve(levels, ratio, shape, step, _SPARE_PER_REST * rest)
            return _composed(curve, _CELLS_IN_SEARCH, thorough=False).delta(epsilon)

        found, power = _largest_step(roughly, delta, step, power, least=rest / 500)
        if best and (not found or shape / found > best / step):
            break
        if found:
            best, step = shape, found
    if not best:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} need more noise than can be computed with; "
            "use a larger epsilon, or spend less of it on the noise that stays.",
            epsilon=epsilon,
            delta=delta,
        )

    curves: dict[float, AlmostCentralCurve] = {}

    def exactly(step: float) -> float:
        curves[step] = AlmostCentralCurve(levels, ratio, best, step, _SPARE_PER_REST * rest)
        return curves[step].delta_at(epsilon)

    step, _ = _largest_step(exactly, delta, step, power, least=rest / 1000)
    if step in curves and curves[step].delta_at(epsilon) <= delta:
        return curves[step]
    raise InfeasibleError(
        f"No noise was found for epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon, delta=delta
    )


def _largest_step(
    delta_of: Callable[[float], float], delta: float, guess: float, power: float, *, least: float
) -> tuple[float, float]:
    """About the largest step that meets the target, and the power of it that delta grows with; 0 if it is too small.

    By the secant method on logarithms, kept between a step that is enough and one that is not.
    """
    low, high = (0.0, 0.0), (_MOST_STEP, math.inf)  # step, ln(delta / target)
    x = min(guess, _MOST_STEP)
    before: tuple[float, float] | None = None
    for _ in range(_MOST_ROUNDS):
        y = math.log(max(delta_of(x), 1e-300) / delta)
        if -_CLOSE <= y <= 0 or (y <= 0 and x >= _MOST_STEP):
            return x, power
        low, high = ((x, y), high) if y <= 0 else (low, (x, y))
        if before is not None and before[0] != x:
            power = min(max((y - before[1]) / math.log(x / before[0]), 2.0), 60.0)
        before = x, y
        if x <= least and y > 0:
            return 0.0, power
        if high[0] < low[0] * 1.002:
            break
        aim = -_CLOSE / 2
        x = max(x * math.exp(min(max((aim - y) / power, -1.0), 1.0)), least)
        if not low[0] < x < high[0]:
            x = min(math.sqrt(max(low[0], least) * high[0]), _MOST_STEP)
    return low[0], power


def paper_almost_central_noise(
    levels: int, epsilon: float, delta: float, split: float = 0.9
) -> tuple[Dyadic, tuple[tuple[Atom, Fraction, Dyadic], ...]]:
    """The ratio that stays, and of each atom shape and ratio, by Theorem 13 of 2020 in the proof of 2021.

    Half of the rest of epsilon and delta is for {+1, -1} at its largest move, half for the other atoms: with a vector t
    such that copies_s / t_s sum to at most 1 for every message, a move of atom s by c copies
    is (epsilon c / (2 t_s))-private, and the moves of two messages are so together.
    """
    _check_split(levels, epsilon, delta, split)
    rest = epsilon * (1 - split)
    if not rest < 1:
        raise ConditionError(
            f"Theorem 13 needs (1 - split) epsilon < 1; given {rest:g}. Use the tight calibration.", rest=rest
        )
    atoms = atoms_of(levels)
    ends, *others = atoms
    noise = [(ends, *flooding_of_theorem_13(rest / 2, delta / 2, sensitivity=ends.reach))]
    for atom, tolerance in zip(others, tolerances(levels), strict=True):
        found = flooding_of_theorem_13(rest / 2, delta / 2 / len(others), sensitivity=2 * tolerance)
        noise.append((atom, *found))
    return least_ratio(split * epsilon, sensitivity=levels), tuple(noise)


def _check_split(levels: int, epsilon: float, delta: float, split: float) -> None:
    check_target(epsilon, delta)
    check_levels(levels)
    check_open_unit("split", split)
    if delta < CERTIFIED_DOWN_TO:
        raise InfeasibleError(
            f"Sums by atoms are accounted for down to delta = {CERTIFIED_DOWN_TO:g}, not {delta:g}.", delta=delta
        )


# --- the composition of all moves ------------------------------------------------------------------------------------


def _composed(curve: AlmostCentralCurve, cells: int, *, thorough: bool) -> DiscretePair:
    """The loss of all moves together; if not thorough, only of undivided moves, which are nearly the worst."""
    width = max(curve.step / cells, curve.spare / _MOST_CELLS)
    parts = []
    ends = most_ends(curve.levels)
    up, down = _move_losses(curve, (ends, ends), width)
    parts.append(worst_of([up, down], width))
    for depth, candidates in enumerate(moves_by_depth(curve.levels)):
        considered = candidates if thorough else (((1 << depth, 1 << depth),),)
        both = [_product_losses(curve, moves, width) for moves in considered]
        parts += [worst_of([pair[side] for pair in both], width) for side in (0, 1)]
    length = sum(len(part.masses) for part in parts)
    size = 1 << length.bit_length()
    spectrum = np.prod([np.fft.rfft(part.masses, size) for part in parts], axis=0)
    masses = positive_part(np.fft.irfft(spectrum, size)[:length])
    losses = (sum(part.first for part in parts) + np.arange(length)) * width
    infinite = sum(part.infinite for part in parts) + _ROUNDING
    # of the noise that stays only its pure epsilon is used: at worst, a loss of that much or as much less
    pure = DiscreteLaplaceCurve(curve.ratio, curve.levels).pure_epsilon
    p = np.concatenate((masses / (1 + math.exp(-pure)), masses * math.exp(-pure) / (1 + math.exp(-pure))))
    losses = np.concatenate((losses + pure, losses - pure))
    keep = (p > 0) & (losses > -_FARTHEST_LOSS)
    cut = as_delta(infinite + float(p[~keep].sum()))
    return DiscretePair(p[keep], p[keep] * np.exp(-losses[keep]), cut)


def _product_losses(curve: AlmostCentralCurve, moves: tuple[Move, ...], width: float) -> tuple[Losses, Losses]:
    up, down = _move_losses(curve, moves[0], width)
    for move in moves[1:]:
        more_up, more_down = _move_losses(curve, move, width)
        up, down = up.and_then(more_up), down.and_then(more_down)
    return up, down


def _move_losses(curve: AlmostCentralCurve, move: Move, width: float) -> tuple[Losses, Losses]:
    reach, copies = move
    return negative_binomial_losses(
        curve.shape, curve.flood_ratio(reach), copies, width, math.ceil(curve.spare / width)
    )
