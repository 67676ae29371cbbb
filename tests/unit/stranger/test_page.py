"""`schemas/CLIENTS.md` leaves out no kind of record, no command and no code."""

import re
from pathlib import Path

import pytest

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.kafka import log
from streams.storage.commands import service
from streams.storage.commands.wire import Status

SCHEMAS = Path(__file__).parents[3] / "schemas"
PAGE = (SCHEMAS / "CLIENTS.md").read_text(encoding="utf-8")
KINDS = {re.sub(r"_\d$", "", path.stem) for path in (SCHEMAS / "avro").glob("shard_*.avsc")}
COMMANDS = {path.stem for path in (SCHEMAS / "avro").glob("command_*.avsc")}


def section(title: str) -> str:
    """What stands under a heading, up to the next of any depth."""
    found = re.search(
        rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, title
    return found[1]


def codes(kind: type[SlackwaterError], *modules: str) -> set[str]:
    """The names of the errors of a kind that modules define."""
    found = {
        each.__name__ for each in kind.__subclasses__() if each.__module__.startswith(modules)
    }
    return found.union(*(codes(each, *modules) for each in kind.__subclasses__()))


def test_every_kind_of_record_has_its_rule() -> None:
    rules = set(re.findall(r"^\| (\w+) \|", section("4.2 Which records count"), re.MULTILINE))
    names = {"".join(word.title() for word in kind.split("_")[1:]) for kind in KINDS}
    assert names - {"State"} == rules - {"kind"}


def test_every_command_is_named() -> None:
    named = set(re.findall(r"`(command_\w+)`", section("2. Commands")))
    assert named == COMMANDS - {"command_response"}


def test_every_status_is_explained() -> None:
    for status in Status:
        assert f"| `{status.value}` |" in section("2. Commands")


@pytest.mark.parametrize("kind", [InvalidUsage, Corrupt, Determinate, Indeterminate])
def test_every_code_is_explained(kind: type[SlackwaterError]) -> None:
    named = set(re.findall(r"`(\w+)`", section("5. Errors")))
    mine = {kind.__name__} | codes(kind, "streams.storage", log.__name__)
    assert mine <= named, f"as {service.__name__} may say: {mine - named}"


def test_no_code_is_explained_that_there_is_not() -> None:
    kinds = (InvalidUsage, Corrupt, Determinate, Indeterminate)
    known = {kind.__name__ for kind in kinds}.union(
        *(codes(kind, "streams.") for kind in kinds)
    )
    first = re.findall(r"^\| ((?:`\w+`(?:, )?)+)", section("5. Errors"), re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(first)))
    assert named <= known | {"ReusedId", "Defect"}
