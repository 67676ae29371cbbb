"""`slackwater shard` as a user calls it, over a broker in memory."""

import itertools
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from streams.app import signals
from streams.app.common_options import Where
from streams.app.shard import command
from streams.app.shard.attach import AttachedNamespace
from streams.app.signals import Stop
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, rows
from tests.support.shard_looks import look

SECRET = "hunter2"


@pytest.fixture
def kafka() -> MemoryBroker:
    return broker()


@pytest.fixture
def one(kafka: MemoryBroker) -> Iterator[Shards]:
    with client(kafka) as opened:
        opened.create("u1", U1, DESCRIPTION, Timestamp(0), read="u1.object")  # type: ignore[arg-type]  # a name
        append(opened, 0, 4, rows("a", "b", time=2))
        yield opened


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch, kafka: MemoryBroker) -> list[object]:
    seen: list[object] = []

    @contextmanager
    def attached(settings: ClientSettings, namespace: str) -> Iterator[AttachedNamespace]:
        seen.extend((settings, namespace))
        if settings.bootstrap == "nobody:1":
            raise Determinate("list topics: no broker answers")
        with look(kafka) as at:
            yield at

    monkeypatch.setattr(command, "attached", attached)
    return seen


def run(*arguments: str, brokers: str = "a:1") -> tuple[int, str, str]:
    done = CliRunner().invoke(command.app, [*arguments, "--brokers", brokers])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def told(*arguments: str) -> list[dict[str, Any]]:
    code, out, _ = run(*arguments, "--json")
    assert code == 0, out
    return [json.loads(line) for line in out.splitlines()]


def test_a_list_for_people_and_for_programs(one, reached) -> None:
    code, out, _ = run("list")
    assert code == 0
    assert [word for word in ("u1", "view", "open", "{0}") if word in out] == [
        "u1",
        "view",
        "open",
    ]
    (shard,) = told("list")
    assert shard == {
        "type": "shard",
        "id": "u1",
        "group": "u1",
        "kind": "view",
        "columns": [
            {"name": "name", "type": "VARCHAR"},
            {"name": "size", "type": "INTEGER"},
        ],
        "keys": [],
        "status": "open",
        "since": 0,
        "upper": 4,
        "batches": 1,
        "compacted_batches": 0,
        "chunks": 1,
        "rows": 2,
        "bytes": one.state(U1).batches.ordered()[0].chunks[0].size,
        "capabilities": 2,
    }


def test_a_group_that_cannot_be_read_is_told_beside_the_others(one, kafka, reached) -> None:
    one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
    kafka.logs.append([(Topic("sw.u2.log"), b"what?")])
    code, out, _ = run("list", "--json")
    first, second = map(json.loads, out.splitlines())
    assert code == 1
    assert first["id"] == "u1"
    assert second["error"]["message"] == "group u2 cannot be read"
    code, out, err = run("list")
    assert code == 1
    assert "u1" in out
    assert "sw.u2.log/0@1" in err


def test_what_is_wrong_with_a_group_is_told_by_place(one, kafka, reached) -> None:
    kafka.logs.append([(Topic("sw.u1.log"), b"what?")])
    code, _, err = run("show", "u1")
    assert code == 1
    assert "sw.u1.log/0@2" in err


def test_show_draws_the_batches(one, reached) -> None:
    code, out, _ = run("show", "u1")
    assert code == 0
    assert "█" in out
    assert "name VARCHAR, size INTEGER" in out
    assert "sw.u1.log, sw.u1.data" in out
    (shard,) = told("show", "u1")
    assert (shard["id"], shard["data_topic"]) == ("u1", "sw.u1.data")


def test_an_empty_shard_has_no_picture(kafka, reached) -> None:
    with client(kafka) as opened:
        opened.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert "no batches yet" in run("show", "u1")[1]


def test_capabilities_say_what_each_holds_back(one, reached) -> None:
    code, out, _ = run("capabilities", "u1")
    assert code == 0
    assert "critical: never expires" in out
    reader, writer = told("capabilities", "u1")
    assert (reader["id"], reader["right"], reader["held_back"]) == ("u1.object", "read", None)
    assert (writer["id"], writer["right"], writer["frontier"]) == ("u1.write", "write", 4)


def test_stats_have_garbage_and_orphans(one, reached) -> None:
    one.write(U1, rows("lost", time=4))
    (document,) = told("stats", "u1")
    assert document["type"] == "stats"
    assert (document["space"]["orphan"], document["space"]["garbage_share"]) == (None, 0.0)
    (document,) = told("stats", "u1", "--scan")
    assert document["space"]["orphan"]["chunks"] == 1
    assert 0 < document["space"]["garbage_share"] < 1
    assert len(document["capabilities"]) == 2
    code, out, _ = run("stats", "u1", "--scan")
    assert code == 0
    assert "2 rows in 1 chunk," in out
    assert "not linked, or not yet" in out
    assert "--scan" in run("stats", "u1")[1]


def test_a_read_is_told_as_sql_tells_it(one, reached) -> None:
    columns, fetched, done = told("read", "u1", "--as-of", "3")
    assert columns["type"] == "columns"
    assert fetched == {"type": "rows", "rows": [[1, "a", 0, None], [1, "b", 1, None]]}
    assert done == {"type": "complete", "tag": "READ 2", "facts": {"as_of": 3}}
    code, out, _ = run("read", "u1")
    assert code == 0
    assert "slackwater_diff" in out


def test_a_tail_ends_where_it_is_told_to(one, reached) -> None:
    told_ = told("tail", "u1", "--as-of", "0", "--until", "4", "--no-snapshot")
    assert [line["type"] for line in told_] == ["columns", "rows", "progress", "complete"]
    assert told_[1]["rows"] == [[2, 1, "a", 0, None], [2, 1, "b", 1, None]]


