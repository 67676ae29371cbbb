"""The pages of the law agree with the tree: rules, design, glossary, decisions.

Whoever cites "rule 16" finds it in `streams/RULES.md`; each test, module and mutation that the
pages name is there; the tables of the design are those that `tests/test_architecture.py` holds.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.model.mutations import Mutation
from tests.test_architecture import DOORS, MAY_IMPORT, ROOMS

ROOT = Path(__file__).parent.parent.parent
LAW = ROOT / "streams"
PAGES = ("DESIGN.md", "GLOSSARY.md", "RULES.md")

_GAP = r"(?:\s|#)+"
CITATION = re.compile(
    rf"\brules?{_GAP}(\d+)((?:(?:\s|#)*(?:,|\band\b|\bor\b|\bto\b){_GAP}\d+)*)", re.IGNORECASE
)
RULE = re.compile(r"^## (\d+)\. .+$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PATH = re.compile(r"`((?:streams|schemas|connectors|tests)(?:/[\w.*-]+)+)(?:::\w+)?`")
MODULE = re.compile(r"`((?:streams|schemas|connectors)(?:\.[a-z_]+)+)`")


def cited(text: str) -> Iterator[tuple[int, int]]:
    """Each rule that a text cites, and the line: "rule 8", "rules 7 to 10", "rules 2, 3"."""
    for match in CITATION.finditer(text):
        numbers = [int(number) for number in re.findall(r"\d+", match.group())]
        if re.search(r"\bto\b", match.group(2)):
            numbers = [*range(numbers[0], numbers[-1] + 1)]
        line = text.count("\n", 0, match.start()) + 1
        yield from ((number, line) for number in numbers)


def texts() -> Iterator[tuple[Path, str]]:
    """What may cite a rule: our code, schemas, tests with their scripts, and pages."""
    for top in ("streams", "schemas", "connectors", "tests"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in {".py", ".md", ".avsc", ".txt"} and path != Path(__file__):
                yield path, path.read_text()
    for path in (*sorted(ROOT.glob("*.md")), ROOT / "pyproject.toml"):
        yield path, path.read_text()


@cache
def page(name: str) -> str:
    return (LAW / name).read_text()


@cache
def rules() -> Mapping[int, str]:
    """The body of each rule, by its number."""
    _, *parts = RULE.split(page("RULES.md"))
    numbers = [int(part) for part in parts[::2]]
    assert numbers == sorted(set(numbers)), "rules stand in their order, each once"
    return dict(zip(numbers, parts[1::2], strict=True))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("prevented (rule 8).", [8]),
        ("Rule 11: it", [11]),
        ("rules 12 and 13", [12, 13]),
        ("(rules 2, 18, 24)", [2, 18, 24]),
        ("(rules 7 to 10)", [7, 8, 9, 10]),
        ("    # a long comment (rule\n    # 38)", [38]),
        ("rule 34 and its statements", [34]),
        ("the rules of 3 games", []),
    ],
)
def test_a_citation_is_found_however_it_is_written(text: str, numbers: list[int]) -> None:
    assert [number for number, _ in cited(text)] == numbers


def test_every_rule_that_is_cited_is_a_rule() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}:{line} cites rule {number}"
        for path, text in texts()
        for number, line in cited(text)
        if number not in rules()
    ]
    unknown += [
        f"{path.relative_to(ROOT)}: {name} names no rule"
        for path, text in texts()
        if path.suffix == ".py"
        for name in re.findall(r"\btest_rule_\d+_\w+", text)
        if int(name.split("_")[2]) not in rules()
    ]
    assert not unknown, "\n".join(unknown)


def test_every_rule_says_what_it_prevents_and_what_tests_it() -> None:
    incomplete = [
        f"rule {number} lacks {part}"
        for number, body in rules().items()
        for part in ("**Rule.**", "**Prevents.**", "**Tests.**")
        if body.count(part) != 1
    ]
    incomplete += [
        f"rule {number} names no test and does not say so"
        for number, body in rules().items()
        if not (TEST.search(body) or "tests/datadriven/" in body or "No test." in body)
    ]
    assert not incomplete, "\n".join(incomplete)


def test_every_mutation_of_a_rule_is_named_by_that_rule() -> None:
    missing = [
        f"rule {number} does not name race {mutation.name}"
        for mutation in Mutation
        if mutation.name.startswith("RULE_")
        and f"`{mutation.name}`" not in rules()[number := int(mutation.name.split("_")[1])]
    ]
    documented = set(re.findall(r"`((?:RULE_\d+|CHAIN)_[A-Z]+)`", page("RULES.md")))
    missing_races = sorted(documented - set(Mutation.__members__))
    missing += [f"there is no race {name}" for name in missing_races]
    assert not missing, "\n".join(missing)


@cache
def functions(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", PAGES)
def test_everything_that_a_page_names_is_there(name: str) -> None:
    text = page(name)
    missing = [path for path in PATH.findall(text) if not any(ROOT.glob(path))]
    missing += [
        f"{path}::{test}"
        for path, test in TEST.findall(text)
        if (ROOT / path).is_file() and test not in functions(ROOT / path)
    ]
    for module in MODULE.findall(text):
        place = ROOT / module.replace(".", "/")
        if not place.is_dir() and not place.with_suffix(".py").is_file():
            missing.append(module)
    assert not missing, f"{name} names what is not there:\n" + "\n".join(missing)


def test_every_test_that_a_decision_names_is_there() -> None:
    documented = TEST.findall(page("DECISIONS.md"))
    missing = [
        f"{path}::{test}"
        for path, test in documented
        if not (ROOT / path).is_file() or test not in functions(ROOT / path)
    ]
    assert documented, "a decision names what holds each finding"
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("table", [MAY_IMPORT, ROOMS, DOORS], ids=["imports", "rooms", "doors"])
def test_the_design_has_the_tables_of_the_architecture(table: Mapping[str, set[str]]) -> None:
    rows = [
        f"| `{name}` | {', '.join(f'`{place}`' for place in sorted(places)) or 'nothing'} |"
        for name, places in table.items()
    ]
    expected = "\n".join(rows)
    assert expected in page("DESIGN.md"), f"expected in DESIGN.md:\n{expected}"


def test_a_term_has_one_meaning_and_a_module() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `(.+?)` \|$", page("GLOSSARY.md"), re.MULTILINE)
    lines = [
        line
        for line in page("GLOSSARY.md").splitlines()
        if line.startswith("| ") and not line.startswith("| term |")
    ]
    assert len(rows) == len(lines), "each line has a term, its meaning, and the module"
    terms = Counter(name.strip() for term, _, _ in rows for name in term.split(","))
    assert [term for term, count in terms.items() if count > 1] == []
