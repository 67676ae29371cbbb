from dataclasses import replace

import pytest
from hypothesis import given

from schemas import codec
from streams.compute.activity import (
    DataflowActivity,
    LaneActivity,
    OperatorActivity,
    ReplicaActivity,
    ReplicaMemory,
    WorkDone,
)
from streams.compute.codec import (
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from streams.compute.peeks import Peek, PeekTarget
from streams.compute.protocol import (
    Alive,
    CommandMessage,
    CreateDataflow,
    CreateTimely,
    Frontiers,
    Hydration,
    Reconciled,
    ResponseMessage,
    Status,
)
from streams.compute.subscribes import Subscribe, SubscribeBatch, SubscribeResponse
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, frontier
from tests.unit.compute.commands import INDEX, INGESTION, REBASE, SINK, histories


@given(histories())
def test_every_command_comes_back_as_it_was(history) -> None:
    for sequence, command in enumerate([CreateTimely("n", 3), *history]):
        message = CommandMessage("n", sequence, command)
        assert decode_command(encode_command(message)) == message


@pytest.mark.parametrize(
    "description",
    [INGESTION, REBASE, SINK, INDEX],
    ids=["ingestion", "rebase", "sink", "index"],
)
def test_sources_rebases_and_sinks_come_back_as_they_were(description) -> None:
    message = CommandMessage("n", 1, CreateDataflow(description))
    assert decode_command(encode_command(message)) == message


@pytest.mark.parametrize("imports", [(), REBASE.imports * 2])
@pytest.mark.parametrize("of_one", [REBASE, INDEX], ids=["rebase", "index"])
def test_a_rebase_and_an_index_have_one_import(of_one, imports) -> None:
    described = replace(of_one, imports=imports)
    value = encode_command(CommandMessage("n", 1, CreateDataflow(described)))
    with pytest.raises(Corrupt, match="rebase or an index of one import"):
        decode_command(value)


ACTIVITY = DataflowActivity(
    CollectionId("u1"),
    elapsed_ms=9_000,
    recent_ms=5_000,
    batches=7,
    recent_batches=2,
    hydration_batches=3,
    micros=800,
    recent_micros=90,
    operators=(
        OperatorActivity(0, WorkDone(5, 6, 7), WorkDone(1, 2, 3)),
        OperatorActivity(2, rows=10, bytes=640),
    ),
)
LANES = ReplicaActivity((LaneActivity("ingest", 1, 2, 3, 4, 5),))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(ACTIVITY, micros=-1),
        replace(ACTIVITY, batches=1 << 60),
        replace(ACTIVITY, operators=ACTIVITY.operators[::-1]),
        replace(ACTIVITY, operators=ACTIVITY.operators[:1] * 2),
        replace(ACTIVITY, operators=(OperatorActivity(0, rows=-5),)),
        replace(ACTIVITY, operators=(OperatorActivity(0, WorkDone(1 << 60)),)),
        ReplicaActivity((LaneActivity("l" * 257, 0, 0, 0, 0, 0),)),
        ReplicaActivity((LaneActivity("l", 0, 0, 0, -4, 0),)),
        ReplicaMemory(-1, 3),
        ReplicaMemory(9, 1 << 60),
    ],
)
def test_a_report_of_work_that_is_out_of_range_is_refused(wrong) -> None:
    value = encode_response(ResponseMessage("n", "r1", 4, wrong))
    with pytest.raises(Corrupt, match="activity: expected"):
        decode_response(value)


def test_a_report_of_work_is_bounded() -> None:
    many = replace(ACTIVITY, operators=tuple(map(OperatorActivity, range(5_000))))
    message = decode_response(encode_response(ResponseMessage("n", "r1", 4, many)))
    assert message.response == replace(many, operators=many.operators[:1024])


@pytest.mark.parametrize(
    "response",
    [
        Reconciled(1, 2, 3),
        ACTIVITY,
        LANES,
        Frontiers(CollectionId("u1"), frontier(5), None),
        Frontiers(CollectionId("u1"), EMPTY, EMPTY),
        Frontiers(CollectionId("u1"), None, frontier(0)),
        Frontiers(CollectionId("u1"), input=frontier(7)),
        Frontiers(CollectionId("u1"), input=EMPTY),
        Status(CollectionId("u1"), "hydrating", "", "3 of 8 slices"),
        Hydration(CollectionId("u1"), 0, 10, None),
        Hydration(CollectionId("u1"), 3 << 40, 8 << 40, 12),
        Alive(),
    ],
)
def test_every_response_comes_back_as_it_was(response) -> None:
    message = ResponseMessage("n", "r1", 4, response)
    assert decode_response(encode_response(message)) == message


@pytest.mark.parametrize("field", ["time", "limit", "offset", "most_bytes"])
def test_numbers_of_a_peek_are_in_range(field: str) -> None:
    peek = Peek(
        uuid="p",
        target=PeekTarget(CollectionId("u1"), "u1"),
        time=Timestamp(0),
        plan="",
        project=(0,),
        most_bytes=1,
        limit=0,
    )
    wrong = replace(peek, **{field: -1})  # type: ignore[arg-type]  # one of the numbers
    value = encode_command(CommandMessage("n", 0, wrong))
    with pytest.raises(Corrupt, match=f"peek: expected {field} of"):
        decode_command(value)


@pytest.mark.parametrize(
    ("as_of", "until"), [(-1, None), (5, 5), (5, 4)], ids=["negative", "empty", "before"]
)
def test_times_of_a_subscribe_are_in_order(as_of: int, until: int | None) -> None:
    asked = Subscribe(
        uuid="s",
        collection=CollectionId("u1"),
        group="u1",
        as_of=Timestamp(as_of),
        plan="",
        project=(0,),
        until=None if until is None else Timestamp(until),
    )
    value = encode_command(CommandMessage("n", 0, asked))
    with pytest.raises(Corrupt, match="subscribe: expected 0 <= as_of < until"):
        decode_command(value)


def test_an_interval_ends_behind_its_begin() -> None:
    batch = SubscribeBatch(Timestamp(5), frontier(5), 0, b"")
    value = encode_response(ResponseMessage("n", "r1", 4, SubscribeResponse("s", batch)))
    with pytest.raises(Corrupt, match="subscribe: expected an upper beyond 5"):
        decode_response(value)


def test_a_response_is_no_command() -> None:
    value = encode_response(ResponseMessage("n", "r1", 4, Reconciled(0, 0, 0)))
    with pytest.raises(Corrupt, match="expected a compute command, actual"):
        decode_command(value)


@pytest.mark.parametrize("decode", [decode_command, decode_response])
def test_a_record_of_another_protocol_is_neither(decode) -> None:
    value = codec.encode(
        "sink_progress", {"sink": "u3", "frontier": 1, "until": None, "written": 0}
    )
    with pytest.raises(Corrupt, match="actual a record of schema sink_progress"):
        decode(value)
