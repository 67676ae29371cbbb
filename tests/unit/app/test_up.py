"""The options of `slackwater up`: what they mean, and what is said when they mean nothing."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from streams.adapter.workers.limits import Limits
from streams.app import environment, environment_access, up
from streams.app.client import Client
from streams.app.client_options import chosen_topics, client_settings
from streams.app.commands import app
from streams.app.coordinator import limits_of
from streams.app.environment import SERVICES, Environment, Settings
from streams.app.environment_access import reach
from streams.app.processes import Child
from streams.app.replica import config_of
from streams.app.replica_fleet import ReplicaPlace
from streams.app.restart_policy import SPARK_STABLE_S, STABLE_S, End
from streams.app.service_config import MASTER, Service, read_service
from streams.app.signals import Stop, Stopped
from streams.errors import Determinate, InvalidUsage
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from streams.trace.arrange import disk_reserve

SECRET = "hunter2"


class Unborn:
    """A service's process that is never started."""

    def __init__(self, *facts: object, **options: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


def test_the_last_of_a_name_counts_and_values_are_taken_as_they_are() -> None:
    assert client_settings(["a=1", "b==x =", "a=2"]) == {"a": "2", "b": "=x ="}


def test_settings_come_from_files_too(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# who we are\n\nsasl.username = me\nsasl.password={SECRET}\n")
    settings = client_settings([f"@{file}", "sasl.username=you"])
    assert settings == {"sasl.username": "you", "sasl.password": SECRET}


@pytest.mark.parametrize(
    "settings", [SECRET, f"={SECRET}", f" ={SECRET}", f"@/nowhere/{SECRET[:3]}"]
)
def test_what_is_no_setting_is_refused_and_not_shown(settings) -> None:
    with pytest.raises(typer.BadParameter, match="NAME=VALUE") as raised:
        client_settings([settings])
    assert SECRET not in str(raised.value)


def test_topics_are_chosen_by_pairs() -> None:
    assert chosen_topics(["data.partitions=8"]) == {"data.partitions": "8"}
    with pytest.raises(typer.BadParameter, match="a guarantee depends on it"):
        chosen_topics(["log.retention.ms=1"])


def test_a_choice_that_cannot_be_is_wrong_usage_before_anything_starts(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["up", "--directory", str(tmp_path / "e"), "--topic", "replication.factor=0"]
    )
    assert done.exit_code == 2
    assert "replication.factor" in done.stderr
    assert not (tmp_path / "e").exists()


def test_refused_client_settings_end_it_at_once_and_show_no_secret(tmp_path: Path) -> None:
    options = ["--brokers", "127.0.0.1:1", "--client", f"sasl.password={SECRET}"]
    done = CliRunner().invoke(
        app, ["up", "--directory", str(tmp_path), *options, "--client", f"debug={SECRET}"]
    )
    assert done.exit_code == 1
    assert "client settings are invalid" in done.stderr
    assert SECRET not in done.output + done.stderr


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    client = {"sasl.password": SECRET}
    for holder in (
        Settings(directory=tmp_path, client=client),
        Service(bootstrap="a:1", directory="", client=client),
    ):
        assert SECRET not in repr(holder)


def test_what_services_are_told_comes_back_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "service.json"
    file.write_text("before")
    file.chmod(0o644)
    service = Service(
        bootstrap="a:1",
        directory="d",
        client={"sasl.password": SECRET},
        topics={"data.partitions": "8"},
    )
    service.write(file)
    assert read_service(file) == service
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_budgets_and_the_deadline_reach_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Settings] = []
    monkeypatch.setattr(up, "_run", lambda settings, *_: runs.append(settings))
    options = ["--directory", str(tmp_path), "--brokers", "a:1", "--slice-bytes", "700"]
    options += ["--step-deadline", "5 minutes", "--index-memory", "900"]
    options += ["--resident-tasks", "2"]
    assert CliRunner().invoke(app, ["up", *options]).exit_code == 0
    first = Environment(runs[0])
    first._kafka = ClientSettings("a:1")
    monkeypatch.setattr(environment, "Child", Unborn)
    first._start_service("replica", 0)
    service = read_service(tmp_path / "replica.json")
    budgets = config_of(service).budgets
    assert (budgets.slice_bytes, budgets.index_bytes) == (700, 900)
    assert config_of(service).deadline_s == 300
    assert config_of(service).spark.resident_tasks == 2


def test_where_state_and_spark_are_reaches_every_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Settings] = []
    monkeypatch.setattr(up, "_run", lambda settings, *_: runs.append(settings))
    options = ["--directory", str(tmp_path), "--brokers", "a:1", "--master", "spark://s:7077"]
    options += ["--store", "s3://bucket/x", "--cache", "/cache", "--cache-bytes", "2000000"]
    options += ["--conf", "spark.executor.memory=4g", "--driver-memory", "2g"]
    assert CliRunner().invoke(app, ["up", *options]).exit_code == 0
    running = Environment(runs[0])
    running._kafka = ClientSettings("a:1")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    running._child("replica", "replica", running._service())
    child = running._replica(ReplicaPlace("c", 1))
    for name in ("replica", "replica-c-r1"):
        service = read_service(tmp_path / f"{name}.json")
        assert (service.master, service.driver_memory) == ("spark://s:7077", "2g")
        assert (service.store, service.cache) == ("s3://bucket/x", "/cache")
        assert service.cache_bytes == 2_000_000
        assert service.spark_settings == {"spark.executor.memory": "4g"}
    assert child.environment["PYSPARK_PYTHON"] == "/opt/python"
    here = running._replica(ReplicaPlace("c", 2, "local[1]"))
    assert here.environment["PYSPARK_PYTHON"] == sys.executable


