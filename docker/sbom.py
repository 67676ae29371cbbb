"""Print what an image holds by name and version: CycloneDX 1.6 as JSON, made without a network.

    docker run --rm --entrypoint cat slackwater /opt/slackwater/sbom.json

It is made while the image is built, of what is there and not of what was asked for: packages of
Python, of Debian, of Maven (jars say in themselves which they are), the Java that comes as a
wheel, and the shared libraries that wheels bring along, which say only their contents.
"""

import hashlib
import importlib.metadata
import json
import platform
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

Component = dict[str, object]
OURS = "slackwater"
DPKG = Path("/var/lib/dpkg/status")
RELEASE = Path("/etc/os-release")
MAVEN = {"groupId", "artifactId", "version"}


def assigned(text: str, separator: str) -> Iterator[tuple[str, str]]:
    """The lines of a file that has a name and a value in each."""
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found and not line.startswith((" ", "#")):
            yield name.strip(), value.strip().strip('"')


def component(kind: str, name: str, version: str, url: str = "") -> Component:
    """One entry; what has a place in a registry has a package URL, by which it is named."""
    made: Component = {"type": kind, "name": name, "version": version}
    return made | ({"bom-ref": url, "purl": url} if url else {})


def licensed(made: Component, text: str) -> Component:
    """With what the package says of its licence."""
    one_line = " ".join(text.split())
    return made | ({"licenses": [{"license": {"name": one_line[:200]}}]} if one_line else {})


def python_packages() -> Iterator[Component]:
    """Those that this Python can import."""
    for found in importlib.metadata.distributions():
        about = found.metadata
        name = about["Name"].lower().replace("_", "-")
        kind = "application" if name == OURS else "library"
        url = f"pkg:pypi/{quote(name)}@{quote(found.version)}"
        licence = about.get("License-Expression") or about.get("License") or ""
        yield licensed(component(kind, name, found.version, url), licence)


def debian_packages(status: Path) -> Iterator[Component]:
    """Those that are installed, by dpkg's own file; none on another system."""
    if not status.exists():
        return
    release = dict(assigned(RELEASE.read_text(), "=")) if RELEASE.exists() else {}
    system = release.get("ID", "debian")
    for paragraph in status.read_text().split("\n\n"):
        about = dict(assigned(paragraph, ": "))
        if about.get("Status", "").endswith(" installed"):
            name, version = about["Package"], about["Version"]
            architecture = about.get("Architecture", "all")
            url = f"pkg:deb/{system}/{quote(name)}@{quote(version)}?arch={architecture}"
            yield component("library", name, version, url)


def maven_packages(directory: Path) -> Iterator[Component]:
    """Those of which jars say that they hold them; a jar that says nothing is a file."""
    for jar in sorted(directory.rglob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            names = archive.namelist()
            texts = [
                archive.read(name).decode(errors="replace")
                for name in names
                if name.startswith("META-INF/maven/") and name.endswith("/pom.properties")
            ]
        abouts = [dict(assigned(text, "=")) for text in texts]
        yield from (maven_package(about) for about in abouts if about.keys() >= MAVEN)
        if not abouts:
            yield file(jar, directory)


def maven_package(about: Mapping[str, str]) -> Component:
    """Of the file that Maven puts into a jar."""
    group, name, version = about["groupId"], about["artifactId"], about["version"]
    url = f"pkg:maven/{quote(group)}/{quote(name)}@{quote(version)}"
    return {"group": group, **component("library", name, version, url)}


def file(path: Path, above: Path) -> Component:
    """What says nothing of itself: its name, and its contents by a hash."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "name": str(path.relative_to(above)),
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def shared_libraries(directory: Path) -> Iterator[Component]:
    """Those that wheels bring along, in the directories that repairers of wheels make."""
    for library in sorted(directory.glob("*.libs/*")):
        yield file(library, directory)


def java(directory: Path) -> Iterator[Component]:
    """Each Java below a directory, by the file that says which release it is."""
    for release in sorted(directory.rglob("release")):
        about = dict(assigned(release.read_text(errors="replace"), "="))
        if version := about.get("JAVA_RUNTIME_VERSION") or about.get("JAVA_VERSION"):
            made = component("platform", "openjdk", version)
            yield made | {"supplier": {"name": about.get("IMPLEMENTOR", "")}}


def components(directory: Path, status: Path = DPKG) -> list[Component]:
    """All, in order; what is found twice is there once."""
    found = [
        component("platform", "python", platform.python_version()),
        *python_packages(),
        *debian_packages(status),
        *maven_packages(directory),
        *java(directory),
        *shared_libraries(directory),
    ]
    texts = {json.dumps(each, sort_keys=True) for each in found}
    return [json.loads(text) for text in sorted(texts)]


def document(found: list[Component]) -> dict[str, object]:
    """The whole; the same contents have the same text, so it has no time of its own."""
    ours = [each for each in found if each["name"] == OURS]
    rest = [each for each in found if each["name"] != OURS]
    contents = json.dumps(found, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}",
        "version": 1,
        "metadata": {"component": ours[0]} if ours else {},
        "components": rest,
    }


if __name__ == "__main__":
    site_packages = Path(sys.argv[1])
    json.dump(document(components(site_packages)), sys.stdout, indent=1)
    sys.stdout.write("\n")
