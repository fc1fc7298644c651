"""Trees over bins: nodes, and least squares against a dense solution."""

import math

import numpy as np
import pytest

from shuffledp.errors import DomainError
from shuffledp.protocols.parts.tree import Tree, TreeFit
from shuffledp.protocols.quantiles.protocol import branchings, usual_branching

SHAPES = [(7, (2, 2, 2)), (12, (3, 4)), (10, (4, 3)), (5, (5,)), (11, (2, 3, 2)), (2, (2,)), (9, (2, 2, 3))]


def matrix(tree):
    """One row per node: which bins it contains."""
    rows = [
        [float(b // width == cell) for b in range(tree.bins)]
        for width, size in zip(tree.widths, tree.sizes, strict=True)
        for cell in range(size)
    ]
    return np.array(rows)


@pytest.mark.parametrize(("bins", "branching"), SHAPES)
def test_nodes(bins, branching):
    tree = Tree(bins, branching)
    counts = np.arange(1, bins + 1)
    assert np.array_equal(tree.counts_of(counts), matrix(tree) @ counts)
    held = np.zeros((bins, tree.nodes))
    np.put_along_axis(held, tree.nodes_of(np.arange(bins)), 1.0, axis=1)
    assert np.array_equal(held.T, matrix(tree))


@pytest.mark.parametrize(("bins", "branching"), SHAPES)
def test_least_squares_and_its_errors_are_those_of_a_dense_solution(bins, branching):
    rng = np.random.default_rng(bins)
    tree = Tree(bins, branching)
    variances = rng.uniform(1, 5, len(branching))
    fit = TreeFit(tree, tuple(variances.tolist()))
    nodes, noise = matrix(tree), np.repeat(variances, tree.sizes)
    ones = np.ones((bins, 1))
    system = np.block([[nodes.T @ (nodes / noise[:, None]), ones], [ones.T, np.zeros((1, 1))]])
    response = np.linalg.solve(system, np.vstack([nodes.T / noise, np.zeros((1, tree.nodes))]))[:bins]
    observed, total = rng.normal(5, 3, tree.nodes), 40.0
    exact = np.linalg.solve(system, np.concatenate([nodes.T @ (observed / noise), [total]]))[:bins]
    assert np.allclose(fit.bin_counts(tree.levels_of(observed), total), exact)
    below = np.tril(np.ones((bins - 1, bins)))
    coefficients = np.concatenate(fit.coefficients(below), axis=-1)
    assert np.allclose(coefficients, below @ response)
    assert np.allclose(fit.variances_below_edges, (coefficients**2 * noise).sum(axis=1))
    for level in fit.coefficients(below):
        assert np.allclose(level.sum(axis=-1), 0)
        assert np.abs(level).max(initial=0) <= 1 + 1e-12


PUBLISHED = [
    ((2,) * 10, 358, 19.6, 23.4),
    ((4,) * 5, 181, 19.8, 24.0),
    ((8, 8, 16), 110, 23.0, 28.0),
    ((32, 32), 75.6, 28.0, 34.2),
    ((1024,), 42.7, 85.4, 104.6),
]


@pytest.mark.parametrize(("branching", "variance", "typical", "worst"), PUBLISHED)
def test_errors_of_1024_bins(branching, variance, typical, worst):
    """To the digits given in the specification of the protocol."""
    variances = TreeFit(Tree(1024, branching), (variance,) * len(branching)).variances_below_edges
    assert math.sqrt(variances.mean()) == pytest.approx(typical, rel=3e-3)
    assert math.sqrt(variances.max()) == pytest.approx(worst, rel=3e-3)


def test_a_level_without_noise_decides():
    tree = Tree(4, (2, 2))
    fit = TreeFit(tree, (0.0, 4.0))
    counts = fit.bin_counts([np.array([3.0, 7.0]), np.array([9.0, 1.0, 0.0, 2.0])], 10.0)
    assert np.allclose([counts[:2].sum(), counts[2:].sum()], [3, 7])
    assert fit.variances_below_edges[1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("bins", "branching"),
    [
        (1, (2,)),
        (8, (2, 2)),
        (8, (4, 1, 2)),
        (8, ()),
        (4, (2, 8)),
        (1 << 21, (1 << 21,)),
        (8, (1 << 52,)),
        (8, (9,)),
        (8, (5, 2)),
        (33, (4, 4, 4)),
        (8, (1 << 52, 2)),
    ],
)
def test_levels_that_do_not_fit_are_refused(bins, branching):
    with pytest.raises(DomainError):
        Tree(bins, branching)


@pytest.mark.parametrize("bins", [2, 3, 4, 5, 7, 16, 24, 100, 120, 1000, 1024, 4096, 65_537])
def test_offered_trees_fit(bins):
    offered = [*branchings(bins), usual_branching(bins)]
    assert all((branching[0] - 1) * Tree(bins, branching).widths[0] < bins for branching in offered)
    assert all(Tree(bins, branching).sizes[-1] == bins for branching in offered)
    assert (bins,) in offered
    assert len({len(branching) for branching in branchings(bins)}) == len(branchings(bins))
