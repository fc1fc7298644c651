"""Sums at almost central accuracy in almost one message: noise in atoms that cancel hides which numbers were sent.

After Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021), in a form in which every user sends exactly one real message:
a value x in 0 .. levels as the number x + 1. All users together add geometrically many "+1" and "-1",
whose difference stays in the sum, and for each *atom*, a few numbers that add up to 0, negative binomially many copies.
Atoms are {+1, -1}, {i, -ceil(i/2), -floor(i/2)} and the same with signs exchanged.

Why it is private. Halving repeatedly, a message i is a whole number of copies of each atom, plus n_+ messages
"+1" and minus n_- messages "-1", n_+ + n_- = i. So replacing i by j moves the *numbers of copies*: what is seen
is a function of independent numbers of copies, some of which are moved, and of the numbers U+ and U- of "+1" and "-1".
Of these, D = U+ - U- and M = min(U+, U-) are independent; D is discrete Laplace and moves by j - i, M is moved
by between n_+(j) - n_+(i) and n_-(i) - n_-(j), depending on D. At depth h of the halving at most two atoms
are moved, by 2^h copies together. The numbers of copies are log-concave, so smaller moves hide better; hence the
privacy loss is at most that of the product, over all depths, of the worst moves up (for j) and down (for i) there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.correlated_noise import flooding_of_theorem_13
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceLaw, least_ratio
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.guarantee import check_target
from shuffledp.randomness import Dyadic

__all__ = [
    "CERTIFIED_DOWN_TO",
    "AlmostCentralLaw",
    "Atom",
    "almost_central_noise",
    "atoms_of",
    "decomposition",
    "expected_noise_messages",
    "paper_almost_central_noise",
]

Floats = NDArray[np.float64]
Move = tuple[int, int]
"""The reach of an atom, and by how many copies it is moved."""

CERTIFIED_DOWN_TO = 1e-11
MOST_LEVELS = 1 << 14
_MOST_CELLS = 2000  # of the privacy loss of one atom, on either side of 0
_CELLS_PER_STEP = 20
_PARTS = 8  # moves are rounded up to this part of the largest at their depth
_ROUNDING = 5e-13  # of the Fourier transforms, added to delta
_SPARE_PER_REST = 2.0  # with 1, counting larger losses as infinite costs a sixth more messages
_FARTHEST_LOSS = 600.0
_SHAPES = (8, 11, 15, 20, 28, 40)


@dataclass(frozen=True)
class Atom:
    """Numbers that add up to 0, the one of largest size first."""

    members: tuple[int, ...]
    reach: int
    """A bound on how many copies replacing one user moves."""


def decomposition(message: int) -> Iterator[dict[int, int]]:
    """By depth: how many copies of the atom led by each number make up the message; at the end the rest.

    The rest is {1: n_+, -1: n_-}: with these, e_message = sum of copies * atom + n_+ e_1 - n_- e_-1, where
    atoms led by a negative number are subtracted.
    """
    sizes, sign = {message: 1}, 1
    rest = {1: 0, -1: 0}
    while sizes:
        rest[sign] += sizes.pop(1, 0)
        if sizes:
            yield {sign * size: copies for size, copies in sizes.items()}
        halves: dict[int, int] = {}
        for size, copies in sizes.items():
            for half in (size // 2, size - size // 2):
                halves[half] = halves.get(half, 0) + copies
        sizes, sign = halves, -sign
    yield rest


@lru_cache(maxsize=32)
def atoms_of(levels: int) -> tuple[Atom, ...]:
    """All atoms that some message 1 .. levels + 1 is made of, {+1, -1} first."""
    _check_levels(levels)
    reaches: dict[int, int] = {}
    ends = 1
    for message in range(1, levels + 2):
        *depths, rest = decomposition(message)
        ends = max(ends, *rest.values())
        for depth, copies in enumerate(depths):
            for leader in copies:
                reaches[leader] = max(reaches.get(leader, 0), 1 << depth)
    led = [Atom(_members(leader), reach) for leader, reach in sorted(reaches.items())]
    return (Atom((1, -1), ends), *led)


def _members(leader: int) -> tuple[int, ...]:
    sign, size = (1, leader) if leader > 0 else (-1, -leader)
    return leader, -sign * (size - size // 2), -sign * (size // 2)


@dataclass(frozen=True)
class AlmostCentralLaw:
    """How private the mixed messages are, for values 0 .. levels.

    ``ratio`` is that of the "+1" and "-1" that stay in the sum. An atom of some reach has
    NB(shape, 1 - step/reach) copies: a move by its reach changes their law as much at any reach.
    """

    levels: int
    ratio: Dyadic
    shape: int
    step: float
    spare: float
    """Up to which privacy loss of one atom is told apart from an infinite one. Any value gives a bound; twice what
    epsilon leaves for atoms gives a good one."""

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        if self.shape < 2:
            raise ParameterError(f"The shape must be a whole number from 2 on, not {self.shape}.", shape=self.shape)
        if not 0 < self.step < 1:
            raise ParameterError(f"The step must lie strictly between 0 and 1, not {self.step}.", step=self.step)
        if not 0 < self.spare < math.inf:
            raise ParameterError(f"The spare epsilon must be positive, not {self.spare}.", spare=self.spare)

    def flood_ratio(self, reach: int) -> Dyadic:
        """The ratio of the number of copies of an atom of this reach."""
        return Dyadic.at_least(1 - self.step / reach)

    @property
    def flooding(self) -> tuple[tuple[Atom, Fraction, Dyadic], ...]:
        """Each atom with shape and ratio of the number of its copies."""
        return tuple((atom, Fraction(self.shape), self.flood_ratio(atom.reach)) for atom in atoms_of(self.levels))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        if not epsilon >= 0:
            raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
        return self._pair.delta(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One pair of laws that is at least as easy to tell apart as those seen, in either direction."""
        return ((self._pair,),)

    @cached_property
    def _pair(self) -> DiscretePair:
        return _composed(self, thorough=True)


