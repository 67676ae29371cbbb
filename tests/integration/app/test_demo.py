"""The demo as a user runs it, with few messages: every view exact whenever anything changed."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.signals import Stop
from streams.demo.report import DemoOptions
from streams.demo.run import ALL_VIEWS, run
from streams.demo.views import VIEWS
from streams.kafka.embedded import EmbeddedBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TIMES = 60


@pytest.mark.long
def test_every_view_of_the_demo_is_exact(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of every change, `.ci/run` has the demo with ten times the messages."""
    choices = DemoOptions(
        directory=tmp_path / "first",
        brokers=broker.bootstrap,
        events=6_000,
        speed=7_200.0,
        times=TIMES,
        page=False,
        postgres=True,
    )
    report = run(choices, Console(quiet=True), Stop())
    assert report.problems == ()
    assert report.is_exact
    assert report.events == 6_000
    names = {view.name for view in ALL_VIEWS}
    checked = [verdict for verdict in report.verdicts if verdict.view in names]
    assert {verdict.view for verdict in checked} == names
    assert len(checked) == TIMES * len(ALL_VIEWS)
    assert report.kept is not None
    assert len(report.verdicts) - len(checked) == report.kept.commits + len(VIEWS)
    assert report.kept.commits > 2
    hours = [
        verdict.rows for verdict in report.verdicts if verdict.view == "departures_by_hour"
    ]
    assert max(hours) > 5


def test_it_is_not_begun_beside_its_remains(broker: EmbeddedBroker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if "airlines" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("airlines", 1, 1)])["airlines"].result()
    arguments = ["demo", "--headless", "--brokers", broker.bootstrap]
    ended = CliRunner().invoke(app, [*arguments, "--directory", str(tmp_path / "again")])
    assert ended.exit_code == 2
    assert "topic airlines already" in ended.output
    assert "delete topics airlines" in ended.output
    assert not (tmp_path / "again" / "environment.json").exists(), "nothing was started"
