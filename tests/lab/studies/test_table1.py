"""The study of Table 1: it holds, its numbers are the known ones, and it fails when something is broken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shuffledp.lab.studies import find_study
from shuffledp.lab.studies.largest_errors import EmptyErrors
from shuffledp.lab.studies.study import Outcome, Settings
from shuffledp.lab.studies.table1 import study as table1
from shuffledp.lab.studies.table1.rows import (
    BETA,
    DELTA,
    EPSILON,
    ROWS,
    calibrated,
    empty_errors,
    held_counts,
    round_errors,
)
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import theorem_12_alpha
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA

MANY = 1_000_000
QUICK = Settings(quick=True)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return find_study("table1").measure(QUICK)


def _rows(outcome: Outcome, name: str = "", **wanted: object) -> list[dict[str, Any]]:
    table = outcome.tables[name]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_the_table_holds(outcome: Outcome) -> None:
    assert [check for check in outcome.checks if not check.holds] == []


def test_every_row_is_there(outcome: Outcome) -> None:
    for row in ROWS.values():
        run = {each["calibration"] for each in _rows(outcome, protocol=row.protocol)}
        assert run == set(row.calibrations) - ({"paper"} if row.protocol == "count-min" else set())
        for users in (10_000, 100_000):
            assert len(_rows(outcome, protocol=row.protocol, users=users, calibration="tight")) >= 3


def test_theorem_12_is_flat_and_the_others_grow(outcome: Outcome) -> None:
    users = 100_000
    promised = users * theorem_12_alpha(users, EPSILON / 2, DELTA / 2, BETA, simultaneous=True)
    for row in _rows(outcome, protocol="balcer-cheu", users=users, calibration="paper"):
        assert row["formula"] == pytest.approx(promised)
    for row in _rows(outcome, protocol="balcer-cheu", users=users, calibration="tight"):
        assert row["messages_per_user"] > 0.99 * row["domain_size"]
    for name in ("cheu", "discrete-laplace", "unary"):
        rows = _rows(outcome, protocol=name, users=users, calibration="tight")
        assert rows[0]["formula"] < rows[1]["formula"] < rows[2]["formula"]
        distribution = empty_errors(calibrated(name, MANY, 10, "tight"))
        assert distribution is not None
        assert distribution.quantile(10, 0.95) < distribution.quantile(10**4, 0.95) < distribution.quantile(10**8, 0.95)


def test_a_shuffler_takes_the_users_out_of_the_error() -> None:
    for name, low, high in (("unary", 9.9, 10.1), ("cheu", 0.95, 1.05), ("discrete-laplace", 0.999, 1.001)):
        few, many = (empty_errors(calibrated(name, users, 10, "tight")) for users in (10_000, MANY))
        assert few is not None
        assert many is not None
        assert low < many.quantile(10**6, 0.95) / few.quantile(10**6, 0.95) < high


def test_known_numbers() -> None:
    assert ROWS["balcer-cheu"].formula(calibrated("balcer-cheu", MANY, 10, "paper"), MANY, 10) == pytest.approx(
        4488.05, abs=0.01
    )
    # n / (n - lambda) sqrt(2 lambda ln(2 d / beta)) with lambda = 64 ln(4 / delta) / epsilon^2 for half of each
    coins = 64 * math.log(8 / DELTA) * 4
    exact = MANY / (MANY - coins) * math.sqrt(2 * coins * math.log(200 / BETA))
    assert ROWS["cheu"].formula(calibrated("cheu", MANY, 100, "paper"), MANY, 100) == pytest.approx(exact, rel=1e-6)
    c = (math.e + 1) / (math.e - 1)
    exact = c * math.sqrt(2 * MANY * math.log(200 / BETA))
    for name in ("bassily-smith", "unary"):
        assert ROWS[name].formula(calibrated(name, MANY, 100, "tight"), MANY, 100) == pytest.approx(exact, rel=1e-6)


def test_the_sketch_with_the_constants_of_its_paper() -> None:
    assert calibrated("count-min", 100_000, 10, "paper") is None
    rows, checks = table1._case(QUICK, ROWS["count-min"], MANY, 10, "paper")
    assert all(check.holds for check in checks)
    assert rows[0]["error"] > 500


def test_where_flat_wins() -> None:
    assert table1.crossover() == pytest.approx(27.7, abs=0.4)


def test_domains_beyond_any_list(outcome: Outcome) -> None:
    at = {row["protocol"]: row for row in _rows(outcome, "large", domain_size=1e40)}
    assert at["balcer-cheu"]["error"] < at["balcer-cheu without threshold"]["error"]
    assert at["balcer-cheu"]["error"] < at["cheu"]["error"] < at["discrete-laplace"]["error"]
    # the largest of d discrete Laplace numbers is near (2 / epsilon) ln d
    assert at["discrete-laplace"]["error"] == pytest.approx(2 * 40 * math.log(10), rel=0.1)


def test_the_data_are_hard_for_thresholds() -> None:
    held = held_counts(MANY)
    assert sum(held) == MANY
    assert len(held) == 10
    for place, calibration in ((6, "paper"), (7, "tight")):
        noise = Binomial(MANY, calibrated("balcer-cheu", MANY, 10, calibration).absence)
        assert float(noise.upper_tail(held[place])) >= 0.2 > float(noise.upper_tail(held[place] + 1))


def test_the_distribution_of_one_error_is_that_of_all_outcomes() -> None:
    noise = Binomial(20, Dyadic(1, 2))
    distribution = EmptyErrors.of_binomial(noise, slope=0.5)
    for radius, tail in zip(distribution.radii, distribution.tails, strict=True):
        exact = sum(float(noise.pmf(k)) for k in range(21) if abs(k - noise.mean) / 0.5 >= radius - 1e-9)
        assert tail == pytest.approx(exact, rel=1e-9)
    once = [
        float(radius)
        for radius, beyond in zip(distribution.radii, [*distribution.tails[1:], 0.0], strict=True)
        if beyond <= 0.05
    ]
    assert distribution.quantile(1, 0.95) == once[0]


def test_the_largest_error_has_the_distribution_of_a_whole_round() -> None:
    users, size, rounds = 10_000, 300, 1000
    protocol = calibrated("cheu", users, size, "tight")
    counts = np.zeros(size, dtype=np.int64)
    counts[0] = users
    listed = [round_errors(protocol, counts, SYSTEM)[1:].max() for _ in range(rounds)]
    distribution = empty_errors(protocol)
    assert distribution is not None
    assert stats.ks_2samp(listed, distribution.largest(size - 1, rounds, SYSTEM)).pvalue > ALPHA
    assert stats.ks_2samp(listed, distribution.largest((size - 1) // 10, rounds, SYSTEM)).pvalue < ALPHA


def test_discrete_laplace_noise_by_its_tail() -> None:
    protocol = calibrated("discrete-laplace", MANY, 10, "tight")
    distribution = empty_errors(protocol)
    assert distribution is not None
    drawn = distribution.largest(1, 20_000, SYSTEM)
    assert abs(float(np.mean(drawn**2)) - 7.835) < 6 * float(np.std(drawn**2)) / math.sqrt(len(drawn))
    assert [distribution.quantile(10**exponent, 0.95) for exponent in (2, 4, 6)] == [15, 24, 34]
    assert distribution.largest(0, 3, SYSTEM).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["cheu", "balcer-cheu", "stability", "discrete-laplace"])
def test_a_protocol_that_errs_too_much_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = (ROWS[name], 10_000, 300, "tight")
    assert all(check.holds for check in table1._case(QUICK, *case)[1])
    honest = table1.drawn_round

    def too_much(*given: Any) -> tuple[Any, Any]:
        tally, errors = honest(*given)
        return tally, 10 * errors + 100

    monkeypatch.setattr(table1, "drawn_round", too_much)
    checks = table1._case(QUICK, *case)[1]
    assert not all(check.holds for check in checks)
    if name == "balcer-cheu":
        assert not any(check.holds for check in checks if "Theorem 12: " in check.claim and "noise" not in check.claim)


def test_too_many_messages_are_found(outcome: Outcome) -> None:
    rows = _rows(outcome, protocol="balcer-cheu")
    assert all(check.holds for check in table1._message_checks(rows))
    assert not any(check.holds for check in table1._message_checks([row | {"messages_per_user": 1e9} for row in rows]))
