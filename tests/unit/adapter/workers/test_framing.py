"""Messages between a coordinator and its workers, whole and broken."""

import io

import pytest

from streams.adapter.workers.framing import DATA, END, Garbled, receive, send
from streams.adapter.workers.requests import (
    Ended,
    Import,
    Planned,
    Viewed,
    columns_told,
    declared,
)
from streams.plan.analyses.column_bounds import ColumnComparison, ColumnMembership
from streams.plan.physical import Column
from streams.plan.sql.statements import CreateFunction


def test_frames_come_as_they_were_sent() -> None:
    pipe = io.BytesIO()
    bodies = [b"", b"x", b"y" * (3 << 20)]
    for body in bodies:
        send(pipe, DATA, body)
    send(pipe, END, memoryview(b"z"))
    pipe.seek(0)
    assert [receive(pipe) for _ in bodies] == [(DATA, body) for body in bodies]
    assert receive(pipe) == (END, b"z")
    assert receive(pipe) is None


class Slow:
    """Takes and gives one byte at a time."""

    def __init__(self) -> None:
        self.held = b""

    def write(self, data: bytes | memoryview, /) -> int:
        self.held += bytes(data[:1])
        return 1

    def read(self, _: int, /) -> bytes:
        first, self.held = self.held[:1], self.held[1:]
        return first


def test_a_pipe_may_take_and_give_less_than_asked() -> None:
    pipe = Slow()
    send(pipe, DATA, b"abc")
    assert receive(pipe) == (DATA, b"abc")


@pytest.mark.parametrize("size", range(12))
def test_a_frame_that_is_cut_off_is_none(size: int) -> None:
    pipe = io.BytesIO()
    send(pipe, DATA, b"abc")
    assert receive(io.BytesIO(pipe.getvalue()[:size])) is None


def test_a_frame_that_is_too_large_is_refused_before_it_is_read() -> None:
    pipe = io.BytesIO()
    send(pipe, DATA, b"abc")
    pipe.seek(0)
    with pytest.raises(Garbled, match="at most 2 bytes, actual 3"):
        receive(pipe, largest=2)


def test_an_end_is_read_as_it_was_written() -> None:
    ended = Ended({"rows": 3}, ("message", "detail", "hint"), "defect", spent=True)
    assert Ended.decoded(ended.encoded()) == ended
    assert Ended.decoded(Ended().encoded()) == Ended()
    where = (
        ColumnComparison(0, "<=", 7),
        ColumnComparison(2, "=", "x"),
        ColumnComparison(1, "<", 0.5),
    )
    members = (ColumnMembership(2, ("x", "y")),)
    imports = (Import("s1", frozenset({0, 2}), where, members), Import("s2", frozenset()))
    planned = Planned(imports, (("x", "BIGINT"), ("x", "DATE")))
    assert Planned.told(Ended.decoded(Ended(planned.facts()).encoded()).facts) == planned


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"3",
        b'{"refused": null}',
        b'{"facts": 3, "refused": null, "defect": "", "spent": false}',
        b'{"facts": {}, "refused": ["one"], "defect": "", "spent": false}',
    ],
)
def test_an_end_that_says_nothing_is_garbled(body: bytes) -> None:
    with pytest.raises(Garbled):
        Ended.decoded(body)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"imports": 3, "shown": []},
        {"imports": [3], "shown": []},
        {"imports": [["s1", ["x"]]], "shown": []},
        {"imports": [], "shown": [["x"]]},
    ],
)
def test_a_plan_that_says_nothing_is_garbled(facts: dict[str, object]) -> None:
    with pytest.raises(Garbled):
        Planned.told(facts)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"columns": 3},
        {"columns": [3]},
        {"columns": [["x"]]},
        {"columns": [], "inputs": 3, "functions": []},
    ],
)
def test_a_definition_that_says_nothing_is_garbled(facts: dict[str, object]) -> None:
    function = CreateFunction(
        name="f",
        parameters=(Column("x", "BIGINT"),),
        returns="BIGINT",
        body="",
        if_not_exists=False,
    )
    with pytest.raises(Garbled):
        Viewed.told(facts)
    with pytest.raises(Garbled):
        declared(function, facts)
    if not isinstance(facts.get("columns"), list) or facts["columns"]:
        with pytest.raises(Garbled):
            columns_told(facts)
