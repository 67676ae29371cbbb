"""The Kustomize base renders, and refers to nothing that is not there."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.container_files import COMMANDS, ROOT, kustomization, manifests, of_kind
from tests.unit.docker.test_compose import variables_of
from tests.unit.test_docs import check_line

WORKLOADS = of_kind("Deployment", "StatefulSet")
NAME = "app.kubernetes.io/name"
PAGE = (ROOT / "streams" / "docs" / "CONTAINERS.md").read_text()


def pod(name: str) -> Mapping[str, Any]:
    return dict(WORKLOADS[name]["spec"]["template"]["spec"])


def container(name: str) -> Mapping[str, Any]:
    (only,) = pod(name)["containers"]
    return dict(only)


def variables(name: str) -> dict[str, str]:
    """The environment of a container; of what its pod says the name of the field."""
    values: dict[str, str] = {}
    for source in container(name)["envFrom"]:
        values |= of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
    for variable in container(name).get("env", []):
        values[variable["name"]] = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return values


def places(name: str) -> set[str]:
    return {mount["mountPath"] for mount in container(name)["volumeMounts"]}


def is_mounted(name: str, path: str) -> bool:
    return any(path.startswith(f"{place}/") for place in places(name))


def test_the_services_are_there_once() -> None:
    assert set(WORKLOADS) == set(COMMANDS)
    kinds_and_names = [
        (manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests()
    ]
    assert len(set(kinds_and_names)) == len(kinds_and_names)
    assert not of_kind("Secret"), "secrets are referred to"


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_and_variables_are_the_commands(name: str) -> None:
    arguments = container(name)["args"]
    line = shlex.join(["slackwater", *arguments])
    check_line(line)
    assert arguments[0] == name
    anywhere = set[str]().union(
        *(
            variables_of(f"slackwater {shlex.join(container(command)['args'])}")
            for command in COMMANDS
        )
    )
    assert variables(name).keys() <= anywhere
    own = {variable["name"] for variable in container(name).get("env", [])}
    required = {"SLACKWATER_BROKERS", "SLACKWATER_NAMESPACE", "SLACKWATER_LISTEN"}
    assert own | required <= variables_of(line)


@pytest.mark.parametrize("name", COMMANDS)
def test_files_that_are_named_are_mounted(name: str) -> None:
    files = [value for value in variables(name).values() if value.startswith("/")]
    files += [argument[1:] for argument in container(name)["args"] if argument.startswith("@")]
    assert files
    for file in files:
        assert is_mounted(name, file), file


@pytest.mark.parametrize("name", COMMANDS)
def test_mounts_are_of_volumes(name: str) -> None:
    claims = WORKLOADS[name]["spec"].get("volumeClaimTemplates", [])
    volumes = [volume["name"] for volume in pod(name)["volumes"]]
    volumes += [claim["metadata"]["name"] for claim in claims]
    mounts = [mount["name"] for mount in container(name)["volumeMounts"]]
    assert sorted(volumes) == sorted(mounts)
    assert {"/tmp", "/var/lib/slackwater"} <= places(name), "the rest cannot be written"


def secrets(name: str) -> Iterator[str]:
    for volume in pod(name)["volumes"]:
        if "secret" in volume:
            yield volume["secret"]["secretName"]


@pytest.mark.parametrize("name", COMMANDS)
def test_secrets_are_those_that_the_page_has_made(name: str) -> None:
    assert {"slackwater-tls", "slackwater-password", "slackwater-kafka"} <= set(secrets(name))
    for secret in secrets(name):
        assert re.search(rf"kubectl create secret \w+ {secret} ", PAGE), secret


@pytest.mark.parametrize("name", COMMANDS)
def test_probes_and_services_reach_the_port_that_listens(name: str) -> None:
    (port,) = container(name)["ports"]
    listening = variables(name)["SLACKWATER_LISTEN"]
    assert listening == f"0.0.0.0:{port['containerPort']}"
    paths = {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    for probe, path in paths.items():
        expected = {"path": path, "port": port["name"], "scheme": "HTTPS"}
        assert container(name)[probe]["httpGet"] == expected
    service = of_kind("Service")[name]["spec"]
    assert [exposed["targetPort"] for exposed in service["ports"]] == [port["name"]]
    template, workload = WORKLOADS[name]["spec"]["template"], WORKLOADS[name]["spec"]
    assert template["metadata"]["labels"] == service["selector"] == {NAME: name}
    assert workload["selector"]["matchLabels"] == service["selector"]
    assert workload.get("serviceName", name) == name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pod_may_do_little(name: str) -> None:
    assert pod(name)["securityContext"]["runAsNonRoot"]
    assert pod(name)["securityContext"]["runAsUser"] == 10001
    assert pod(name)["serviceAccountName"] in of_kind("ServiceAccount")
    assert not pod(name)["automountServiceAccountToken"]
    security = container(name)["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container(name)["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", ["coordinator", "storage", "materialize"])
def test_of_what_a_namespace_has_one_two_never_run_at_once(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload["spec"]["replicas"] == 1
    assert workload["spec"]["strategy"] == {"type": "Recreate"}


def test_images_are_those_that_an_overlay_sets() -> None:
    assert {container(name)["image"] for name in COMMANDS} == {
        image["name"] for image in kustomization()["images"]
    }
