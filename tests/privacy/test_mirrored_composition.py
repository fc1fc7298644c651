"""Powers of a pair and its mirror image: against enumeration, another library's composition, and planted faults."""

import math
from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialHistogram, shift_pair
from shuffledp.privacy.composition import compose
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.mirrored_composition import MirroredComposition
from shuffledp.randomness import Dyadic

PAIR = DiscretePair.of([0.5, 0.3, 0.15, 0.05, 0.0], [0.3, 0.3, 0.1, 0.2, 0.1])


def enumerated(pair: DiscretePair, times: int, epsilon: float) -> float:
    factors = [list(zip(pair.p, pair.q, strict=True)), list(zip(pair.q, pair.p, strict=True))] * times
    growth = math.exp(epsilon)
    return math.fsum(
        max(math.prod(p for p, _ in outcome) - growth * math.prod(q for _, q in outcome), 0.0)
        for outcome in product(*factors)
    )


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5, 6.0])
def test_it_is_the_truth_from_above(times, epsilon):
    exact = enumerated(PAIR, times, epsilon)
    assert exact <= MirroredComposition(PAIR, times).delta_at(epsilon) <= exact * 1.001 + 1e-4


@pytest.mark.parametrize(
    ("users", "rate", "times"),
    [(100, 0.2, 2), (100, 0.01, 3), (10**6, 3e-4, 8), (10**6, 0.1, 100), (10**9, 8e-5, 16), (10**6, 0.3, 10_000)],
)
def test_it_agrees_with_composition(users, rate, times):
    noise = Binomial(users, Dyadic.of(rate))
    ours, theirs = MirroredComposition(shift_pair(noise, cut=1e-17), times), compose(BinomialHistogram(noise), times)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        floor = times * 1e-13 + 1e-12
        assert ours.delta_at(epsilon) == pytest.approx(theirs.delta_at(epsilon), rel=2e-3, abs=floor)


def test_losing_the_infinite_losses_would_show():
    kept = MirroredComposition(PAIR, 2).delta_at(6.0)
    assert kept >= enumerated(PAIR, 2, 6.0) > 0.1
    with pytest.raises(ConditionError, match="masses sum to"):
        MirroredComposition(DiscretePair(PAIR.p[:4], PAIR.q[:4]), 2).delta_at(6.0)


def test_delta_falls_with_epsilon_and_rises_with_the_copies():
    pair = shift_pair(Binomial(1000, Dyadic.of(0.1)), cut=1e-17)
    deltas = [MirroredComposition(pair, 5).delta_at(epsilon) for epsilon in np.linspace(0, 4, 30).tolist()]
    assert deltas == sorted(deltas, reverse=True)
    assert MirroredComposition(pair, 4).delta_at(1.0) < MirroredComposition(pair, 5).delta_at(1.0) <= 1
    assert MirroredComposition(pair, 5).delta_at(math.inf) < 1e-10


def test_meaningless_arguments_are_refused():
    with pytest.raises(ParameterError):
        MirroredComposition(PAIR, 0)
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ParameterError):
            MirroredComposition(PAIR, 2).delta_at(epsilon)
