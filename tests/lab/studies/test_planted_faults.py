"""Faults planted in the product make the studies fail: ``shuffledp reproduce STUDY --quick`` exits with 1.

Each pair of fault and study runs the whole quick study in this process. A few pairs run in the fast suite, all of them
in the slow one. Statistical checks miss a fault with a probability far below 1e-6 at the sizes of the quick form.
"""

from __future__ import annotations
import __future__

import functools
import gc
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.lab.problems import solver
from shuffledp.lab.studies import reproduce, token_checks
from shuffledp.lab.studies import study as study_module
from shuffledp.privacy import smoothness
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.count import balcer_cheu as count_protocol
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.histogram import balcer_cheu as histogram_protocol
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.parts.postprocessing import SurplusAnalysis

Patch = pytest.MonkeyPatch
BLANK = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'


def rewrite(patch: Patch, function: Callable[..., Any], old: str, new: str) -> None:
    """Replace a part of the source of a function, for everybody who has imported it already."""
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, f"{function.__qualname__} has no {old!r}; plant the fault where the code is now"
    code = compile(source.replace(old, new), "<planted>", "exec", flags=__future__.annotations.compiler_flag)
    defined: dict[str, Any] = {}
    exec(code, function.__globals__, defined)
    patch.setattr(function, "__code__", defined[function.__name__].__code__)


def half_noise_in_histogram_tallies(patch: Patch) -> None:
    rewrite(patch, BalcerCheuHistogram.sample_tally, "users - absent", "users - absent // 2")


def half_noise_in_count_tallies(patch: Patch) -> None:
    rewrite(
        patch,
        BalcerCheuCount.sample_tally,
        "int(binomial(users, self.absence, 1, source)[0])",
        "int(binomial(users, self.absence, 1, source)[0]) // 2",
    )


def half_the_constant_of_corollary_24(patch: Patch) -> None:
    rewrite(patch, smoothness.corollary_24_mean, "return 50 *", "return 25 *")


def a_hundredth_of_delta(patch: Patch) -> None:
    for curve in (BinomialCount, BinomialHistogram):
        honest = curve.delta_at
        patch.setattr(curve, "delta_at", lambda self, epsilon, honest=honest: honest(self, epsilon) / 100)


def no_noise_from_histogram_randomizers(patch: Patch) -> None:
    patch.setattr(histogram_protocol, "bernoulli", lambda _, size, __: np.zeros(size, dtype=np.bool_))
    patch.setattr(histogram_protocol, "bernoulli_indices", lambda *_: np.zeros(0, dtype=np.int64))


def threshold_that_includes_zero(patch: Patch) -> None:
    rewrite(patch, SurplusAnalysis.estimate, "np.where(surplus > 0,", "np.where(surplus >= 0,")


def shown_one_count_too_early(patch: Patch) -> None:
    rewrite(patch, BalcerCheuHistogram.chance_shown, "counts - 1", "counts")


# beyond the faults of the review


def no_noise_from_count_randomizers(patch: Patch) -> None:
    patch.setattr(count_protocol, "bernoulli", lambda _, size, __: np.zeros(size, dtype=np.bool_))


def twice_the_noise_in_histogram_tallies(patch: Patch) -> None:
    rewrite(patch, BalcerCheuHistogram.sample_tally, "users - absent", "users - 2 * absent")


def a_delta_that_is_not_a_number(patch: Patch) -> None:
    patch.setattr(Guarantee, "delta_at", lambda *_: float("nan"))


def messages_left_in_order(patch: Patch) -> None:
    patch.setattr(token_checks, "permute", lambda *_, **__: None)


def samples_that_are_not_independent(patch: Patch) -> None:
    """Every item of the support is held by an equal number of users; Definition 13 draws them independently."""

    def equal_counts(users: int, items: int, _: object) -> Any:
        counts = np.full(items, users // items, dtype=np.int64)
        counts[: users % items] += 1
        return counts

    patch.setattr(solver, "uniform_counts", equal_counts)


FAULTS: dict[Callable[[Patch], None], tuple[str, ...]] = {
    half_noise_in_histogram_tallies: ("theorem12", "table1", "table2"),
    half_noise_in_count_tallies: ("theorem11",),
    half_the_constant_of_corollary_24: ("theorem11", "theorem12", "table1", "table2", "calibration"),
    a_hundredth_of_delta: ("theorem11", "theorem12", "table1", "table2", "frontier"),
    no_noise_from_histogram_randomizers: ("theorem12", "table1", "frontier", "calibration"),
    threshold_that_includes_zero: ("theorem11", "theorem12", "table1"),
    shown_one_count_too_early: ("table2",),
    no_noise_from_count_randomizers: ("theorem11",),
    twice_the_noise_in_histogram_tallies: ("theorem12", "table1"),
    a_delta_that_is_not_a_number: ("theorem11", "theorem12"),
    messages_left_in_order: ("theorem11", "theorem12"),
    samples_that_are_not_independent: ("table2",),
}
"""Every fault with the studies that must notice it."""
FAST = {
    (threshold_that_includes_zero, "theorem11"),
    (messages_left_in_order, "theorem11"),
}
PAIRS = [
    pytest.param(
        fault,
        study,
        id=f"{fault.__name__}-{study}",
        marks=() if (fault, study) in FAST else pytest.mark.slow,
    )
    for fault, studies in FAULTS.items()
    for study in studies
]


@pytest.fixture
def fresh(monkeypatch: Patch) -> Iterator[Patch]:
    """Nothing that was computed without the fault is used with it, or the other way round; figures are not drawn."""
    monkeypatch.setattr(study_module, "panels", lambda *_, **__: BLANK)
    monkeypatch.setattr("shuffledp.lab.studies.frontier.draw_frontier", lambda *_, **__: BLANK)
    monkeypatch.setattr("shuffledp.lab.studies.calibration.study.pairs", lambda *_, **__: BLANK)
    monkeypatch.setattr(inspect.getmodule(reproduce), "picture_of", lambda _: b"")
    clear_caches()
    yield monkeypatch
    monkeypatch.undo()
    clear_caches()


def clear_caches() -> None:
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and str(cached.__module__).startswith("shuffledp"):
            cached.cache_clear()


@pytest.mark.parametrize(("fault", "study"), PAIRS)
def test_a_planted_fault_is_noticed(fault, study, fresh, tmp_path, capfd):
    fault(fresh)
    status = main._run(["reproduce", study, "--quick", "--json", "--out", str(tmp_path / "out")])
    failed = [check for check in json.loads(capfd.readouterr().out)["studies"][0]["checks"] if not check["holds"]]
    assert status == 1
    assert failed
