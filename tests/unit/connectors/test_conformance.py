"""Every sentence of the protocol's description has a test, and the page names it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "connectors" / "docs" / "CONFORMANCE.md"
ROW = re.compile(r"^\| (\d+) \| (.+?): .+ \| (.+) \|$", re.MULTILINE)
SECTIONS = [
    "Process flow",
    "Common elements",
    "RPCs",
    "Spec",
    "Validate",
    "Apply",
    "Open -> Opened",
    "Load",
    "Loaded",
    "Prepare -> Prepared",
    "Store",
    "Commit -> Committed",
    "Loading again",
    "Fencing",
]
ROWS = ROW.findall(PAGE.read_text())


def test_sentences_are_numbered_and_every_section_has_some() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert list(dict.fromkeys(section for _, section, _ in ROWS)) == SECTIONS


@pytest.mark.parametrize(("number", "section", "tests"), ROWS)
def test_the_tests_of_a_sentence_are_there(number: str, section: str, tests: str) -> None:
    places = re.findall(r"`([^`]+)`", tests)
    assert places, f"{number}, {section}: expected a test"
    for place in places:
        path, _, name = place.partition("::")
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, f"{place} is not there"
