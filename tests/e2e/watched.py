"""Prometheus with the files of the compose file, and what the dashboard would show of it.

Grafana draws what Prometheus answers to the queries of the dashboard: each of them is asked.
"""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.e2e.containers import SERVICES, Builder, Environment, image
from tests.integration.adapter.test_services import free_port
from tests.support.container_files import DOCKER

NAME, PORT = "prometheus", 9090
CONFIGURATION = "/etc/prometheus"
DASHBOARD = json.loads((DOCKER / "grafana" / "dashboards" / "slackwater.json").read_text())
QUIET = frozenset(
    {
        "slackwater_object_hydration_read / slackwater_object_hydration_expected",
        "rate(slackwater_source_late_rows_total[5m])",
        "rate(slackwater_source_skipped_messages_total[5m])",
        "increase(slackwater_materialization_dead_letters_total[15m])",
    }
)
"""Queries that have an answer only while or once something happens: all has hydrated here, no
source is by event time or skips, and no document is refused."""


def start(builder: Builder) -> None:
    """It scrapes the services by their names."""
    builder.part(
        NAME,
        image(NAME),
        {},
        [f"--config.file={CONFIGURATION}/prometheus.yaml", "--storage.tsdb.path=/prometheus"],
        {PORT: free_port()},
        {str(DOCKER / "prometheus"): CONFIGURATION},
    )


def ask(environment: Environment, path: str, **parameters: str) -> Any:
    """What Prometheus answers."""
    port = environment.parts[NAME].port
    query = urllib.parse.urlencode(parameters)
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{query}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)["data"]


def are_all_scraped(environment: Environment) -> bool:
    """Whether each service answered the last time."""
    samples = ask(environment, "query", query='up{job=~"slackwater-.*"}')["result"]
    up = {sample["metric"]["job"] for sample in samples if sample["value"][1] == "1"}
    return up == {f"slackwater-{name}" for name in SERVICES}


def queries() -> Mapping[str, str]:
    """Those of the dashboard, with the titles of their panels."""
    return {
        target["expr"]: panel["title"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


def without_data(environment: Environment) -> dict[str, str]:
    """The queries of the dashboard that have no answer and should."""
    return {
        query: title
        for query, title in queries().items()
        if query not in QUIET and not ask(environment, "query", query=query)["result"]
    }


def has_data(environment: Environment) -> bool:
    """Whether each query of the dashboard that should has an answer."""
    return not without_data(environment)


def tested_alerts(environment: Environment) -> tuple[int, str]:
    """What Prometheus's own tool says of the tests of the alerts."""
    tests = f"{CONFIGURATION}/alerts_test.yaml"
    return environment.parts[NAME].run("promtool", "test", "rules", tests)


def rules(environment: Environment) -> Mapping[str, Mapping[str, Any]]:
    """The alerts as Prometheus has evaluated them, by name."""
    groups = ask(environment, "rules")["groups"]
    return {rule["name"]: rule for group in groups for rule in group["rules"]}
