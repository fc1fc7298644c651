"""Privacy accounting of ``almost-central``: sums with noise messages in groups (atoms) that add up to 0.

After Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021), in a form in which every user sends exactly one real message: the
number x + 1 for a value x in 0 .. levels. All users together add geometric numbers of "+1" and "-1", whose difference
remains in the sum, and a negative binomial number of copies of each *atom*. An atom is a few numbers that add up to 0:
{+1, -1}, {i, -ceil(i/2), -floor(i/2)} and the same with opposite signs.

Proof of privacy. By repeated halving, a message i equals an integer number of copies of each atom, plus n_+ messages
"+1" and minus n_- messages "-1", with n_+ + n_- = i. So replacing i by j shifts the *numbers of copies*: the analyzer
sees a function of independent numbers of copies, some of which are shifted, and of the numbers U+ and U- of "+1" and
"-1". Of these, D = U+ - U- and M = min(U+, U-) are independent; D is discrete Laplace and is shifted by j - i, and M is
shifted by between n_+(j) - n_+(i) and n_-(i) - n_-(j), depending on D. At depth h of the halving at most two atoms are
shifted, by 2^h copies in total. The numbers of copies are log-concave, so larger shifts are worse. Hence the privacy
loss is at most that of the product of D, shifted by as much as there are levels, of the worst shift of M, and over all
depths of the worst shifts up (for j) and down (for i).
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
    max_ends,
    moves_by_depth,
    tolerances,
)
from shuffledp.privacy.almost_central.losses import Losses, negative_binomial_losses, worst_of
from shuffledp.privacy.correlated_noise import flooding_of_theorem_13
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, least_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.loss_grid import on_grid
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

CERTIFIED_DOWN_TO = 1e-11
_MAX_CELLS = 2000  # grid cells of the privacy loss of one atom, on either side of 0
_MAX_STAYING_CELLS = 20_000  # of the noise that stays in the sum
_CELLS_PER_STEP = 12
_CELLS_IN_SEARCH = 5
_ROUNDING = 5e-13  # rounding error of the Fourier transforms, added to delta
_SPARE_PER_EPSILON = 3.0  # relative to the epsilon of atoms; with 1, a sixth more messages are needed
_FARTHEST_LOSS = 600.0
_NEGLIGIBLE = 1e-17  # mass of a negative loss that is cut off
_MAX_SHAPE = 1000
_SHAPES = (8, 9, 10, 11, 13, 15, 18, 22, 28, 40)
_CLOSE = 0.03  # relative distance of delta from the target; the step is then much closer to the largest one
_USUAL_POWER = 8.0  # delta is about proportional to this power of the step
_MAX_ROUNDS = 25
_MAX_STEP = 0.9


@dataclass(frozen=True)
class AlmostCentralCurve:
    """The privacy curve of the shuffled messages, for values 0 .. levels.

    ``ratio`` is that of the geometric numbers of "+1" and "-1" that remain in the sum. An atom has
    NB(shape, 1 - step/reach) copies, so that a shift by its reach has about the same privacy loss for every atom.
    """

    levels: int
    ratio: Dyadic
    shape: int
    step: float
    spare: float
    """Privacy losses of one atom above this count as infinite. Every value gives a valid bound; three times the part of
    epsilon that is spent on atoms gives a good one."""

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if not 2 <= self.shape <= _MAX_SHAPE:
            raise ParameterError(
                f"The shape must be an integer between 2 and {_MAX_SHAPE:,}, not {self.shape}.", shape=self.shape
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
        """Each atom with the shape and the ratio of the number of its copies."""
        return tuple((atom, Fraction(self.shape), self.flood_ratio(atom.reach)) for atom in atoms_of(self.levels))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; at least the resolution of the method."""
        check_epsilon(epsilon)
        return self._pair.delta(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One pair of distributions that bounds the privacy loss in both directions."""
        return ((self._pair,),)

    @cached_property
    def _pair(self) -> DiscretePair:
        return _composed(self, _CELLS_PER_STEP, thorough=True)


def expected_noise_messages(curve: AlmostCentralCurve) -> float:
    """The expected number of noise messages of all users together."""
    staying = 2 * float(curve.ratio) / float(curve.ratio.complement)
    return staying + sum(
        len(atom.members) * float(shape) * float(ratio) / float(ratio.complement)
        for atom, shape, ratio in curve.flooding
    )


@lru_cache(maxsize=64)
def almost_central_noise(levels: int, epsilon: float, delta: float, split: float = 0.9) -> AlmostCentralCurve:
    """The noise with the fewest messages that meets (epsilon, delta); split * epsilon is spent on the remaining noise.

    Every honest user adds a share of 1/(honest users) of each shape. The target is checked at exactly these parameters.
    """
    _check_split(levels, epsilon, delta, split)
    ratio = least_ratio(split * epsilon, sensitivity=levels)
    atom_epsilon = epsilon * (1 - split)
    best, step, power = 0, min(atom_epsilon / 6, 0.5), _USUAL_POWER
    for shape in _SHAPES:

        def rough_delta(step: float, shape: int = shape) -> float:
            curve = AlmostCentralCurve(levels, ratio, shape, step, _SPARE_PER_EPSILON * atom_epsilon)
            return _composed(curve, _CELLS_IN_SEARCH, thorough=False).delta(epsilon)

        largest, power = _largest_step(rough_delta, delta, step, power, least=atom_epsilon / 500)
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

    curves: dict[float, AlmostCentralCurve] = {}

    def exact_delta(step: float) -> float:
        curves[step] = AlmostCentralCurve(levels, ratio, best, step, _SPARE_PER_EPSILON * atom_epsilon)
        return curves[step].delta_at(epsilon)

    step, _ = _largest_step(exact_delta, delta, step, power, least=atom_epsilon / 1000)
    if step in curves and curves[step].delta_at(epsilon) <= delta:
        return curves[step]
    raise InfeasibleError(f"No noise meets epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon, delta=delta)


def _largest_step(
    delta_of: Callable[[float], float], delta: float, guess: float, power: float, *, least: float
) -> tuple[float, float]:
    """About the largest step that meets the target (0 if none does), and the exponent of delta as a power of the step.

    By the secant method on logarithms, within a bracket of a feasible and an infeasible step.
    """
    low, high = (0.0, 0.0), (_MAX_STEP, math.inf)  # step, ln(delta / target)
    x = min(guess, _MAX_STEP)
    before: tuple[float, float] | None = None
    for _ in range(_MAX_ROUNDS):
        y = math.log(max(delta_of(x), 1e-300) / delta)
        if -_CLOSE <= y <= 0 or (y <= 0 and x >= _MAX_STEP):
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


# --- the composition of all shifts ------------------------------------------------------------------------------------


def _composed(curve: AlmostCentralCurve, cells: int, *, thorough: bool) -> DiscretePair:
    """The loss of all shifts; if not thorough, only of shifts of a single atom, which are nearly the worst."""
    staying = DiscreteLaplaceCurve(curve.ratio, curve.levels)
    width = max(curve.step / cells, curve.spare / _MAX_CELLS, staying.pure_epsilon / _MAX_STAYING_CELLS)
    parts = []
    ends = max_ends(curve.levels)
    up, down = _move_losses(curve, (ends, ends), width)
    parts.append(worst_of([up, down], width))
    for depth, candidates in enumerate(moves_by_depth(curve.levels)):
        considered = candidates if thorough else (((1 << depth, 1 << depth),),)
        both = [_product_losses(curve, moves, width) for moves in considered]
        parts += [worst_of([pair[side] for pair in both], width) for side in (0, 1)]
    parts.append(_staying_losses(staying, width))
    length = sum(len(part.masses) for part in parts)
    size = 1 << length.bit_length()
    spectrum = np.prod([np.fft.rfft(part.masses, size) for part in parts], axis=0)
    masses = positive_part(np.fft.irfft(spectrum, size)[:length])
    losses = (sum(part.first for part in parts) + np.arange(length)) * width
    infinite = sum(part.infinite for part in parts) + _ROUNDING
    # at far negative losses, masses are rounding errors, which e^-loss would magnify
    keep = np.where(losses < 0, masses > _NEGLIGIBLE, masses > 0) & (losses > -_FARTHEST_LOSS)
    cut = as_delta(infinite + float(masses[~keep].sum()))
    return DiscretePair(masses[keep], masses[keep] * np.exp(-losses[keep]), cut)


def _staying_losses(noise: DiscreteLaplaceCurve, width: float) -> Losses:
    """The loss of D, discrete Laplace noise that is shifted by as much as there are levels."""
    ((pair,),) = noise.directions(0.0)
    on = on_grid(pair, width)
    return Losses(on.masses, on.first, on.infinite)


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
