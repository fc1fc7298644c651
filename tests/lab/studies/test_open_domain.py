"""The study of open domains: predictions against measurements, the models that are computed, and a planted fault."""

import pytest

from shuffledp.figures import LIGHT
from shuffledp.lab.studies import open_domain
from shuffledp.lab.studies.registry import find_study
from shuffledp.lab.studies.study import Settings
from shuffledp.protocols.strings import tree_blanket
from shuffledp.randomness import InsecureSeededRandomness, integers

SMALL = open_domain._Setting(15_000, (3, 8), 10)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(open_domain, "_QUICK", SMALL)


def test_it_holds(small):
    outcome = find_study("open-domain").measure(Settings(quick=True))
    assert outcome.holds, [check for check in outcome.checks if not check.holds]
    columns = outcome.tables[""].columns
    assert set(columns["protocol"]) == {"stability", "sample-and-threshold", "tree-blanket"}
    assert len(columns["recall"]) == 3 * len(SMALL.lengths) * len(open_domain._COUNTS)
    rows = [dict(zip(columns, row, strict=True)) for row in outcome.tables[""].rows]
    central = next(row for row in rows if (row["protocol"], row["count"]) == ("stability", 30))
    assert central["predicted"] == pytest.approx(0.86, abs=0.005)
    sampled = next(row for row in rows if (row["protocol"], row["count"]) == ("sample-and-threshold", 60))
    assert sampled["predicted"] == pytest.approx(0.55, abs=0.01)
    for figure in outcome.figures:
        assert figure.draw(".svg", LIGHT).startswith(b"<svg")


def test_a_seed_repeats_it(small):
    tables = [
        find_study("open-domain").measure(Settings(quick=True, source=InsecureSeededRandomness(5))).tables[""].columns
        for _ in range(2)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("model", "count", "probability"),
    [
        ("_pem", 150, 0.0),
        ("_pem", 20_000, 0.11),
        ("_pem", 30_000, 0.87),
        ("_sealed", 30, 0.001),
        ("_sealed", 69, 0.52),
        ("_sealed", 100, 0.953),
    ],
)
def test_models_that_are_computed(model, count, probability):
    assert getattr(open_domain, model)(count) == pytest.approx(probability, abs=0.01)


def test_levels_that_are_not_drawn_uniformly_are_noticed(small, monkeypatch):
    """Holders report on the first half of the levels only: strings are no longer found as predicted."""

    def half(bound, size, source):
        return integers(bound // 2 if bound == 24 else bound, size, source)

    monkeypatch.setattr(tree_blanket, "integers", half)
    outcome = find_study("open-domain").measure(Settings(quick=True))
    failed = {check.claim for check in outcome.checks if not check.holds}
    assert "strings are found as often as predicted" in failed
