"""The example alert rules and boards of deploy/monitoring: valid, of one party each, and about metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MONITORING = ROOT / "deploy" / "monitoring"
COLLECTION = ROOT / "src" / "shuffledp" / "collection"
ROLES = ("shuffler", "analyzer")
LABELS = {"status", "problem", "state", "task", "outcome", "result", "le", "job"}
FUNCTIONS = {"increase", "rate", "sum", "delta", "histogram_quantile", "by", "up"}


def real_metrics(role):
    """The series of a server, by the suffixes of Prometheus, from the code."""
    source = "\n".join(path.read_text() for name in (role, "server") for path in (COLLECTION / name).rglob("*.py"))
    found = {f"shuffledp_{role}_refusals_total"}
    for kind, name in re.findall(r'metrics\.(counter|gauge|histogram)\(\s*"(\w+)"', source):
        suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[kind]
        found |= {f"shuffledp_{role}_{name}{suffix}" for suffix in suffixes}
    return found


def rules():
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    assert set(document) == {"groups"}
    return {group["name"]: group["rules"] for group in document["groups"]}


def board(role):
    return json.loads((MONITORING / f"grafana-{role}.json").read_text())


def unknown(expression, role):
    """Names in an expression that are no metric of this server, no label and no function."""
    words = set(re.findall(r"[a-z_]{2,}", re.sub(r'"[^"]*"|\[\w+\]', "", expression)))
    return words - real_metrics(role) - LABELS - FUNCTIONS


@pytest.mark.parametrize("role", ROLES)
def test_alerts_are_about_metrics_of_one_server(role):
    alerts = rules()[f"shuffledp-{role}"]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 5
    for rule in alerts:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "5m"))
        assert unknown(rule["expr"], role) == set(), rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


@pytest.mark.parametrize("role", ROLES)
def test_boards_are_about_metrics_of_one_server(role):
    panels = board(role)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            assert unknown(target["expr"], role) == set(), panel["title"]
    shown = {
        name for panel in panels for target in panel["targets"] for name in real_metrics(role) if name in target["expr"]
    }
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in real_metrics(role)}
    live_counts = {"shuffledp_shuffler_round_reports"}  # reports of single rounds tell whose came just now
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == bases - live_counts


def test_every_documented_alarm_has_a_rule():
    page = (ROOT / "docs" / "collection" / "operations.md").read_text()
    section = page.partition("Worth an alarm:")[2].partition("\n## ")[0]
    expressions = " ".join(rule["expr"] for alerts in rules().values() for rule in alerts)
    for name in set(re.findall(r"shuffledp_\w+", section)):
        assert name in expressions, name


def test_a_misspelt_metric_would_be_noticed():
    assert unknown("shuffledp_shuffler_refused_batch > 0", "shuffler") == {"shuffledp_shuffler_refused_batch"}
    assert unknown("shuffledp_shuffler_refused_batches > 0", "analyzer") == {"shuffledp_shuffler_refused_batches"}
    assert unknown("shuffledp_shuffler_refused_batches > 0", "shuffler") == set()
