"""The options of services that run by themselves."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app import services
from streams.app.commands import app
from streams.app.service_config import RESIDENT_TASKS, Service
from streams.app.service_options import Exposure, Place

PASSWORD = "correct horse battery"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Service]]:
    calls: list[tuple[str, Service]] = []

    def note(module: str, service: Service, place: Place) -> None:
        assert not place.supervised
        calls.append((module, service))

    monkeypatch.setattr(services, "launch", note)
    return calls


def run(*arguments: str, **variables: str) -> tuple[int, str]:
    done = CliRunner(env=variables).invoke(app, list(arguments))
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_options_and_variables_say_the_same(launched: list[tuple[str, Service]]) -> None:
    by_option = run(
        "replica", "--brokers", "a:1", "--namespace", "shop", "--directory", "/d",
        "--name", "r2", "--cluster", "Reports", "--master", "spark://s:7077",
        "--client", "security.protocol=SSL",
        "--client", "linger.ms=7", "--listen", "127.0.0.1:8471", "--log-format", "json",
    )  # fmt: skip
    by_variable = run(
        "replica",
        SLACKWATER_BROKERS="a:1",
        SLACKWATER_NAMESPACE="shop",
        SLACKWATER_DIRECTORY="/d",
        SLACKWATER_REPLICA="r2",
        SLACKWATER_CLUSTER="Reports",
        SLACKWATER_MASTER="spark://s:7077",
        SLACKWATER_CLIENT="security.protocol=SSL linger.ms=7",
        SLACKWATER_LISTEN="127.0.0.1:8471",
        SLACKWATER_LOG_FORMAT="json",
    )
    assert by_option == by_variable == (0, "")
    assert launched[0] == launched[1]
    module, service = launched[0]
    assert module == "replica"
    assert (service.replica, service.master) == ("r2", "spark://s:7077")
    assert service.instance == "reports", "the name of a cluster is without case"
    assert service.client == {"security.protocol": "SSL", "linger.ms": "7"}
    assert (service.bootstrap, service.namespace, service.directory) == ("a:1", "shop", "/d")
    assert service.log_format == "json"


def test_state_may_be_in_a_store_and_spark_be_told_more(
    launched: list[tuple[str, Service]],
) -> None:
    by_option = run(
        "replica", "--brokers", "a:1", "--store", "s3://KEY:SECRET@b/x", "--cache", "/c",
        "--cache-bytes", "2000000", "--conf", "spark.executor.memory=4g",
    )  # fmt: skip
    by_variable = run(
        "replica", "--cache-bytes", "2000000", "--conf", "spark.executor.memory=4g",
        SLACKWATER_BROKERS="a:1",
        SLACKWATER_STORE="s3://KEY:SECRET@b/x",
        SLACKWATER_CACHE="/c",
    )  # fmt: skip
    assert by_option == by_variable == (0, "")
    assert launched[0] == launched[1]
    service = launched[0][1]
    assert (service.store, service.cache) == ("s3://KEY:SECRET@b/x", "/c")
    assert (service.cache_bytes, service.spark_settings) == (
        2_000_000,
        {"spark.executor.memory": "4g"},
    )
    assert "SECRET" not in repr(service)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--conf", "master=x"), "expected spark.NAME=VALUE"),
        (("--conf", "spark.sql.adaptive.enabled=true"), "cannot be set: a bucket of state"),
        (("--conf", "spark.x"), "expected NAME=VALUE"),
        (("--store", "/shared"), "expected a URI, as file:///shared, actual a path"),
        (("--cache", "/c"), "--cache needs --store"),
        (("--store", "file:///s", "--cache", "c"), "expected an absolute path"),
    ],
)
def test_options_of_a_cluster_are_checked(
    launched: list[tuple[str, Service]], options: tuple[str, ...], expected: str
) -> None:
    code, output = run("replica", "--brokers", "a:1", *options)
    assert code == 2
    assert expected in output
    assert not launched


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), RESIDENT_TASKS),
        (("--resident-tasks", "0"), 0),
        (("--resident-tasks", "3"), 3),
        (("--master", "spark://s:7077"), RESIDENT_TASKS),
    ],
)
def test_a_replica_has_a_resident_task_unless_others_are_asked_for(
    launched: list[tuple[str, Service]], options: tuple[str, ...], expected: int
) -> None:
    assert run("replica", "--brokers", "a:1", *options)[0] == 0
    assert launched[0][1].resident_tasks == expected


def test_a_coordinator_and_compaction_have_their_own(
    launched: list[tuple[str, Service]],
) -> None:
    brokers = ("--brokers", "a:1")
    options = ("--retain", "2 hours", "--buckets", "3", "--parameter", "heartbeat_ms=1000")
    assert run("coordinator", *brokers, *options)[0] == 0
    assert run("compaction", *brokers, "--every", "5 seconds")[0] == 0
    (_, coordinator), (_, compaction) = launched
    assert (coordinator.retain_ms, coordinator.buckets) == (7_200_000, 3)
    assert coordinator.parameters == {"heartbeat_ms": 1000}
    assert compaction.compact_every_s == 5


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("heartbeat_ms=5", "parameter heartbeat_ms: expected 1000 to 4000, actual 5"),
        ("heartbeat_ms=soon", "expected NAME=VALUE with a whole number"),
        ("later=5", "expected a parameter of frontiers_ms, heartbeat_ms"),
    ],
)
def test_parameters_of_replicas_are_checked_before_anything_starts(
    launched: list[tuple[str, Service]], parameter: str, said: str
) -> None:
    code, output = run("coordinator", "--brokers", "a:1", "--parameter", parameter)
    assert (code, launched) == (2, [])
    assert said in output


@pytest.mark.parametrize("command", ["coordinator", "replica", "compaction"])
def test_what_is_missing_or_open_is_refused_before_anything_starts(
    launched: list[tuple[str, Service]], command: str, tmp_path: Path
) -> None:
    short, empty = tmp_path / "short", tmp_path / "empty"
    short.write_text("hunter2")
    empty.write_text("\n")
    brokers = ("--brokers", "a:1")
    here = ("--listen", "127.0.0.1:1", "--password-file")
    for arguments, said in (
        ((), "expected --brokers HOST:PORT[,...] or SLACKWATER_BROKERS"),
        ((*brokers, "--listen", "0.0.0.0:1"), "TLS and a password or an authority of clients"),
        ((*brokers, "--listen", "here"), "expected HOST:PORT"),
        ((*brokers, "--log-format", "xml"), "'xml' is not one of 'text', 'json'"),
        ((*brokers, "--tls-key", "k.pem"), "expected --listen HOST:PORT with TLS"),
        ((*brokers, *here, str(short)), "at least 12 characters, actual 7"),
        ((*brokers, *here, str(empty)), "which is empty"),
        ((*brokers, *here, str(tmp_path / "none")), "cannot be read: FileNotFoundError"),
    ):
        code, output = run(command, *arguments)
        assert (code, launched) == (2, []), output
        assert said in output
        assert "hunter2" not in output


def test_an_exposure_becomes_a_part_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    exposure = Exposure(
        listen="0.0.0.0:8470",
        tls_certificate=tmp_path / "c.pem",
        tls_key=tmp_path / "k.pem",
        password_file=tmp_path / "password",
    )
    service = exposure.applied(Service(bootstrap="a:1", directory="d"))
    assert service.certificate == str(tmp_path / "c.pem")
    service.write(tmp_path / "service.json")
    assert PASSWORD not in (tmp_path / "service.json").read_text(), "its file is named alone"
    assert PASSWORD not in repr(service)


@pytest.mark.parametrize("name", ["coordinator", "replica"])
def test_where_copy_may_write_is_an_option(
    launched: list[tuple[str, Service]], name: str
) -> None:
    uris = ["file:///exports", "s3://KEY:SECRET@bucket/x"]
    options = [word for uri in uris for word in ("--copy-to", uri)]
    assert run(name, "--brokers", "a:1", *options) == (0, "")
    assert run(name, "--brokers", "a:1", SLACKWATER_COPY_TO=" ".join(uris)) == (0, "")
    assert run(name, "--brokers", "a:1") == (0, "")
    assert [service.copy_to for _, service in launched] == [uris, uris, []]
    assert "SECRET" not in repr(launched)
    code, said = run(name, "--brokers", "a:1", "--copy-to", "ftp://KEY:SECRET@bucket/x")
    assert code == 2
    assert "scheme ftp" in said
    assert "SECRET" not in said
