"""What `make test` leaves to `make test-long`: the tests of `tests/long.toml` (D373)."""

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest

TABLE = Path(__file__).parent.parent / "long.toml"


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Marks as long what the table says, so that `-m "not long"` leaves it out.

    The cases of a shared test that stay are those of the least checksums of their names: the
    same ones in every run, and independent of how parameters are crossed. A case that is asked
    for by name alone is always run.
    """
    table = tomllib.loads(TABLE.read_text())
    cases = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("long"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test in table["whole"].keys() & cases.keys():
        for case in cases[test]:
            case.add_marker(pytest.mark.long)
    for test in table["share"].keys() & cases.keys():
        for case in left_out(cases[test], table["share"][test]):
            case.add_marker(pytest.mark.long)


def left_out(cases: list[pytest.Item], of: int) -> list[pytest.Item]:
    """All but one of `of` cases, rounded up."""
    ranked = sorted(cases, key=lambda case: crc32(case.nodeid.encode()))
    return ranked[-(-len(cases) // of) :]