def expected_noise_messages(law: AlmostCentralLaw) -> float:
    """The expected number of messages beyond the real ones, of all users together."""
    staying = 2 * float(law.ratio) / float(law.ratio.complement)
    return staying + sum(
        len(atom.members) * float(shape) * float(ratio) / float(ratio.complement) for atom, shape, ratio in law.flooding
    )


@lru_cache(maxsize=64)
def almost_central_noise(levels: int, epsilon: float, delta: float, split: float = 0.9) -> AlmostCentralLaw:
    """The fewest messages for an overall (epsilon, delta), split * epsilon of it for the noise that stays.

    Every honest user adds its part 1/(honest users) of each shape. The law at just these parameters meets the target.
    """
    _check_split(levels, epsilon, delta, split)
    ratio = least_ratio(split * epsilon, sensitivity=levels)
    rest = epsilon * (1 - split)
    best, step, guess = 0, 0.0, min(rest / 6, 0.5)
    for shape in _SHAPES:
        found = _largest_step(levels, ratio, shape, (epsilon, delta, rest), guess)
        if best and shape / found > best / step:
            break
        if found:
            best, step, guess = shape, found, found
    if not best:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} need more noise than can be computed with; "
            "use a larger epsilon, or spend less of it on the noise that stays.",
            epsilon=epsilon,
            delta=delta,
        )
    step = min(step * 1.06, 0.9)
    for _ in range(80):
        law = AlmostCentralLaw(levels, ratio, best, step, _SPARE_PER_REST * rest)
        if law.delta_at(epsilon) <= delta:
            return law
        step *= 0.985
    raise InfeasibleError(
        f"No noise was found for epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon, delta=delta
    )


