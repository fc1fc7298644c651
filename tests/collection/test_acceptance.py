"""What a deployment of wire version 2 must do, and the tests of each point with the faults that they find.

The names are looked up, so that no point loses its test unnoticed. ``faults`` are tests that a planted fault is seen;
where the same test has both, it is in both lists. Rates that only mean something on an idle machine are in
``benchmarks``; that of ingest is measured beside a run against itself in place of a fault.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Criterion:
    """One point, with its tests as ``file::name``, relative to tests/collection, or to the root for other folders."""

    says: str
    tests: tuple[str, ...]
    faults: tuple[str, ...]


CRITERIA = (
    Criterion(
        "1. the vectors of version 1 pass, and rounds of both versions run side by side",
        (
            "test_vectors.py::test_good_tasks",
            "test_vectors.py::test_good_batches",
            "shuffler/test_outer_rounds.py::test_both_versions_side_by_side",
        ),
        ("test_vectors_2.py::test_a_missing_check_of_tasks_is_seen",),
    ),
    Criterion(
        "2. a copy of the store links all reports of version 1 and none of version 2",
        ("system/test_outer_seal.py::test_a_copy_of_the_store_links_no_report",),
        ("system/test_outer_seal.py::test_a_copy_of_the_store_links_no_report",),
    ),
    Criterion(
        "3. ingest of version 2 is at least 0.85 of version 1, beside a null run",
        ("benchmarks/outer_seal.py::_ingest",),
        (),
    ),
    Criterion(
        "4. opening and mixing takes at most a fifth of the analyzer's opening",
        (
            "test_outer_seal.py::test_mixing_costs_a_fifth_of_the_opening_of_messages_at_most",
            "benchmarks/outer_seal.py::_mixing",
        ),
        ("test_outer_seal.py::test_mixing_costs_a_fifth_of_the_opening_of_messages_at_most",),
    ),
    Criterion(
        "5. kill schedules: nothing lost or released twice, no key left",
        (
            "system/test_outer_seal.py::test_nothing_is_lost_or_counted_twice_and_no_key_is_left",
            "system/test_chain.py::test_nothing_is_lost_or_counted_twice_and_no_key_is_left",
            "system/test_series_chain.py::test_a_series_with_a_chain",
        ),
        (
            "system/test_outer_seal.py::test_a_key_that_is_destroyed_before_the_round_is_shuffled_is_seen",
            "system/test_outer_seal.py::test_a_key_that_outlives_the_delivery_is_seen",
            "system/test_series_chain.py::test_keys_that_are_not_destroyed_are_seen",
        ),
    ),
    Criterion(
        "6. with a copy of the store and a destroyed key, nothing opens",
        (
            "system/test_outer_seal.py::test_no_copy_of_the_key_is_left",
            "test_key_life.py::test_nothing_of_a_destroyed_key_is_left",
        ),
        (
            "system/test_outer_seal.py::test_no_copy_of_the_key_is_left",
            "test_coalitions.py::test_a_thief_with_the_round_key_would_read_reports",
        ),
    ),
    Criterion(
        "7. a hop takes at most 1.3 times as long as the analyzer's opening, and counts bad messages exactly",
        (
            "benchmarks/hop.py::measure",
            "shuffler/test_mixtures.py::test_altered_messages_are_left_out_and_counted",
            "shuffler/test_mixtures.py::test_copies_are_left_out_before_anything_is_opened",
        ),
        (
            "shuffler/test_mixtures.py::test_copies_that_are_dropped_after_opening_are_seen",
            "shuffler/test_mixtures.py::test_a_layer_of_another_hop_does_not_open",
            "system/test_chain.py::test_a_shuffler_that_does_not_permute_is_seen",
        ),
    ),
    Criterion(
        "8. with half of the reports removed and 32 traps, none of 1,000 rounds passes; no alarm without cause",
        (
            "shuffler/test_traps.py::test_half_of_the_reports_removed_is_always_seen",
            "system/test_traps.py::test_without_dropped_reports_there_is_no_alarm",
        ),
        (
            "shuffler/test_traps.py::test_half_of_the_reports_removed_is_always_seen",
            "system/test_traps.py::test_dropped_reports_destroy_the_round",
        ),
    ),
    Criterion(
        "9. totals of a device are 1 to 1.02 times those of the ledger; 52 rounds take less time than 100 seals",
        (
            "device/test_budget.py::test_a_year_of_rounds_is_composed_as_the_ledger_does_and_quickly",
            "device/test_budget.py::test_the_record_agrees_with_the_accountant",
        ),
        (
            "device/test_budget.py::test_a_year_of_rounds_is_composed_as_the_ledger_does_and_quickly",
            "device/test_budget.py::test_what_was_sent_was_charged",
        ),
    ),
    Criterion(
        "10. a series that is killed and restored has spent the same epsilon; cancelled rounds are refused",
        (
            "analyzer/test_series_ledger.py::test_a_restart_forgets_nothing",
            "analyzer/test_series_ledger.py::test_ledger_and_batches_lost_but_the_releases",
            "system/test_series_year.py::test_some_rounds",
        ),
        (
            "analyzer/test_series_ledger.py::test_faults_of_the_composition_are_seen",
            "analyzer/test_series_ledger.py::test_the_cancellation_survives_the_loss_of_its_copies",
        ),
    ),
    Criterion(
        "11. a token that is moved to another report is refused; Oblivious HTTP is that of the standard",
        (
            "shuffler/test_intake.py::test_a_bound_token_is_for_its_report_alone",
            "transport/test_oblivious.py::test_vectors_of_the_standard",
            "transport/test_oblivious.py::test_a_report_passes_relay_and_gateway",
        ),
        (
            "shuffler/test_intake.py::test_a_proof_that_is_not_compared_would_be_noticed",
            "transport/test_oblivious.py::test_a_relay_cannot_claim_that_a_report_was_delivered",
        ),
    ),
    Criterion(
        "12. processes killed in turn under load: what was acknowledged is opened",
        ("system/test_roles.py::test_what_is_acknowledged_is_opened",),
        ("system/test_roles.py::test_an_answer_before_it_is_durable_would_be_seen",),
    ),
)


@cache
def functions(file: Path) -> frozenset[str]:
    """The names of all functions of a file, also those in classes."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(names: tuple[str, ...]) -> list[str]:
    found = []
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / file if file.startswith("benchmarks/") else ROOT / "tests" / "collection" / file
        if not path.exists() or function not in functions(path):
            found.append(name)
    return found


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.says.partition(".")[0])
def test_every_point_has_its_tests(criterion):
    assert criterion.tests
    assert not missing((*criterion.tests, *criterion.faults))


def test_a_test_that_is_gone_is_seen():
    (name, *_) = CRITERIA[0].tests
    assert missing((f"{name}_gone", f"gone/{name}", name)) == [f"{name}_gone", f"gone/{name}"]
