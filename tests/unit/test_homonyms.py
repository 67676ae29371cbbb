"""No two public classes of a layer have one name, but for those that DECISIONS D285 lists."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]

DATA = [
    {"streams.plan.ir", "streams.plan.physical"},
    {"streams.storage.commands.wire", "streams.storage.log.events"},
    {"streams.storage.sans_io", "streams.storage.log.outcomes"},
]
"""Modules whose classes are data: the names are in plans, records and codes of errors."""

EVERY_CONNECTOR = {"Config", "Resource"}
"""What each connector has one of."""


def layer_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "streams" else parts[0]


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text()).body
    names = [node.name for node in body if isinstance(node, ast.ClassDef)]
    return [name for name in names if not name.startswith("_")]


def homonyms(root: Path) -> dict[tuple[str, str], set[str]]:
    """Modules by layer and name, of names that several modules of a layer define."""
    modules = defaultdict[tuple[str, str], set[str]](set)
    for top in ("schemas", "streams", "connectors"):
        for path in (root / top).rglob("*.py"):
            if path.name.endswith("_pb2.py"):
                continue
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            for name in public_classes(path):
                modules[layer_of(module), name].add(module)
    return {key: places for key, places in modules.items() if len(places) > 1}


def test_no_two_public_classes_of_a_layer_have_one_name() -> None:
    assert {
        key: places
        for key, places in homonyms(ROOT).items()
        if places not in DATA and not (key[0] == "connectors" and key[1] in EVERY_CONNECTOR)
    } == {}


def test_a_homonym_is_found(tmp_path: Path) -> None:
    for module in ("streams/plan/a.py", "streams/plan/b.py", "streams/kafka/a.py"):
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Reader:\n    pass\n\nclass _Slot:\n    pass\n")
    assert homonyms(tmp_path) == {
        ("streams.plan", "Reader"): {"streams.plan.a", "streams.plan.b"}
    }
