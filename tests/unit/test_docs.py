"""The pages agree with the product: links, commands, statements, examples, settings."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperArgument, TyperGroup
from typer.exceptions import TyperException

from streams.adapter.show import (
    INDEX_COLUMNS,
    REBASE_COLUMNS,
    SOURCE_COLUMNS,
    VIEW_COLUMNS,
)
from streams.app.commands import app
from streams.plan.sql.statements import parse
from streams.replica.driver.dataflow import Phase
from tests.unit.test_law import MODULE, PATH

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LONGEST_README = 150
DOCS = [
    page
    for top in ("streams", "connectors")
    for page in sorted((ROOT / top / "docs").glob("*.md"))
]
REFERENCE = [README, *DOCS, *sorted((ROOT / "schemas").glob("*.md"))]
PAGES = [*REFERENCE, ROOT / "CHANGELOG.md", *sorted((ROOT / "streams").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([\w./-]*)(?:#([\w-]+))?\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in a language; "" for commands and output."""
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def anchor(heading: str) -> str:
    """The fragment by which a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for link, fragment in LINK.findall(text):
        target = page.parent / link if link else page
        if not target.exists():
            broken.append(link)
        elif fragment:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            if fragment not in map(anchor, headings):
                broken.append(f"{link}#{fragment}")
    return broken


def test_the_readme_is_short_and_has_a_picture() -> None:
    text = README.read_text()
    assert text.count("\n") <= LONGEST_README
    assert re.search(r"!\[[^\]]+\]\(streams/docs/\w+\.svg\)", text)


def test_the_changelog_says_what_the_first_release_has() -> None:
    """What was never released needs no fix and no change to be told of."""
    sections = re.findall(r"^(##+ .+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections == ["## [Unreleased]", "### Added"], (
        "before the first release: say what users get, under Added and its topic"
    )


def test_the_readme_links_every_page() -> None:
    links = {link for link, _ in LINK.findall(README.read_text())}
    missing = [name(page) for page in PAGES if page != README and name(page) not in links]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


@pytest.mark.parametrize("link", ["[a](GONE.md)", "[a](#no-such)", "![a](gone.svg)"])
def test_a_broken_link_is_found(link: str) -> None:
    assert broken_links(README, link)


@pytest.mark.parametrize("page", REFERENCE, ids=name)
def test_every_path_and_module_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in PATH.findall(text) if not any(ROOT.glob(path))]
    for module in MODULE.findall(text):
        place = ROOT / module.replace(".", "/")
        parts = (place, place.with_suffix(".py"), place.parent, place.parent.with_suffix(".py"))
        if not any(part.exists() for part in parts):
            missing.append(module)
    assert missing == []


def commands(page: Path) -> Iterator[str]:
    """Every command line of ours in a page's code blocks, continued lines joined."""
    for text in blocks(page, ""):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith(("slackwater ", "spark-submit ")):
                yield line


def spans(page: Path) -> Iterator[str]:
    """Every mention of a command of ours inside of a sentence or table."""
    prose = BLOCK.sub("", page.read_text())
    yield from (code for code in CODE.findall(prose) if code.startswith("slackwater "))


@cache
def root() -> Any:
    return typer.main.get_command(app)


def resolve(line: str) -> tuple[Any, list[str]]:
    """The command that a line names, and its arguments. Errors: AssertionError."""
    words = shlex.split(re.split(r" [<>|&]", line)[0], comments=True)
    if words[0] == "spark-submit":
        assert (ROOT / words[1]).is_file(), f"{line}: there is no {words[1]}"
        words[:2] = ["slackwater", "compact"]
    command, arguments = root(), words[1:]
    while arguments and isinstance(command, TyperGroup):
        subcommand = command.commands.get(arguments[0])
        assert subcommand is not None, f"{line}: there is no command {arguments[0]}"
        command, arguments = subcommand, arguments[1:]
    return command, arguments


