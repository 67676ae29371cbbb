"""Alerts and the dashboard agree with the page of metrics; alerts with their paragraphs."""

import json
import re

import pytest
import yaml

from tests.unit.app.test_metrics_pages import DOCS, ROOT, page

ALERTS = ROOT / "docker" / "prometheus" / "alerts.yaml"
ALERTS_TEST = ALERTS.with_name("alerts_test.yaml")
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "slackwater.json"


def rules() -> list[dict[str, object]]:
    document = yaml.safe_load(ALERTS.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


NAMES = re.compile(r"\b(?:slackwater|process)_\w+")
LABELS = re.compile(r"(\w+)\s*=~?\s*\"")


def unknown(query: str) -> set[str]:
    """The metrics of a query that the page lacks, and labels that none of them has."""
    entries = page()
    names = set(NAMES.findall(query))
    own_labels = {label for name in names & entries.keys() for label in entries[name].labels}
    labels = set(LABELS.findall(query)) | {
        label
        for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for label in re.findall(r"\w+", listed)
    }
    return (names - entries.keys()) | (labels - own_labels - {"job", "instance"})


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_of_metrics_that_there_are_and_has_a_paragraph(
    rule: dict[str, object],
) -> None:
    name, query = str(rule["alert"]), str(rule["expr"])
    assert unknown(query) == set()
    assert NAMES.search(query) or query.startswith("up{")
    labels, annotations = rule["labels"], rule["annotations"]
    assert isinstance(labels, dict)
    assert isinstance(annotations, dict)
    assert labels["severity"] in {"page", "ticket"}
    assert annotations["runbook"] == f"streams/docs/OPERATIONS.md#{name.lower()}"
    shown_ = set(re.findall(r"\$labels\.(\w+)", str(annotations["summary"])))
    own_labels = {label for metric in NAMES.findall(query) for label in page()[metric].labels}
    assert shown_ <= own_labels | {"job", "instance"}


def test_alerts_and_paragraphs_are_the_same() -> None:
    text = (DOCS / "OPERATIONS.md").read_text()
    paragraphs = re.findall(r"^### (Slackwater\w+)\n(?=\S.{60})", text, re.MULTILINE)
    alerts = [str(rule["alert"]) for rule in rules()]
    assert alerts == paragraphs
    assert len(set(alerts)) == len(alerts)


def test_each_alert_is_tested_as_silent_and_as_firing() -> None:
    """The end-to-end tests have Prometheus run this file (`promtool test rules`)."""
    tests = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    expected = [(check["alertname"], bool(check["exp_alerts"])) for check in checks]
    alerts = [str(rule["alert"]) for rule in rules()]
    assert expected == [(alert, fires) for alert in alerts for fires in (False, True)]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) > 20
    assert {query: unknown(query) for query in queries if unknown(query)} == {}
    assert all(NAMES.search(query) for query in queries)
    legends = [
        (target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])))
        for panel in panels
        for target in panel["targets"]
    ]
    for query, shown_ in legends:
        own_labels = {label for name in NAMES.findall(query) for label in page()[name].labels}
        assert shown_ <= own_labels | {"job", "instance"}, query
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "query",
    [
        "slackwater_gone == 0",
        'slackwater_object_status{state="failed"}',
        "sum by (name) (slackwater_replicas)",
    ],
)
def test_what_is_not_there_is_found(query: str) -> None:
    assert unknown(query)
