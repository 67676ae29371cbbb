"""The stranger knows nothing of ours, and folds a log as we do."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stranger import wire
from tests.stranger.reader import Fold

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "stranger").glob("*.py"))
MAY_IMPORT = {
    "confluent_kafka",
    "fastavro",
    "pyarrow",
    "tests.stranger",
} | sys.stdlib_module_names


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_stranger_imports_nothing_of_ours(path: Path) -> None:
    for name in imported(path):
        allowed = {name, name.partition(".")[0], ".".join(name.split(".")[:2])}
        assert allowed & MAY_IMPORT, f"{path.name} imports {name}"
    assert "import_module" not in path.read_text()


def test_there_is_a_stranger() -> None:
    assert {path.stem for path in FILES} >= {"client", "reader", "wire"}
    assert "fastavro" in imported(ROOT / "stranger" / "wire.py")


GOLDEN = sorted((ROOT / "golden" / "shard").glob("*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_stranger_folds_a_log_as_we_do(path: Path) -> None:
    golden = json.loads(path.read_text())
    fold = Fold()
    for offset, record in enumerate(golden["log"]):
        fold.step(offset, record["at_ms"], bytes.fromhex(record["value"]))
    _, state = wire.decode(bytes.fromhex(golden["state"]))
    assert fold.group == state["group"]
    assert fold.upto == state["upto"]
    assert fold.clock == state["clock_ms"]
    assert set(fold.collections) == {each["id"] for each in state["collections"]}
    for expected in state["collections"]:
        actual = fold.collections[expected["id"]]
        for name in ("since", "upper", "fingerprint", "source"):
            assert actual[name] == expected[name], name
        keys = ("right", "frontier", "lease_ms", "expires_ms")
        assert {
            id_: {key: each[key] for key in keys}
            for id_, each in actual["capabilities"].items()
        } == {each["id"]: {key: each[key] for key in keys} for each in expected["capabilities"]}
        assert sorted(map(bare, actual["batches"]), key=place) == [
            bare(each) for each in expected["batches"]
        ]


def bare(batch: dict[str, Any]) -> dict[str, Any]:
    """Without the ranges of chunks, which a state may leave out."""
    chunks = [{**each, "ranges": None} for each in batch["chunks"]]
    return {**batch, "chunks": chunks}


def place(batch: dict[str, int]) -> tuple[int, int]:
    return batch["offset"], batch["part"]