def interrupted(monkeypatch, number: int, after: int, *arguments: str) -> int:
    """The exit code of a command that gets a signal at a line of ours, the first is 0."""
    monkeypatch.setattr(signals, "stopping", Stop())
    lines = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if "/streams/" not in frame.f_code.co_filename:
            return None
        if event == "line" and next(lines) == after:
            signal.raise_signal(number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run(*arguments)[0]
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("after", [40, 150, 400, 700, 1000, 1300, 1700, 2200, 3000])
def test_ctrl_c_ends_a_tail_at_any_moment_and_is_no_failure(
    one, reached, monkeypatch, after
) -> None:
    assert interrupted(monkeypatch, signal.SIGINT, after, "tail", "u1") == 0


@pytest.mark.parametrize(
    ("number", "command_"), [(signal.SIGTERM, "tail"), (signal.SIGINT, "read")]
)
def test_what_is_ended_before_it_is_done_says_so(
    one, reached, monkeypatch, number, command_
) -> None:
    assert interrupted(monkeypatch, number, 400, command_, "u1") == 128 + number


@pytest.mark.parametrize(
    "arguments",
    [("show", "u7"), ("read", "u7"), ("tail", "u7"), ("capabilities", "u7"), ("stats", "u7")],
)
def test_an_unknown_id_fails_and_says_what_to_do(one, reached, arguments) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "no shard 'u7'" in err
    assert "slackwater shard list" in err
    code, out, _ = run(*arguments, "--json")
    error = json.loads(out)["error"]
    assert code == 1
    assert error["detail"] == "namespace sw has 1 shards"


@pytest.mark.parametrize("option", ["--as-of", "--until"])
def test_a_time_that_is_none_is_wrong_usage(one, reached, option) -> None:
    code, _, err = run("tail", "u1", option, "tomorrow")
    assert code == 2
    assert "expected" in err
    assert "tomorrow" in err


def test_brokers_that_do_not_answer_are_no_environment(reached) -> None:
    code, _, err = run("list", brokers="nobody:1")
    assert code == 3
    assert "no broker answers" in err


def test_a_directory_without_an_environment(reached, tmp_path: Path) -> None:
    code, out, _ = run("list", "--json", "--directory", str(tmp_path), brokers="")
    assert code == 3
    assert "slackwater up --directory" in json.loads(out)["error"]["message"]


def test_an_environment_names_brokers_settings_and_namespace(one, reached, tmp_path) -> None:
    value = {"bootstrap": "b:2", "client": {"x": "1", "y": "2"}, "namespace": "n", "url": ""}
    (tmp_path / "environment.json").write_text(json.dumps(value))
    options = ("--directory", str(tmp_path), "--client", "y=3")
    assert run("list", *options, brokers="")[0] == 0
    assert reached == [ClientSettings("b:2", (("x", "1"), ("y", "3"))), "n"]
    run("list", "--namespace", "m")
    assert reached[2:] == [ClientSettings("a:1"), "m"]


def test_settings_that_carry_a_guarantee_are_wrong_usage(reached) -> None:
    code, _, err = run("list", "--client", "acks=0")
    assert code == 2
    assert "acks" in err


def test_no_answer_shows_a_secret(one, reached) -> None:
    secret = ("--client", f"sasl.password={SECRET}")
    for options in (("list",), ("show", "u7"), ("list", "--client", "acks=0")):
        for more in ((), ("--json",)):
            _, out, err = run(*options, *secret, *more)
            assert SECRET not in out + err
    _, out, err = run("list", *secret, brokers="nobody:1")
    assert SECRET not in out + err


def test_where_has_no_repr_that_shows_a_secret() -> None:
    where = Where(brokers="a:1", client=[f"sasl.password={SECRET}"])
    assert SECRET not in repr(where)


def test_every_command_has_an_example() -> None:
    group: Any = typer.main.get_command(command.app)
    assert set(group.commands) == {
        "list",
        "show",
        "read",
        "tail",
        "verify",
        "repair",
        "capabilities",
        "stats",
    }
    for name, options in group.commands.items():
        assert f"slackwater shard {name}" in options.help


def test_verify_says_what_is_wrong_and_repair_gets_past_it(
    kafka: MemoryBroker, one: Shards, reached: list[object]
) -> None:
    code, out, _ = run("verify")
    assert code == 0
    assert "u1: offsets 0 to 1 agree with its rollups" in out
    kafka.logs.append([(Topic("sw.u1.log"), b"noise")])
    code, out, _ = run("verify", "u1", "--chunks")
    assert code == 1
    assert "u1: 1 flaw\n" in out
    assert "offset 2:" in out
    assert "5 bytes: 6e 6f 69 73 65" in out
    assert "slackwater shard repair u1 --skip 2" in out
    code, _, err = run("repair", "u1", "--skip", "2")
    assert code == 1
    assert "pass --yes" in err
    code, out, _ = run("repair", "u1", "--skip", "2", "--yes", "--reason", "a console producer")
    assert code == 0
    assert "skipped offset 2" in out
    code, out, _ = run("verify", "--json")
    assert code == 0
    (document,) = [json.loads(line) for line in out.splitlines()]
    assert document == {"group": "u1", "from": 0, "to": 3, "skipped": [2], "flaws": []}


def test_repair_of_what_is_sound_or_not_there_is_refused(
    kafka: MemoryBroker, one: Shards, reached: list[object]
) -> None:
    code, _, err = run("repair", "u1", "--skip", "1", "--yes")
    assert code == 1
    assert "nothing is wrong" in err
    code, out, _ = run("verify", "gone")
    assert code == 1
    assert "group gone does not exist" in out
