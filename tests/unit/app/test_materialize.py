"""`slackwater materialize`: files of tasks, names, what is shown."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from connectors import postgres, sqlite
from connectors.driver import Driver
from connectors.runtime.runner import BackfillProgress, Status
from connectors.transport.local import Local
from streams.adapter.catalog import Create
from streams.adapter.catalog_log import CatalogLog
from streams.app.commands import app
from streams.app.materialize import catalog_lookup, task_file
from streams.app.materialize.command import after_fill
from streams.app.materialize.status_output import as_json, shown
from streams.errors import InvalidUsage
from streams.ids import Timestamp, Topic
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage.client.shards import fresh_uuid
from tests.unit.adapter import items

TASK = """
task: shop
connector: postgres
config: {host: db, database: shop, user: u, password: %s}
bindings:
  - {collection: revenue, key: [country], resource: {table: revenue}}
  - {collection: u7, resource: {table: log, delta_updates: true}, verify: never}
limits: {every_ms: 500}
"""


def task(path: Path, text: str) -> Any:
    (path / "task.yaml").write_text(text)
    return task_file.read(path / "task.yaml")


def test_a_file_says_what_is_kept_where(tmp_path: Path) -> None:
    read = task(tmp_path, TASK % "env:PASSWORD")
    assert [binding.collection for binding in read.bindings] == ["revenue", "u7"]
    assert read.bindings[0].key == ["country"]
    assert (read.limits.every_ms, read.limits.rows) == (500, 200_000)


def test_options_of_the_command_go_before_the_backfill_of_the_file(tmp_path: Path) -> None:
    text = TASK % "env:PASSWORD"
    assert task(tmp_path, text).backfill is None
    spark = "backfill: {by: spark, master: 'spark://a:7077', ranges: 16}\n"
    stated = task(tmp_path, text + spark).backfill
    assert (stated.by, stated.master, stated.ranges) == ("spark", "spark://a:7077", 16)
    for in_file, expected in [(spark, ("local[2]", 16)), ("", ("local[2]", None))]:
        (tmp_path / "task.yaml").write_text(text + in_file)
        options = {"by": "spark", "master": "local[2]", "ranges": None}
        read = task_file.read(tmp_path / "task.yaml", options).backfill
        assert read is not None
        assert (read.master, read.ranges) == expected


def test_names_and_keys_come_from_the_catalog(tmp_path: Path) -> None:
    broker = MemoryBroker(lambda: 1000)
    read = task(tmp_path, TASK % "env:PASSWORD")
    assert catalog_lookup.named(read, broker.logs, broker.topics, "sw") == read, (
        "there is no catalog"
    )
    broker.topics.create([TopicSpec(Topic("sw.catalog"), 1, TopicKind.LOG)])
    catalog = CatalogLog(broker.logs, Topic("sw.catalog"), fresh_uuid)
    catalog.open()
    grouped = "SELECT id, sum(amount) AS amount FROM orders GROUP BY id"
    views = [
        dataclasses.replace(items.view(2, "revenue", "s1"), query=grouped),
        dataclasses.replace(items.view(3, "flat", "s1"), query="SELECT id, amount FROM orders"),
    ]
    bodies = [Create(item) for item in (items.source(1, "orders"), *views)]
    waiting = iter(bodies)
    for _ in bodies:
        catalog.change(lambda _: next(waiting))
    for declared, expected in [("key: [country], ", ["country"]), ("", ["id"])]:
        text = (TASK % "env:PASSWORD").replace("key: [country], ", declared).replace("u7", "u3")
        task_ = catalog_lookup.named(task(tmp_path, text), broker.logs, broker.topics, "sw")
        assert [binding.collection for binding in task_.bindings] == ["u2", "u3"]
        assert [binding.key for binding in task_.bindings] == [expected, ["id"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected task, connector, config and bindings, actual nothing"),
        ("task: [", "expected YAML"),
        ("task: 2001-99-99", "expected YAML"),
        ("task: " + "9" * 5_000, "expected YAML"),
        ("task: !!timestamp x", "expected YAML"),
        ("task: a b", "task: String should match pattern"),
        (TASK % "x" + "more: 1", "more: Extra inputs are not permitted"),
        ((TASK % "x").replace("verify: never", "verify: no"), "bindings.1.verify"),
        (
            (TASK % "x").replace("verify: never", "dead_letters: dead") + "shards: 4",
            "shards: expected 1 of a task with dead letters, actual 4",
        ),
        (
            (TASK % "x").replace("verify: never", "dead_letters: dead")
            + "backfill: {by: spark}",
            "backfill by spark: expected a task without dead letters, actual dead_letters dead",
        ),
        ((TASK % "x") + "backfill: {by: flink}", "backfill.by: Input should be 'spark'"),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidUsage, match=problem):
        task(tmp_path, text)


def test_no_file_holds_a_password(tmp_path: Path) -> None:
    driver = Driver(Local(postgres.connector({})))
    with pytest.raises(InvalidUsage, match="expected env:NAME or file:PATH"):
        task_file.with_secrets(task(tmp_path, TASK % "hunter2"), driver, {}, is_ours=True)
    read = task(tmp_path, TASK % "env:PASSWORD")
    ours = task_file.with_secrets(read, driver, {"PASSWORD": "hunter2"}, is_ours=True)
    assert ours.config["password"] == "env:PASSWORD", "it is kept in the endpoint as it is"
    theirs = task_file.with_secrets(read, driver, {"PASSWORD": "hunter2"}, is_ours=False)
    assert theirs.config["password"] == "hunter2"
    with pytest.raises(InvalidUsage, match="expected the environment variable PASSWORD"):
        task_file.with_secrets(read, driver, {}, is_ours=False)


def test_others_find_secrets_in_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open sesame\n")
    read = task(tmp_path, TASK % f"file:{tmp_path}/secret")
    theirs = task_file.with_secrets(read, Driver(Local(sqlite.CONNECTOR)), {}, is_ours=False)
    assert theirs.config["password"] == "open sesame"


RUNNING = Status(
    task="shop",
    state="running",
    time=Timestamp(1_790_000_000_000),
    upper=Timestamp(1_790_000_002_001),
    rows=12,
    commits=3,
    committed_ms=5,
    stalls={"revenue": "key (country = de) is not unique: 2 rows have it at 7"},
)


def said(*, is_json: bool) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=10_000)
    with shown(console, is_json=is_json) as screen:
        for rows in range(10, 13):
            screen.show(Status(**{**as_fields(RUNNING), "rows": rows}))
        screen.show(Status(**{**as_fields(RUNNING), "state": "done"}))
    return output.getvalue().splitlines()


def as_fields(status: Status) -> dict[str, Any]:
    return {name: getattr(status, name) for name in Status.__dataclass_fields__}


def test_people_are_told_what_has_changed() -> None:
    stall = "  revenue: key (country = de) is not unique: 2 rows have it at 7"
    assert said(is_json=False) == [
        "shop: running",
        stall,
        "shop: done, 12 rows, 3 commits, at 2026-09-21T14:13:20.000Z, 2.0 s behind",
        stall,
    ]


def on_terminal(*statuses: Status) -> str:
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=True, color_system=None)
    with shown(console, is_json=False) as screen:
        for status in statuses:
            screen.show(status)
    return output.getvalue()


def test_a_terminal_shows_how_far_the_first_contents_are() -> None:
    filling = dataclasses.replace(RUNNING, rows=0, backfill=BackfillProgress(1200, 4800))
    text = on_terminal(filling)
    assert "1,200 of 4,800 rows of first contents" in text
    drawn = {line.count("\u2501") for line in text.splitlines()} - {0}
    assert drawn == {10}, "a quarter of 40, each time it is drawn"
    assert "\u2501" not in on_terminal(RUNNING)
    assert "\u2501" not in "".join(said(is_json=False))


def test_programs_are_told_how_far_the_first_contents_are() -> None:
    filling = dataclasses.replace(RUNNING, backfill=BackfillProgress(12, 48))
    assert as_json(filling)["backfill"] == {"done": 12, "total": 48, "unit": "rows"}


def test_a_terminal_shows_how_many_ranges_a_job_has_committed() -> None:
    fill = BackfillProgress(2, 8, "key ranges")
    filling = dataclasses.replace(RUNNING, state="backfilling", rows=1200, backfill=fill)
    text = on_terminal(filling)
    assert "backfilling, 1,200 rows" in text
    assert "2 of 8 key ranges of first contents" in text
    assert {line.count("\u2501") for line in text.splitlines()} - {0} == {10}


def test_a_follow_goes_on_counting_where_its_backfill_was() -> None:
    before = dataclasses.replace(RUNNING, rows=100, commits=8, errors=1)
    status = after_fill(before, dataclasses.replace(RUNNING, rows=5, commits=2, errors=0))
    assert (status.rows, status.commits, status.errors) == (105, 10, 1)


def test_programs_get_an_object_a_line() -> None:
    first, last = [json.loads(line) for line in said(is_json=True)]
    assert (first["state"], first["rows"]) == ("running", 10)
    assert last == {
        "type": "status",
        "task": "shop",
        "state": "done",
        "message": "",
        "time": 1_790_000_000_000,
        "at_one_time": True,
        "behind_ms": 2000,
        "rows": 12,
        "commits": 3,
        "committed_ms": 5,
        "errors": 0,
        "backfill": None,
        "dead_letters": {},
        "left_out": {},
        "stalls": dict(RUNNING.stalls),
    }


def test_without_brokers_it_says_what_to_do(tmp_path: Path) -> None:
    task(tmp_path, TASK % "env:PASSWORD")
    words = ["materialize", "run", str(tmp_path / "task.yaml"), "--directory", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3
    assert "no environment in" in done.output
