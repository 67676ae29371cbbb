"""The page has the rights that the end-to-end tests give, neither more nor fewer."""

import re

from tests.support.broker_rights import CLIENT, PREFIXED, READERS, SERVICES_USER, Right, rights
from tests.support.container_files import ROOT

PAGE = (ROOT / "streams" / "docs" / "OPERATIONS.md").read_text()
SECTION = PAGE.partition("### Rights at the broker\n")[2].partition("\n## ")[0]
GIVEN = rights("sw", "SOURCE", "SINK")
ROW = re.compile(r"^\| (?!of the|-)([^|]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
PLACES = {
    "SOURCE": "each topic of a source",
    "SINK": "each topic of a sink",
    READERS: f"the group `{READERS}`",
}
KINDS = {"TOPIC": "topics", "TRANSACTIONAL_ID": "transactional ids", "GROUP": "groups"}


def place(right: Right) -> str:
    """As the page names what a right is at."""
    kind, name, pattern, _ = right
    if pattern == PREFIXED:
        return f"{KINDS[kind.name]} with the prefix `{name}`"
    return PLACES[name]


def word(operation: str) -> str:
    return "".join(part.capitalize() for part in operation.split("_"))


def test_the_services_have_the_rights_that_the_page_lists() -> None:
    given = {
        place(right): [word(operation.name) for operation in right[3]]
        for right in GIVEN[SERVICES_USER]
    }
    assert {where: what.split(", ") for where, what in ROW.findall(SECTION)} == given


def test_a_client_has_the_rights_that_the_page_lists() -> None:
    for _, name, _, operations in GIVEN[CLIENT]:
        (operation,) = operations
        written = rf"{word(operation.name)} at\s(?:the topic |the group [a-z ,]*)?`{name}`"
        assert re.search(written, SECTION), name
