"""The page of the documentation: which functions a view may call, and what it refuses."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streams.bench.sql.constructs import Refused
from streams.bench.sql.survey import FunctionResults, Reason, Tallies

HEAD = """# Functions and constructs that a view may have

A view, and a SELECT, may call every function below that is not named under "refused". This page
is generated from DuckDB's catalogue by the planner itself (`slackwater bench sql --page FILE`);
`tests/unit/app/test_bench_sql.py` holds page and planner together.
"""
_NAMES = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class FunctionsPage:
    """The page: the functions of each family, and the refusals with an example."""

    functions: dict[str, tuple[str, ...]]
    refused: tuple[tuple[str, str], ...]
    constructs: tuple[tuple[str, str], ...]


def page(tallies: Tallies, refused: Sequence[Refused], most: int) -> str:
    """The whole page in Markdown; `most` is how many calls of an overload were made."""
    parts = [
        HEAD,
        "## By family\n\nCalls are those that DuckDB binds, of those that the survey makes:"
        f" types of arguments in turn, at most {most:,} of an overload.\n",
        _table(["family", "functions", "calls", "maintained", "refused"], _families(tallies)),
        "## Refused calls\n",
        _table(["what is refused", "instead", "functions", "example"], _refusals(tallies)),
        "## Refused constructs\n",
        _table(["what is refused", "instead", "example"], map(_construct, refused)),
        "## Functions by family\n",
        *_listed(tallies),
    ]
    return "\n".join(parts)


def read(text: str) -> FunctionsPage:
    """The contents of a page."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    families = re.split(r"^### (.*)\n", sections["Functions by family"], flags=re.MULTILINE)
    functions = {
        family: tuple(map(_plain, _NAMES.findall(names)))
        for family, names in zip(families[1::2], families[2::2], strict=True)
    }
    refusals = [_cells(line) for line in _lines(sections["Refused calls"])]
    constructs = [_cells(line) for line in _lines(sections["Refused constructs"])]
    return FunctionsPage(
        functions,
        tuple((cells[0], cells[3].strip("`")) for cells in refusals),
        tuple((cells[0], cells[2].strip("`")) for cells in constructs),
    )


def families(tallies: Tallies) -> dict[str, tuple[int, int, int, int]]:
    """For each family: functions, calls that DuckDB binds, calls maintained, calls refused."""
    sums: dict[str, tuple[int, int, int, int]] = {}
    for (family, _), tally in sorted(tallies.items()):
        before = sums.get(family, (0, 0, 0, 0))
        own = (1, tally.bound, tally.accepted, tally.refused.total())
        sums[family] = tuple(map(sum, zip(before, own, strict=True)))  # type: ignore[assignment]
    return sums


def refusals(tallies: Tallies) -> dict[Reason, list[tuple[str, FunctionResults]]]:
    """For each reason, the functions refused for it."""
    by_reason: defaultdict[Reason, list[tuple[str, FunctionResults]]] = defaultdict(list)
    for (_, name), tally in tallies.items():
        for reason in tally.refused:
            by_reason[reason].append((name, tally))
    return dict(sorted(by_reason.items(), key=lambda entry: entry[0].construct))


def _families(tallies: Tallies) -> Iterator[list[str]]:
    sums = families(tallies)
    for family, numbers in sums.items():
        yield [family, *(f"{number:,}" for number in numbers)]
    yield ["all", *(f"{sum(column):,}" for column in zip(*sums.values(), strict=True))]


def _refusals(tallies: Tallies) -> Iterator[list[str]]:
    for reason, functions in refusals(tallies).items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in functions))
        example = functions[0][1].examples[reason]
        yield [reason.construct, reason.hint, names, f"`{example}`"]


def _construct(refused: Refused) -> list[str]:
    return [refused.construct, refused.hint, f"`{refused.query}`"]


def _listed(tallies: Tallies) -> Iterator[str]:
    by_family: defaultdict[str, list[str]] = defaultdict(list)
    for family, name in sorted(tallies):
        by_family[family].append(f"`{name}`")
    for family, names in by_family.items():
        yield f"### {family}\n\n{', '.join(names)}\n"


def _table(heads: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    texts = ["| " + " | ".join(map(_escaped, cells)) + " |" for cells in lines]
    return "\n".join([*texts, ""])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _plain(cell: str) -> str:
    return cell.replace("\\|", "|")


def _lines(section: str) -> list[str]:
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


def _cells(line: str) -> list[str]:
    return [_plain(cell) for cell in re.split(r" (?<!\\)\| ", line[2:-2])]
