"""Names say what they hold: some say nothing, and no local or parameter has one of these."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_architecture import ROOT, modules

VAGUE = {"each", "found", "known", "made"}
MAY_BIND = re.compile(rf"\b(?:{'|'.join(sorted(VAGUE))})(?: in\b| ?[=:,)\]}}]|$)", re.MULTILINE)
"""What a text has that binds one: most texts have none, and are not parsed."""


def vague(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that bind a local or a parameter of such a name, and the name.

    Attributes of classes may have one, and functions.
    """
    stack = [tree]
    while stack:
        outer = stack.pop()
        inner = list(ast.iter_child_nodes(outer))
        if isinstance(outer, ast.ClassDef):
            attributes = [
                node for node in inner if isinstance(node, ast.Assign | ast.AnnAssign)
            ]
            inner = [node for node in inner if node not in attributes]
            inner += [node.value for node in attributes if node.value is not None]
        stack += inner
        yield from (
            (getattr(node, "lineno", 0), name)
            for node in inner
            if type(node) in BINDS
            for name in bound_by(node)
            if name in VAGUE
        )


BINDS = {
    ast.Name,
    ast.arg,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
    ast.ExceptHandler,
    ast.Import,
    ast.ImportFrom,
}


def bound_by(node: ast.AST) -> list[str]:
    """The names that a node binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [alias.asname or "" for alias in aliases]
        case _:
            return []


def test_locals_say_what_they_hold() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name} says nothing of what it holds"
        for _, path, _ in modules()
        if MAY_BIND.search(text := path.read_text())
        for line, name in vague(ast.parse(text))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "def f(found): pass",
        "def f(*, known=1): pass",
        "def f(*made): pass",
        "def f():\n    for x, (found, _) in y: pass",
        "class A:\n    def f(self):\n        known: int = 1",
        "class A:\n    x = [each for each in y]",
        "z = lambda each: 1",
        "if (found := f()): pass",
        "match x:\n    case [1, *made]: pass",
        "match x:\n    case {'a': made}: pass",
        "match x:\n    case {**made}: pass",
        "with f() as made: pass",
        "try: pass\nexcept E as known: pass",
        "from a import b as found",
    ],
)
def test_a_vague_name_is_found(text: str) -> None:
    assert MAY_BIND.search(text)
    assert [name for _, name in vague(ast.parse(text))]


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    found: int = 0\n    made = 1",
        "def known(): pass",
        "a.made = found(known=1)",
        "def f(founder): pass",
    ],
)
def test_attributes_and_functions_may_have_one(text: str) -> None:
    assert not list(vague(ast.parse(text)))
