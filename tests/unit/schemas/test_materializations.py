"""Records of materializations that another process wrote are checked where they are read."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from schemas.materializations import Spec, State, read_all
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp

SPEC = Spec(id="m1", wanted="run", task={"task": "shop"}, unbound=(CollectionId("u1"),))
STATE = State(
    id="m1",
    state="running",
    message="é",
    time=Timestamp(4),
    behind_ms=3,
    committed_ms=7,
    backfill={"done": 1, "total": 2, "unit": "rows"},
    stalls={"t": "why"},
    dead_letters={"t": 1},
    left_out={"t": 2},
)


def spec_with(**members: object) -> tuple[str, str, str]:
    return "m1", "run", json.dumps({**json.loads(SPEC.row()[2]), **members})


def state_with(**members: object) -> tuple[str, str]:
    return "m1", json.dumps({**json.loads(STATE.row()[1]), **members})


def test_what_is_written_is_read() -> None:
    assert Spec.of(SPEC.row()) == SPEC
    assert State.of(STATE.row()) == STATE
    assert State.of(State(id="m1").row()) == State(id="m1")


def test_later_versions_have_more_members_and_earlier_ones_fewer() -> None:
    assert State.of(state_with(new=1)) == STATE
    assert Spec.of(spec_with(new=1)) == SPEC
    assert State.of(("m1", '{"id": "m1", "state": "paused"}')) == State(id="m1", state="paused")


COUNTS = ("behind_rows", "rows", "rows_per_s", "commits", "errors")
NO_COUNTS: tuple[Any, ...] = (-1, 1.5, "1", True, [], {}, 1 << 63, float("nan"), float("inf"))
HOSTILE: list[tuple[Mapping[str, Any], str]] = [
    *(({name: None}, f"{name}: expected a whole number") for name in COUNTS),
    *(({"rows": value}, "rows: expected a whole number of at least 0") for value in NO_COUNTS),
    *(
        ({name: value}, f"{name}: expected a whole number of at least 0")
        for name in ("time", "behind_ms", "committed_ms")
        for value in (-1, "1", False)
    ),
    *(
        ({name: value}, f"{name}: expected a text")
        for name in ("message", "owner", "state")
        for value in (None, 1, ["a"], "\ud800")
    ),
    ({"state": "flying"}, "state: expected one of starting, .*, actual 'flying'"),
    ({"id": "m2"}, "id: expected m1, actual m2"),
    *(
        ({"backfill": value}, f"backfill: {error}")
        for value, error in (
            ([], "expected an object"),
            ({}, "expected a member done, actual none"),
            ({"done": -1, "total": 1, "unit": "rows"}, "done: expected a whole number"),
            ({"done": 1, "total": "9", "unit": "rows"}, "total: expected a whole number"),
            ({"done": 1, "total": 1, "unit": 7}, "unit: expected a text"),
        )
    ),
    ({"stalls": ["t"]}, "stalls: expected an object"),
    ({"stalls": {"t": 1}}, "stalls: t: expected a text"),
    ({"stalls": {"\ud800": "t"}}, "stalls: expected names that are texts"),
    ({"dead_letters": {"t": -1}}, "dead_letters: t: expected a whole number"),
    ({"left_out": {"t": None}}, "left_out: t: expected a whole number"),
    ({"left_out": None}, "left_out: expected an object"),
]


@pytest.mark.parametrize(("members", "error"), HOSTILE)
def test_a_state_with_a_wrong_member_is_an_error_that_names_it(
    members: Mapping[str, Any], error: str
) -> None:
    with pytest.raises(Corrupt, match=f"materializations.states: m1: {error}"):
        State.of(state_with(**members))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (("m1", "[]"), "m1: expected a JSON object"),
        (("m1", "{"), "m1: expected JSON"),
        (("m1", "[" * 100_000), "m1: expected JSON"),
        (("m1", '{"id": "m1"}'), "m1: expected a member state, actual none"),
        (("m1", '{"state": "paused"}'), "m1: expected a member id, actual none"),
        (("m1",), "expected 2 texts"),
        (("m1", None), "expected 2 texts"),
        ((7, "{}"), "expected 2 texts"),
        (("m 1", "{}"), "expected an id, actual 'm 1'"),
        (("", "{}"), "expected an id"),
        (("m" * 101, "{}"), "expected an id"),
    ],
)
def test_a_row_that_is_no_state(row: Any, error: str) -> None:
    with pytest.raises(Corrupt, match=f"materializations.states: {error}") as caught:
        State.of(row)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (("m1", "fly", SPEC.row()[2]), "m1: wanted: expected one of run, pause, drop"),
        (spec_with(task=None), "m1: task: expected an object"),
        (spec_with(task=[["task", "shop"]]), "m1: task: expected an object"),
        (spec_with(unbound="u1"), "m1: unbound: expected a list of texts"),
        (spec_with(unbound=[1]), "m1: unbound: expected a list of texts"),
        (spec_with(unbound=[""]), "m1: unbound: expected a list of texts"),
        (spec_with(unbound={"u1": 1}), "m1: unbound: expected a list of texts"),
        (("m1", "run", '{"task": {}}'), "m1: expected a member unbound, actual none"),
        (("m1", "run", "{}"), "m1: expected a member"),
        (("m1", "run"), "expected 3 texts"),
        (("../m1", "run", SPEC.row()[2]), "expected an id"),
    ],
)
def test_a_specification_with_a_wrong_member_is_an_error_that_names_it(
    row: Any, error: str
) -> None:
    with pytest.raises(Corrupt, match=f"materializations.specs: {error}"):
        Spec.of(row)


def test_a_wrong_record_costs_no_other() -> None:
    other = State(id="m2", state="paused")
    rows = [state_with(rows=-1), other.row(), ("\0", "{}"), ("m3", "{"), ("m3", "}")]
    states, unreadable = read_all(rows, State.of)
    assert states == {"m2": other}
    assert unreadable.keys() == {"m1", "m3", ""}
    assert "m1: rows: expected" in unreadable["m1"]


def test_of_two_records_of_one_materialization_none_counts() -> None:
    rows = [STATE.row(), State(id="m1", state="dropped").row(), State(id="m2").row()]
    states, unreadable = read_all(rows, State.of)
    assert states == {"m2": State(id="m2")}
    assert unreadable == {"m1": "m1: expected one record, actual several"}