def test_an_empty_master_is_this_machine(tmp_path: Path, monkeypatch) -> None:
    runs: list[Settings] = []
    monkeypatch.setattr(up, "_run", lambda settings, *_: runs.append(settings))
    options = ["--directory", str(tmp_path), "--brokers", "a:1", "--master", ""]
    assert CliRunner().invoke(app, ["up", *options]).exit_code == 0
    assert runs[0].master == MASTER


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--store", "/shared"], "expected a URI"),
        (["--cache", "/cache"], "--cache needs --store"),
        (["--store", "file:///shared", "--cache", "cache"], "expected an absolute path"),
        (["--conf", "executor.memory=4g"], "expected spark.NAME=VALUE"),
        (["--conf", "spark.master=local"], "--master says it"),
    ],
)
def test_options_of_spark_that_do_not_fit_are_wrong_usage(
    tmp_path: Path, options: list[str], why: str
) -> None:
    done = CliRunner().invoke(app, ["up", "--directory", str(tmp_path / "e"), *options])
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.replace("│", "").split())
    assert not (tmp_path / "e").exists()


def test_the_limits_of_statements_reach_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Settings] = []
    monkeypatch.setattr(up, "_run", lambda settings, *_: runs.append(settings))
    options = ["--directory", str(tmp_path), "--brokers", "a:1", "--statements", "7"]
    options += ["--statement-memory", str(1 << 30), "--statement-disk", str(1 << 24)]
    options += ["--statement-deadline", "5 minutes"]
    assert CliRunner().invoke(app, ["up", *options]).exit_code == 0
    first = Environment(runs[0])
    first._kafka = ClientSettings("a:1")
    monkeypatch.setattr(environment, "Child", Unborn)
    first._start_service("coordinator", 0)
    service = read_service(tmp_path / "coordinator.json")
    assert service.statements == 7
    assert limits_of(service) == Limits(1 << 30, 1 << 28, 1 << 24, 300)


def test_the_form_of_log_lines_reaches_every_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[Settings] = []

    def refused(settings: Settings, tell: Callable[[str], None]) -> None:
        runs.append(settings)
        tell("[green]ready[/]")
        raise Determinate("no broker\nanswers")

    monkeypatch.setattr(up, "_run", refused)
    options = ["--directory", str(tmp_path), "--brokers", "a:1", "--log-format", "json"]
    done = CliRunner().invoke(app, ["up", *options])
    assert done.exit_code == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("INFO", "ready"),
        ("ERROR", "no broker answers"),
    ]
    first = Environment(runs[0])
    first._kafka = ClientSettings("a:1")
    monkeypatch.setattr(environment, "Child", Unborn)
    for name in SERVICES:
        first._start_service(name, 0)
        assert read_service(tmp_path / f"{name}.json").log_format == "json"
    assert config_of(read_service(tmp_path / "replica.json")).spark.log_format == "json"


def test_statements_have_the_limits_of_a_worker_unless_told() -> None:
    assert limits_of(Service(bootstrap="a:1", directory="d")) == Limits()


@pytest.mark.parametrize(
    "option",
    [
        ("--slice-bytes", "0"),
        ("--index-memory", "-1"),
        ("--step-deadline", "900 ms"),
        ("--statements", "0"),
        ("--statement-memory", "1000"),
        ("--statement-disk", "1000"),
        ("--statement-deadline", "900 ms"),
    ],
)
def test_no_bytes_and_no_time_are_refused(option: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["up", *option])
    assert done.exit_code == 2


def test_an_environment_that_does_not_run_can_be_reached(tmp_path: Path) -> None:
    kafka = ClientSettings("a:1", (("sasl.password", SECRET),))
    file = tmp_path / "environment.json"
    file.write_text("{}")
    file.chmod(0o644)
    environment_access.write_file(tmp_path, kafka, "n", 7)
    assert reach(tmp_path) == (kafka, "n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["url"] == "http://127.0.0.1:7"


def test_a_directory_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: ClientSettings) -> ClientSettings:
        raise Determinate("no broker")

    monkeypatch.setattr(environment, "reachable", nobody)
    directory = tmp_path / "e"
    with pytest.raises(Determinate, match="no broker"):
        Environment(Settings(directory=directory, brokers="a:1")).start()
    assert directory.stat().st_mode & 0o777 == 0o700


