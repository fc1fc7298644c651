"""The study of Theorem 12: it holds, its numbers are the known ones, and it fails when something is broken."""

from __future__ import annotations

import math

import pytest

from shuffledp.domain import Categories
from shuffledp.lab.studies import find_study, theorem12
from shuffledp.lab.studies.largest_errors import held_quantile
from shuffledp.lab.studies.study import Outcome, Settings
from shuffledp.lab.studies.theorem12 import _Case, _measured
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.randomness import Dyadic

SMALL = _Case(users=20_000, epsilon=1.0, delta=1e-6, size=50)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return find_study("theorem12").measure(Settings(quick=True))


def _rows(outcome: Outcome) -> list[dict]:
    table = outcome.tables[""]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _at(outcome: Outcome, **wanted: object) -> list[dict]:
    return [row for row in _rows(outcome) if all(row[key] == value for key, value in wanted.items())]


def test_the_theorem_holds(outcome: Outcome) -> None:
    assert [check for check in outcome.checks if not check.holds] == []
    claims = {check.claim.split(",")[0] for check in outcome.checks}
    assert {f"Theorem 12 ({part})" for part in ("i", "ii", "iii", "iv")} <= claims


@pytest.mark.parametrize(("delta", "each", "together"), [(1e-6, 829, 951), (1e-10, 1318, 1474)])
def test_bounds_are_the_known_ones(outcome: Outcome, delta: float, each: int, together: int) -> None:
    for row in _at(outcome, epsilon=1.0, delta=delta, users=1_000_000):
        assert (round(row["bound_each"]), round(row["bound_all"])) == (each, together)


def test_noise_is_the_theorems(outcome: Outcome) -> None:
    for row in _at(outcome, calibration="paper"):
        assert row["noise_mean"] == pytest.approx(50 * math.log(2 / row["delta"]) / row["epsilon"] ** 2, rel=1e-9)
    for paper, tight in zip(_at(outcome, calibration="paper"), _at(outcome, calibration="tight"), strict=True):
        assert paper["noise_mean"] > 30 * tight["noise_mean"]
        assert paper["true_delta"] < 1e-20 * paper["delta"]
        assert 0.9 * 2 * tight["delta"] < tight["true_delta"] <= 2 * tight["delta"]


def test_nothing_depends_on_the_domain(outcome: Outcome) -> None:
    for epsilon in (0.25, 1.0):
        for calibration in ("paper", "tight"):
            rows = _at(outcome, epsilon=epsilon, delta=1e-6, users=1_000_000, calibration=calibration)
            assert len({row["domain_size"] for row in rows}) >= 3
            assert len({row["error_exact"] for row in rows}) == 1
            assert len({row["bound_all"] for row in rows}) == 1
            assert max(row["largest_error_of_empty"] for row in rows) == 0


def test_the_error_falls_with_the_square_of_epsilon(outcome: Outcome) -> None:
    one, third = (
        _at(outcome, epsilon=epsilon, delta=1e-6, users=1_000_000, calibration="paper", domain_size=1000)[-1]
        for epsilon in (1.0, 0.3)
    )
    assert third["error_exact"] / one["error_exact"] == pytest.approx(1 / 0.3**2, rel=0.1)


@pytest.mark.parametrize("counts", [[3], [5], [2, 9, 30], [1, 6, 6, 7]])
def test_the_exact_quantile_is_that_of_all_outcomes(counts: list[int]) -> None:
    noise = Binomial(20, Dyadic(1, 2))
    pmfs = []
    for count in counts:
        pmf: dict[float, float] = {}
        for k in range(21):
            error = count if k >= count else abs(k - noise.mean)
            pmf[error] = pmf.get(error, 0.0) + float(noise.pmf(k))
        pmfs.append(pmf)
    candidates = sorted({error for pmf in pmfs for error in pmf})
    inside = {r: math.prod(sum(p for error, p in pmf.items() if error <= r) for pmf in pmfs) for r in candidates}
    for share in (0.3, 0.8, 0.95, 0.999):
        expected = min(r for r in candidates if inside[r] >= share)
        assert held_quantile(noise, counts, share) == pytest.approx(expected, abs=1e-6)


def _found(protocol: BalcerCheuHistogram) -> dict[str, bool]:
    _, checks = _measured(SMALL, protocol, Settings(quick=True))
    held: dict[str, bool] = {}
    for check in checks:
        held[check.claim] = held.get(check.claim, True) and check.holds
    return held


def _protocol(case: _Case = SMALL) -> BalcerCheuHistogram:
    return case.protocol("paper", Categories.numbered(case.size))


def test_a_small_case_holds() -> None:
    assert all(_found(_protocol()).values())


def test_too_little_noise_is_found() -> None:
    less = _Case(SMALL.users, 1.0, 0.2, SMALL.size).protocol("tight", Categories.numbered(SMALL.size))
    assert not _found(less)["Theorem 12 (i), privacy"]


def test_a_bound_that_is_too_low_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = theorem12.theorem_12_alpha
    monkeypatch.setattr(theorem12, "theorem_12_alpha", lambda *given, **more: bound(*given, **more) / 2)
    found = _found(_protocol())
    assert not found["Theorem 12 (iii), all errors together"]
    assert not all(holds for claim, holds in found.items() if "(ii)" in claim)


def test_a_protocol_without_its_threshold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = BalcerCheuHistogram.estimate
    monkeypatch.setattr(
        BalcerCheuHistogram, "estimate", lambda self, tally: estimate(self, tally, estimator="unbiased")
    )
    assert not _found(_protocol())["categories without users are exactly 0"]
