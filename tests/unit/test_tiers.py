"""What `make test` leaves out for its cost: the table names tests that exist, and covers."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiers import TABLE, left_out

ROOT = Path(__file__).parent.parent.parent
LINES = tomllib.loads(TABLE.read_text())


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_what_the_table_names_is_there() -> None:
    assert LINES.keys() == {"share", "whole"}
    for test in LINES["share"] | LINES["whole"]:
        path, _, name = test.partition("::")
        assert name in functions(ROOT / path), test


def test_a_share_is_less_than_all() -> None:
    assert all(isinstance(of, int) and of > 1 for of in LINES["share"].values())
    assert not LINES["share"].keys() & LINES["whole"].keys()


def test_what_covers_a_test_is_run() -> None:
    """Tests of the same file by name, or files."""
    for test, covered in LINES["whole"].items():
        path = test.partition("::")[0]
        named = set(re.findall(r"(?<!/)\btest_\w+", covered))
        assert named <= functions(ROOT / path), test
        assert not {f"{path}::{name}" for name in named} & LINES["whole"].keys(), test
        assert all((ROOT / file).exists() for file in re.findall(r"tests/[\w./]+", covered)), (
            test
        )
        assert named or "tests/" in covered or "demo" in covered, test


class Case:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


@pytest.mark.parametrize(
    ("count", "of", "kept"), [(1, 3, 1), (3, 3, 1), (4, 3, 2), (23, 2, 12)]
)
def test_of_so_many_cases_one_stays(count: int, of: int, kept: int) -> None:
    cases: list[Any] = [Case(f"tests/a.py::test[{number}]") for number in range(count)]
    dropped = left_out(cases, of)
    assert count - len(dropped) == kept
    assert {case.nodeid for case in left_out(cases[::-1], of)} == {c.nodeid for c in dropped}


def test_crossed_parameters_keep_each_value_of_either() -> None:
    """A stride would keep one value where the length of a parameter is a multiple of it."""
    names = [f"tests/a.py::test[{left}-{right}]" for left in range(12) for right in range(3)]
    cases: list[Any] = [Case(name) for name in names]
    kept = set(names) - {case.nodeid for case in left_out(cases, 3)}
    assert {name[-2] for name in kept} == {"0", "1", "2"}