def test_an_empty_directory_has_no_environment(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="slackwater up"):
        reach(tmp_path)


def test_an_environment_that_is_told_to_end_ends_where_it_looks_after_its_services(
    tmp_path: Path,
) -> None:
    stopping = Stop()
    running = Environment(Settings(directory=tmp_path), stopping=stopping)
    running.check()
    stopping.set()
    with pytest.raises(Stopped):
        running.sql("SELECT 1")
    with pytest.raises(Stopped):
        Environment(Settings(directory=tmp_path / "new"), stopping=stopping).start()
    assert not (tmp_path / "new").exists()


def test_a_full_disk_excuses_services_and_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(Settings(directory=tmp_path))
    plain = End(1, "no java", 1.0)
    for full in ("OSError: [Errno 28] No space left on device", "Disk quota exceeded"):
        assert str(tmp_path) in environment.lack_of_room(End(1, full, 1.0))
    assert environment.lack_of_room(plain) == ""
    monkeypatch.setattr(disk_reserve, "usage", lambda _: (1000, 1 << 30))
    assert "no room" in environment.lack_of_room(plain), "its log has no room for the reason"


def test_an_environment_ends_with_the_reason_of_a_service_that_was_given_up(
    tmp_path: Path,
) -> None:
    environment = Environment(Settings(directory=tmp_path))
    child = Child("replica", [], tmp_path / "log")
    environment.children["replica"] = child
    environment.check()
    child.reason = "replica ended with exit code 1: no java, 3 times in a row"
    requests: list[int] = []

    class Waiting:
        def wait(self, done: object, timeout_ms: int) -> bool:
            requests.append(timeout_ms)
            return False

    for ask in (
        environment.check,
        lambda: environment.sql("SELECT 1"),
        lambda: environment.wait(cast("Shards", Waiting()), lambda: False, 600),
    ):
        with pytest.raises(Determinate, match="no java, 3 times in a row"):
            ask()
    assert len(requests) == 1


def test_a_replica_that_waits_for_spark_in_vain_ends_soon_after_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks a master that does not answer for a minute, before it gives up."""
    monkeypatch.setattr(Child, "start", lambda _: None)
    environment = Environment(Settings(directory=tmp_path))
    environment._kafka = ClientSettings("kafka:9092")
    for name in SERVICES:
        environment._start_service(name, 1)
    stable = {name: child.stable_s for name, child in environment.children.items()}
    assert stable.pop("replica") == SPARK_STABLE_S
    assert set(stable.values()) == {STABLE_S}


def test_who_lost_the_command_topics_to_another_service_is_told_once(tmp_path: Path) -> None:
    """SQL goes on, so it used to be said in a log alone."""
    lines: list[str] = []
    environment = Environment(Settings(directory=tmp_path, namespace="shop"), say=lines.append)
    child = Child("storage", [], tmp_path / "log")
    environment.children["storage"] = child
    environment.check()
    assert lines == []
    child.is_over = True
    for _ in range(3):
        environment.check()
    assert lines == environment.notices
    (text,) = lines
    assert "another service answers the commands of namespace shop now" in text
    assert "end the other 'slackwater storage' and start this environment again" in text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "hunter2"}'])
def test_a_damaged_file_is_told_and_written_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "environment.json"
    file.write_text(text)
    with pytest.raises(InvalidUsage, match="'slackwater up' rewrites it") as raised:
        reach(tmp_path)
    assert SECRET not in str(raised.value)
    assert environment_access.port_of(tmp_path) > 0


class Starting(Environment):
    """An environment whose coordinator answers, and whose replica starts while it is asked."""

    def __init__(self, settings: Settings, say: Callable[[str], None], stopping: Stop) -> None:
        super().__init__(settings, say, stopping)
        self._kafka = ClientSettings("kafka:9092")
        self.asked: list[str] = []
        original_say = self._say

        def replicas() -> list[str]:
            self.asked.append("")
            if len(self.asked) == 1:
                raise Determinate("no coordinator answers")
            if len(self.asked) > 3:
                original_say("it serves")
                stopping.set()
                return ["r1"]
            return []

        self.client = cast("Client", SimpleNamespace(url="http://here", replicas=replicas))

    def _start(self) -> None:
        pass


def test_an_environment_is_ready_once_a_replica_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "Environment", Starting)
    monkeypatch.setattr(up, "class_archiving", nullcontext)
    told = list[str]()
    with pytest.raises(Stopped):
        up._run(Settings(directory=tmp_path), told.append)
    lines = [Text.from_markup(markup).plain for markup in told]
    order = [
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in ("SQL ", "statements are answered; the replica is", "it serves", "ready:")
    ]
    assert order == sorted(order)