def check_names(line: str) -> None:
    """Errors: AssertionError when a command or an option of the line does not exist."""
    command, arguments = resolve(line)
    options = {"--help", *(name for param in command.params for name in param.opts)}
    options |= {name for param in command.params for name in param.secondary_opts}
    for word in arguments:
        option = word.split("=")[0]
        assert not option.startswith("-") or option in options, f"{line}: there is no {option}"


def check_line(line: str) -> None:
    """Errors: AssertionError, TyperException when the line is no call of ours."""
    check_names(line)
    command, arguments = resolve(line)
    assert not isinstance(command, TyperGroup), f"{line}: expected a subcommand"
    values, rest, _ = command.make_parser(typer.Context(command)).parse_args(arguments)
    assert rest == [], f"{line}: unexpected {rest}"
    for param in command.params:
        if isinstance(param, TyperArgument) and param.required:
            assert values.get(param.name or "") is not None, f"{line}: no {param.name}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_the_products(page: Path) -> None:
    for line in commands(page):
        check_line(line)
    for line in spans(page):
        check_names(line)


@pytest.mark.parametrize(
    "line",
    [
        "slackwater compct",
        "slackwater shard lst",
        "slackwater up --retian '1 hour'",
        "slackwater shard show",
        "slackwater shard",
        "slackwater storage u1",
        "spark-submit streams/app/gone.py",
    ],
)
def test_a_command_that_is_not_the_products_is_found(line: str) -> None:
    with pytest.raises((AssertionError, TyperException)):
        check_line(line)


def test_make_has_the_targets_that_pages_name() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in REFERENCE:
        texts = [*blocks(page, ""), *CODE.findall(page.read_text())]
        for text in texts:
            targets_named = set(re.findall(r"^make ([a-z0-9-]+)", text, re.MULTILINE))
            assert targets_named <= targets, f"{name(page)}: {targets_named - targets}"


@pytest.mark.parametrize("page", REFERENCE, ids=name)
def test_statements_are_the_products(page: Path) -> None:
    text = page.read_text()
    for sql in (
        *blocks(page, "sql"),
        *re.findall(r"<<'EOF'\n(CREATE .*?)^EOF", text, re.MULTILINE | re.DOTALL),
    ):
        assert parse(sql)


EXAMPLES = [
    (page, text)
    for page in DOCS
    for text in blocks(page, "python")
]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "example"), EXAMPLES, ids=[name(page) for page, _ in EXAMPLES]
)
def test_an_example_runs(page: Path, example: str) -> None:
    exec(compile(example, name(page), "exec"), {})


def test_storage_and_the_check_of_counts_have_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = blocks(ROOT / "streams" / "docs" / "STORAGE.md", "python")
    exec(compile(example, "STORAGE.md", "exec"), {})
    refused, contents, changes = capsys.readouterr().out.splitlines()
    assert refused.endswith("row (pear, 3) would be there -1 times at 12")
    assert contents == "[] {1}"
    assert changes == "[{'c0': 'pear', 'time': 4, 'diff': 2}] {}"


OPERATIONS = ROOT / "streams" / "docs" / "OPERATIONS.md"


def first_cells(page: Path, title: str) -> set[str]:
    """The code in the first column of the tables under a heading."""
    section = re.search(
        rf"^## {title}$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert section is not None, title
    cells = re.findall(r"^\| ([^|]+) \|", section[1], re.MULTILINE)
    return {code for cell in cells for code in CODE.findall(cell)}


def test_operations_has_every_setting() -> None:
    command, _ = resolve("slackwater up")
    options = {option for param in command.params for option in param.opts} - {"--help"}
    assert {cell.split(" ")[0] for cell in first_cells(OPERATIONS, "Settings")} == options


def test_operations_has_every_column_and_status_of_show() -> None:
    documented = first_cells(OPERATIONS, "What SHOW says")
    statuses = {phase.value for phase in Phase} | {"stalled", "no replica"}
    assert (
        documented
        == {
            column.name
            for column in (*SOURCE_COLUMNS, *VIEW_COLUMNS, *REBASE_COLUMNS, *INDEX_COLUMNS)
        }
        | statuses
    )
