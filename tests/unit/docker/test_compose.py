"""The compose file agrees with the services' commands, and with the files that it mounts."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from streams.http.listening import Listening, address
from tests.support.container_files import COMMANDS, DOCKER, compose
from tests.unit.test_docs import check_line, resolve

SERVICES: Mapping[str, Any] = compose()["services"]
SECRETS = "/run/slackwater/"
MADE = (DOCKER / "secrets.sh").read_text()


def variables_of(line: str) -> set[str]:
    """The environment variables that a command reads."""
    command, _ = resolve(line)
    named = (param.envvar for param in command.params)
    return {name for name in named if isinstance(name, str)}


def command_of(name: str) -> str:
    return shlex.join(["slackwater", *SERVICES[name]["command"]])


def mounts(service: Mapping[str, Any]) -> dict[str, str]:
    """What is mounted, by where."""
    return {
        target: source
        for source, target, *_ in (volume.split(":") for volume in service.get("volumes", []))
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_service_is_a_command_with_its_options_and_variables(name: str) -> None:
    line, environment = command_of(name), SERVICES[name]["environment"]
    check_line(line)
    assert line.split()[1] == name
    taken = variables_of(line) | variables_of("slackwater sql")
    assert {variable for variable in environment if variable.startswith("SLACKWATER_")} <= taken
    assert environment.keys() >= {"SLACKWATER_BROKERS", "SLACKWATER_NAMESPACE"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_service_listens_with_what_it_demands(name: str) -> None:
    environment = SERVICES[name]["environment"]
    host, port = address(environment["SLACKWATER_LISTEN"])
    listening = Listening(
        host=host,
        port=port,
        certificate=environment["SLACKWATER_TLS_CERTIFICATE"],
        key=environment["SLACKWATER_TLS_KEY"],
        password="p" * 12 if "SLACKWATER_PASSWORD_FILE" in environment else "",
    )
    assert listening.is_closed
    assert f"DNS:{name}" in MADE or name in re.findall(r"for service in (.*); do", MADE)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_service_may_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "user" not in service, "that of the image, which is not root"
    assert service["init"], "children without a parent are ended"


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_refers_to_is_there(name: str) -> None:
    service = SERVICES[name]
    assert ":" in service["image"], "a version"
    for source in mounts(service).values():
        there = (DOCKER / source).exists() if "/" in source else source in compose()["volumes"]
        assert there, source
    for other in service.get("depends_on", []):
        assert other in SERVICES
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "this machine alone reaches it"


def test_every_volume_is_used() -> None:
    used = {source for service in SERVICES.values() for source in mounts(service).values()}
    assert compose()["volumes"].keys() <= used


def test_whoever_is_waited_for_says_when_it_is_healthy_or_ends() -> None:
    for service in SERVICES.values():
        needed = service.get("depends_on", {})
        for other, how in needed.items() if isinstance(needed, dict) else ():
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"]
            else:
                assert "restart" not in SERVICES[other]


def test_every_secret_is_made() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    text += (DOCKER / "prometheus" / "prometheus.yaml").read_text()
    named = set(re.findall(rf"{SECRETS}([\w.]+)", text))
    secrets = re.findall(r"^chmod 440 (.+)$", MADE, re.MULTILINE)[0].split()
    assert named == set(secrets)


def test_the_image_is_built_as_the_dockerfile_wants_it() -> None:
    build = SERVICES["secrets"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).is_file()
    dockerfile = (DOCKER / "Dockerfile").read_text()
    for name, value in build["args"].items():
        assert f"ARG {name}={value}\n" in dockerfile


def test_prometheus_scrapes_every_service() -> None:
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yaml").read_text())
    for rules in config["rule_files"]:
        assert (DOCKER / "prometheus" / rules).is_file()
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs.keys() == {f"slackwater-{name}" for name in COMMANDS}
    for name in COMMANDS:
        job = jobs[f"slackwater-{name}"]
        _, port = address(SERVICES[name]["environment"]["SLACKWATER_LISTEN"])
        assert job["static_configs"] == [{"targets": [f"{name}:{port}"]}]
        assert job["scheme"] == "https"
        assert job["authorization"]["credentials_file"] == f"{SECRETS}password"
    assert "--config.file=/etc/prometheus/prometheus.yaml" in SERVICES["prometheus"]["command"]
    assert mounts(SERVICES["prometheus"])["/etc/prometheus"] == "./prometheus"


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    provisioning = DOCKER / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in SERVICES["prometheus"]["ports"]
    dashboards = yaml.safe_load((provisioning / "dashboards" / "slackwater.yaml").read_text())
    (provider,) = dashboards["providers"]
    grafana = SERVICES["grafana"]
    assert mounts(grafana)[provider["options"]["path"]] == "./grafana/dashboards"
    assert mounts(grafana)["/etc/grafana/provisioning"] == "./grafana/provisioning"
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/slackwater.json"
    assert (DOCKER / "grafana" / "dashboards" / "slackwater.json").is_file()
