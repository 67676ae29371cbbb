"""The lock is in step with what the project declares, and every file of it has a hash."""

import re
import runpy
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.container_files import DOCKER, ROOT

LOCK = (ROOT / "requirements.lock").read_text()
SCRIPT: Mapping[str, Any] = runpy.run_path(str(DOCKER / "locked.py"))
ENTRIES = {canonicalize_name(name): entry for name, entry in SCRIPT["entries"](LOCK)}
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
OF = {
    "slackwater (pyproject.toml)": DECLARED["project"]["dependencies"],
    "slackwater (pyproject.toml:dev)": DECLARED["dependency-groups"]["dev"],
}


def requirers(entry: str) -> set[str]:
    _, _, notes = entry.partition("# via")
    return {line.strip(" #") for line in notes.splitlines() if line.strip(" #")}


@pytest.mark.parametrize("who", OF)
def test_what_is_declared_is_locked_and_nothing_else_for_us(who: str) -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in OF[who]}
    locked = {name for name, entry in ENTRIES.items() if who in requirers(entry)}
    assert locked == declared, "`make lock` resolves them"


@pytest.mark.parametrize("text", [*OF["slackwater (pyproject.toml)"], *OF[[*OF][1]]])
def test_a_locked_version_is_one_that_is_declared(text: str) -> None:
    requirement = Requirement(text)
    entry = ENTRIES[canonicalize_name(requirement.name)]
    (version,) = re.findall(r"^[\w.-]+==(\S+)", entry)
    assert requirement.specifier.contains(version, prereleases=True)


def test_the_builder_of_the_wheel_is_locked() -> None:
    for text in DECLARED["build-system"]["requires"]:
        assert canonicalize_name(Requirement(text).name) in ENTRIES


def test_every_package_is_exact_and_has_hashes() -> None:
    names = re.findall(r"^([\w.-]+)", LOCK, re.MULTILINE)
    assert len(names) == len(ENTRIES), "each line that is not indented has NAME==VERSION"
    for name, entry in ENTRIES.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