def _largest_step(levels: int, ratio: Dyadic, shape: int, target: tuple[float, float, float], guess: float) -> float:
    """The step at which delta meets the target, by bisection of its logarithm; 0 if it is too small to compute with."""
    epsilon, delta, rest = target

    def enough(step: float) -> bool:
        law = AlmostCentralLaw(levels, ratio, shape, step, _SPARE_PER_REST * rest)
        return _composed(law, thorough=False).delta(epsilon) <= delta

    low = high = min(guess, 0.5)
    if enough(low):
        while high < 0.7 and enough(high * 1.3):
            high *= 1.3
        low, high = high, high * 1.3
    else:
        while not enough(low):
            high, low = low, low / 1.3
            if low < rest / 500:
                return 0.0
    while high > low * 1.03:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return min(low, 0.9)


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
    for atom, tolerance in zip(others, _tolerances(levels), strict=True):
        found = flooding_of_theorem_13(rest / 2, delta / 2 / len(others), sensitivity=2 * tolerance)
        noise.append((atom, *found))
    return least_ratio(split * epsilon, sensitivity=levels), tuple(noise)


def _tolerances(levels: int) -> list[int]:
    """For each atom but {+1, -1}, t with copies_s / t_s summing to at most 1 for each message; inverse to its size."""
    largest = 0
    for message in range(2, levels + 2):
        *depths, _ = decomposition(message)
        largest = max(largest, sum(abs(leader) * n for copies in depths for leader, n in copies.items()))
    return [-(-largest // abs(atom.members[0])) for atom in atoms_of(levels)[1:]]


def _check_levels(levels: int) -> None:
    if not 1 <= levels <= MOST_LEVELS:
        raise ParameterError(f"Levels must lie between 1 and {MOST_LEVELS:,}, not {levels}.", levels=levels)


def _check_split(levels: int, epsilon: float, delta: float, split: float) -> None:
    check_target(epsilon, delta)
    _check_levels(levels)
    if not 0 < split < 1:
        raise ParameterError(f"The split must lie strictly between 0 and 1, not {split}.", split=split)
    if delta < CERTIFIED_DOWN_TO:
        raise InfeasibleError(
            f"Sums by atoms are accounted for down to delta = {CERTIFIED_DOWN_TO:g}, not {delta:g}.", delta=delta
        )


# --- the composition of all moves ------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _moves_by_depth(levels: int) -> tuple[tuple[tuple[Move, ...], ...], ...]:
    """Per depth, the moves (of one or two atoms) that messages make there, without those within another."""
    reaches = {atom.members[0]: atom.reach for atom in atoms_of(levels)}
    found: dict[int, set[tuple[Move, ...]]] = {}
    for message in range(2, levels + 2):
        *depths, _ = decomposition(message)
        for depth, copies in enumerate(depths):
            unit = max(1, (1 << depth) // _PARTS)
            moves = tuple(sorted((reaches[leader], -(-n // unit) * unit) for leader, n in copies.items()))
            found.setdefault(depth, set()).add(moves)
    return tuple(_largest_moves(found[depth]) for depth in sorted(found))


def _largest_moves(candidates: set[tuple[Move, ...]]) -> tuple[tuple[Move, ...], ...]:
    def within(small: tuple[Move, ...], large: tuple[Move, ...]) -> bool:
        padded = (*small, *((large[len(small) :]) if len(small) < len(large) else ()))
        return len(padded) == len(large) and all(
            one[0] == other[0] and one[1] <= other[1] for one, other in zip(padded, large, strict=True)
        )

    return tuple(
        sorted(one for one in candidates if not any(one != other and within(one, other) for other in candidates))
    )


@dataclass(frozen=True, eq=False)
class _Losses:
    """The law of a privacy loss: masses at (first, first + 1, ...) times the width of a cell, and at infinity."""

    masses: Floats
    first: int
    infinite: float

    def and_then(self, other: _Losses) -> _Losses:
        return _Losses(np.convolve(self.masses, other.masses), self.first + other.first, self.infinite + other.infinite)


def _composed(law: AlmostCentralLaw, *, thorough: bool) -> DiscretePair:
    """The loss of all moves together; if not thorough, only of undivided moves, which are nearly the worst."""
    width = max(law.step / _CELLS_PER_STEP, law.spare / _MOST_CELLS)
    parts = []
    ends = atoms_of(law.levels)[0].reach
    up, down = _move_losses(law, (ends, ends), width)
    parts.append(_worst_of([up, down], width))
    for depth, candidates in enumerate(_moves_by_depth(law.levels)):
        considered = candidates if thorough else (((1 << depth, 1 << depth),),)
        both = [_product_losses(law, moves, width) for moves in considered]
        parts += [_worst_of([pair[side] for pair in both], width) for side in (0, 1)]
    length = sum(len(part.masses) for part in parts)
    size = 1 << length.bit_length()
    spectrum = np.prod([np.fft.rfft(part.masses, size) for part in parts], axis=0)
    masses = np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
    losses = (sum(part.first for part in parts) + np.arange(length)) * width
    infinite = sum(part.infinite for part in parts) + _ROUNDING
    # of the noise that stays only its pure epsilon is used: at worst, a loss of that much or as much less
    pure = DiscreteLaplaceLaw(law.ratio, law.levels).pure_epsilon
    p = np.concatenate((masses / (1 + math.exp(-pure)), masses / (1 + math.exp(pure))))
    losses = np.concatenate((losses + pure, losses - pure))
    keep = (p > 0) & (losses > -_FARTHEST_LOSS)
    cut = min(1.0, infinite + float(p[~keep].sum()))
    return DiscretePair(p[keep], p[keep] * np.exp(-losses[keep]), cut)


def _product_losses(law: AlmostCentralLaw, moves: tuple[Move, ...], width: float) -> tuple[_Losses, _Losses]:
    up, down = _move_losses(law, moves[0], width)
    for move in moves[1:]:
        more_up, more_down = _move_losses(law, move, width)
        up, down = up.and_then(more_up), down.and_then(more_down)
    return up, down


def _move_losses(law: AlmostCentralLaw, move: Move, width: float) -> tuple[_Losses, _Losses]:
    reach, copies = move
    return _negative_binomial_losses(law.shape, law.flood_ratio(reach), copies, width, math.ceil(law.spare / width))


@lru_cache(maxsize=256)
def _negative_binomial_losses(
    shape: int, ratio: Dyadic, copies: int, width: float, cells: int
) -> tuple[_Losses, _Losses]:
    """The privacy loss of N moved up by ``copies`` against N, and of N against N moved up, N ~ NB(shape, ratio).

    The loss ln(Pr[N = k] / Pr[N + copies = k]) falls with k, so cells of it are stretches of k. The mass of
    each goes to the two ends of its cell such that it stays the same under both laws.
    """
    edges: Floats = np.arange(-cells, cells + 1, dtype=np.float64) * width
    last = _last_above(shape, ratio, copies, edges)  # per edge, the last k whose loss lies above
    stay, moved = _stretches(shape, ratio, last), _stretches(shape, ratio, last - copies)
    down = _in_cells(stay.inner[::-1], moved.inner[::-1], width)
    down[0] += stay.above
    up = _in_cells(moved.inner, stay.inner, width)
    up[0] += moved.below
    return _Losses(up, -cells, moved.above + 1e-15), _Losses(down, -cells, stay.below + 1e-15)


def _last_above(shape: int, ratio: Dyadic, copies: int, edges: Floats) -> Floats:
    """The last k with copies ln(ratio) + sum over j < shape of ln((k + j)/(k - copies + j)) > edge; infinite if all."""
    slope = copies * math.log1p(-float(ratio.complement))
    excess = edges - slope
    possible = excess > 0
    start = np.floor(copies / np.expm1(np.where(possible, excess, 1.0) / (shape - 1))) + copies - shape - 1
    candidates = np.maximum(start[:, None] + np.arange(shape + 4), copies)
    total = np.zeros_like(candidates)
    for j in range(1, shape):
        total += np.log1p(copies / (candidates - copies + j))
    above = (total > excess[:, None]) * candidates
    last = np.maximum(above.max(axis=1), copies - 1)  # below ``copies`` the loss is infinite
    return np.where(possible, last, np.inf)


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Mass up to the least edge, between edges in order of increasing k, and beyond the last."""

    below: float
    inner: Floats
    above: float


def _stretches(shape: int, ratio: Dyadic, last: Floats) -> _Stretches:
    """``last`` falls; the masses between its entries are taken on whichever side of the law is smaller."""
    order = last[::-1]
    lower, upper = _tails(shape, ratio, order)
    inner = np.where(lower[1:] < 0.5, np.diff(lower), -np.diff(upper))
    return _Stretches(float(lower[0]), np.maximum(inner, 0.0), float(upper[-1]))


def _tails(shape: int, ratio: Dyadic, k: Floats) -> tuple[Floats, Floats]:
    """Pr[N <= k] and Pr[N > k] = ratio^(k + 1) * sum over j < shape of C(k + j, j) (1 - ratio)^j."""
    from scipy.special import betainc  # not at import time: a device needs no SciPy

    rest = float(ratio.complement)
    inside = np.isfinite(k) & (k >= 0)
    at = np.where(inside, k, 0.0)
    term = np.exp((at + 1) * math.log1p(-rest))
    upper = term.copy()
    for j in range(1, shape):
        term = term * (at + j) / j * rest
        upper += term
    lower = np.where(upper < 0.5, 1 - upper, betainc(shape, at + 1, rest))
    return np.where(inside, lower, np.where(k < 0, 0.0, 1.0)), np.where(inside, upper, np.where(k < 0, 1.0, 0.0))


def _in_cells(first: Floats, second: Floats, width: float) -> Floats:
    """Masses under the first law at the edges, from the masses of each cell under both laws."""
    cells = len(first) // 2
    lower = np.arange(-cells, cells) * width
    to_upper = np.clip((first - second * np.exp(lower)) / -math.expm1(-width), 0.0, first)
    masses = np.zeros(2 * cells + 1)
    masses[1:] += to_upper
    masses[:-1] += first - to_upper
    return masses


def _worst_of(candidates: list[_Losses], width: float) -> _Losses:
    """One loss law whose every delta is the largest of the given ones: connect the dots (Doroshenko et al. 2022)."""
    if len(candidates) == 1:
        return candidates[0]
    first = min(each.first for each in candidates)
    last = max(each.first + len(each.masses) for each in candidates)
    deltas = np.max([_curve(each, first, last, width) for each in candidates], axis=0)
    falls = -np.diff(deltas)
    masses = np.concatenate(([1 - deltas[0]], falls / -math.expm1(-width)))
    masses[:-1] -= falls / math.expm1(width)
    return _Losses(np.maximum(masses, 0.0).astype(np.float64), first, float(deltas[-1]))


def _curve(losses: _Losses, first: int, last: int, width: float) -> NDArray[np.longdouble]:
    """The delta at each edge: the sum over larger losses of mass * (1 - e^(edge - loss))."""
    masses = np.zeros(last - first, dtype=np.longdouble)
    masses[losses.first - first : losses.first - first + len(losses.masses)] = losses.masses
    shrunk = masses * np.exp(-np.arange(len(masses)) * np.longdouble(width))
    beyond = np.cumsum(masses[::-1])[::-1] - masses
    shrunk_beyond = (np.cumsum(shrunk[::-1])[::-1] - shrunk) * np.exp(np.arange(len(masses)) * np.longdouble(width))
    deltas: NDArray[np.longdouble] = np.maximum(beyond - shrunk_beyond, 0) + losses.infinite
    return deltas
