"""Checkpoints and logs that somebody else has written: a named error, and nothing else."""

import json

import pytest

from connectors.runtime import checkpoints
from connectors.runtime.checkpoints import Intent
from connectors.runtime.ranges import EVERY_KEY, Reach
from connectors.runtime.recovery import DESCRIPTION, RecoveryLog, StoredCheckpoints
from schemas.consumer_pb2 import Checkpoint
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.storage.small_table import SmallTable
from tests.support.collections import Collections

BINDING = (CollectionId("u1"), "t")
INTENT = Intent(b"", Timestamp(3), frozenset({1}), 7, ("t",))


def of_source(name: str, read_through: int = 9) -> bytes:
    sources = {name: Checkpoint.Source(read_through=read_through)}
    return Checkpoint(sources=sources).SerializeToString()


def of_sources(*names: str) -> bytes:
    sources = {name: Checkpoint.Source(read_through=9) for name in names}
    return Checkpoint(sources=sources).SerializeToString()


def test_a_place_of_two_collections_holds_neither() -> None:
    with pytest.raises(InvalidUsage, match="t holds collection u1, u2, expected u1: raise"):
        checkpoints.decode(of_sources("u1;t", "u2;t"), [BINDING], EVERY_KEY)


def with_intents(**intents: bytes) -> bytes:
    return Checkpoint(ack_intents=intents).SerializeToString()


def details(**members: object) -> bytes:
    return json.dumps({"large": [], "written": None, "optional": [], **members}).encode()


def test_what_is_encoded_is_decoded() -> None:
    reaches = {BINDING: (Reach(*EVERY_KEY, Timestamp(9)),)}
    checkpoint = checkpoints.encode(reaches, EVERY_KEY, {"t": {5: True}})
    assert checkpoints.decode(checkpoint, [BINDING], EVERY_KEY) == reaches
    assert checkpoints.dead_of(checkpoint) == {"t": {5: True}}
    assert checkpoints.intent_of(checkpoint) is None
    assert checkpoints.intent_of(checkpoints.with_intent(checkpoint, INTENT)) == INTENT


@pytest.mark.parametrize(
    ("checkpoint", "error"),
    [
        (b"\xff", "expected a Flow checkpoint"),
        (of_source("u1;t", -9), "u1;t: expected a time, actual -9"),
        (of_source("u1@x-y;t"), "range x-y: invalid literal"),
        (of_source("u1@1;t"), "range 1: not enough values"),
        (of_source("u1@9-1;t"), "range 9-1: expected both ends of a range"),
        (of_source("u1@0-100000000;t"), "expected both ends of a range"),
        (of_sources("u1@0-9;t", "u1@9-f;t"), "u1;t: expected each key in one range, actual 00"),
        (of_sources("u1;t", "u1@9-f;t"), "u1;t: expected each key in one range"),
    ],
)
def test_what_is_no_checkpoint(checkpoint: bytes, error: str) -> None:
    with pytest.raises(InvalidUsage, match=f"checkpoint of the endpoint: .*{error}"):
        checkpoints.decode(checkpoint, [BINDING], EVERY_KEY)


@pytest.mark.parametrize(
    ("checkpoint", "error"),
    [
        (b"\xff", "expected a Flow checkpoint"),
        (with_intents(next=b""), "expected JSON"),
        (with_intents(next=b"", details=b"{}", birth=b"1"), "expected a member large"),
        (with_intents(next=b"", details=details(), birth=b"x"), "invalid literal"),
        (with_intents(next=b"\xff", details=details(), birth=b"1"), "a Flow checkpoint"),
        (with_intents(next=b"", details=details(large=[-1]), birth=b"1"), "large: expected"),
        (with_intents(next=b"", details=details(large=7), birth=b"1"), "large: expected"),
        (with_intents(next=b"", details=details(written=-1), birth=b"1"), "written: expected"),
        (with_intents(next=b"", details=details(optional="t"), birth=b"1"), "optional: exp"),
    ],
)
def test_what_is_no_transaction_on_its_way(checkpoint: bytes, error: str) -> None:
    with pytest.raises(InvalidUsage, match=f"checkpoint of the endpoint: .*{error}"):
        checkpoints.intent_of(checkpoint)


@pytest.mark.parametrize(
    "dead",
    [
        b"[]",
        b"{",
        b'{"t": []}',
        b'{"t": {"x": true}}',
        b'{"t": {"1": 1}}',
        b'{"t": {"-1": true}}',
    ],
)
def test_what_are_no_keys_left_out(dead: bytes) -> None:
    with pytest.raises(InvalidUsage, match="checkpoint of the endpoint: keys left out: "):
        checkpoints.dead_of(with_intents(dead=dead))


@pytest.mark.parametrize("rows", [[(b"1", b"2"), (b"3", b"4")], [(b"1", None)]])
def test_a_log_of_other_rows_is_an_error_until_it_is_replaced(rows: list[object]) -> None:
    collections = Collections()
    try:
        table = SmallTable(collections.client(), CollectionId("materialize.shop"), DESCRIPTION)
        table.own()
        table.write(rows)  # type: ignore[arg-type]  # that is what is wrong
        with pytest.raises(Corrupt, match="task shop: log: expected one row of two checkp"):
            RecoveryLog(collections.client(), "shop").open()
        again = SmallTable(collections.client(), CollectionId("materialize.shop"), DESCRIPTION)
        again.own()  # the log has another owner by now, which the first may not have read yet
        again.write([(b"1", b"{}")])
        kept = RecoveryLog(collections.client(), "shop").open()
        assert kept == StoredCheckpoints(b"1", b"{}")
    finally:
        collections.close()
