"""The tables of what parties learn together: every row computed from real reports and keys, and planted faults."""

from pathlib import Path

import pytest

from shuffledp.collection.device import client
from tests.collection.coalitions import (
    PARTIES,
    REPORTS,
    TOOK_PART,
    VALUE,
    Deployment,
    coalitions,
    more_than_its_pairs,
    table,
)

PAGE = Path(__file__).parents[2] / "docs" / "collection" / "coalitions.md"


@pytest.fixture(scope="module")
def deployments(parties):
    return {
        "version 1": Deployment(parties, 1),
        "version 2": Deployment(parties, 2),
        "version 2, relay": Deployment(parties, 2, relay=True),
        "version 2, two shufflers": Deployment(parties, 2, shufflers=2),
    }


def test_the_page_has_every_party_pair_and_triple(deployments):
    text = PAGE.read_text(encoding="utf-8")
    triples = [triple for triple in coalitions(3) if more_than_its_pairs(deployments.values(), triple)]
    for rows in ([(party,) for party in PARTIES], coalitions(2), triples):
        assert table(deployments, rows) in text, table(deployments, rows)
    assert f"{len(coalitions(3)) - len(triples)} of {len(coalitions(3))} triples" in text


def test_without_layers_the_first_shuffler_and_the_analyzer_would_read_values(parties, monkeypatch):
    """The planted fault: a device that adds no layer for the second shuffler."""
    honest = Deployment(parties, 2, shufflers=2)
    assert honest.learns(("shuffler", "analyzer")) == TOOK_PART

    def without_layers(sealed, *_, **__):
        return [bytes(48) + message for message in sealed]  # of the right length

    monkeypatch.setattr(client, "add_layers", without_layers)
    faulty = Deployment(parties, 2, shufflers=2)
    monkeypatch.setattr(faulty, "_without_layer", lambda messages, *_: [message[48:] for message in messages])
    assert faulty.learns(("shuffler", "analyzer")) == VALUE


def test_a_thief_with_the_round_key_would_read_reports(parties):
    """The planted fault: a round key that is not destroyed."""
    deployment = Deployment(parties, 2)
    assert deployment.learns(("analyzer", "store thief")) != REPORTS
    deployment.known["store thief"].keys += deployment.known["shuffler"].keys
    assert deployment.learns(("analyzer", "store thief")) == REPORTS
