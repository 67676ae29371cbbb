"""Golden vectors of the compute protocol: messages about configuration, frontiers,
peeks and subscribes, and reports of activity.

`compute/*.json` are for replicas and controllers in other languages: `value` is the record's
value in hexadecimal, `message` its fields. A file is never rewritten. `ADD=1` writes the file
of a case that has none.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

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
from streams.compute.peeks import (
    MOST_COPIED,
    CancelPeek,
    CopyFiles,
    KeyLookup,
    Peek,
    PeekCanceled,
    PeekError,
    PeekFiles,
    PeekResponse,
    PeekRows,
    PeekTarget,
)
from streams.compute.protocol import (
    Command,
    CommandMessage,
    CreateTimely,
    Frontiers,
    Response,
    ResponseMessage,
    UpdateConfiguration,
)
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeResponse,
)
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import SortKey
from streams.progress import EMPTY, frontier

FOLDER = Path(__file__).parent / "compute"
UUID = "6f1c2a4e9b3d4c5f8a7e6d5c4b3a2918"
WHOLE = Peek(
    uuid=UUID,
    target=PeekTarget(CollectionId("u1"), "u1"),
    time=Timestamp(1_700_000_000_000),
    plan="{}",
    project=(0, 1),
    most_bytes=1 << 20,
)
FULL = Peek(
    uuid=UUID,
    target=PeekTarget(CollectionId("u1"), "u1", CollectionId("i2")),
    time=Timestamp(7),
    plan="{}",
    project=(1,),
    most_bytes=1,
    lookup=KeyLookup((0, 2), b"\x00\x01"),
    order=(SortKey(0, descending=True, nulls_first=False),),
    limit=3,
    offset=2,
    replica="r1",
)
COPY = replace(
    WHOLE,
    most_bytes=MOST_COPIED,
    files=CopyFiles("s3://bucket/exports/u1", ("id", "total"), 256 << 20),
)

SUBSCRIBE = Subscribe(
    uuid=UUID,
    collection=CollectionId("u1"),
    group="u1",
    as_of=Timestamp(1_700_000_000_000),
    plan="{}",
    project=(1, 0),
)

COMMANDS: dict[str, Command] = {
    "create-timely": CreateTimely("n1", 3, {"max_result_bytes": 4096, "heartbeat_ms": 1000}),
    "update-configuration": UpdateConfiguration({"a_later_one": -1}),
    "peek": WHOLE,
    "peek-full": FULL,
    "cancel-peek": CancelPeek(UUID),
    "subscribe": SUBSCRIBE,
    "subscribe-rest": replace(
        SUBSCRIBE, snapshot=False, until=Timestamp(1_800_000_000_000), replica="r1"
    ),
    "acknowledge-subscribe": AcknowledgeSubscribe(UUID, Timestamp(1_700_000_000_001)),
    "cancel-subscribe": CancelSubscribe(UUID),
    "copy-to": COPY,
    "copy-to-one-replica": replace(COPY, replica="r1", order=FULL.order),
}
RESPONSES: dict[str, Response] = {
    "subscribe-response-batch": SubscribeResponse(
        UUID, SubscribeBatch(Timestamp(7), frontier(9), 2, b"\x00\x01")
    ),
    "subscribe-response-end": SubscribeResponse(
        UUID, SubscribeBatch(Timestamp(9), EMPTY, 0, b"")
    ),
    "subscribe-response-error": SubscribeResponse(UUID, SubscribeError(Timestamp(9), "why")),
    "subscribe-interrupted": SubscribeResponse(UUID, SubscribeInterrupted(Timestamp(9), "why")),
    "subscribe-response-dropped": SubscribeResponse(UUID, DroppedAt(Timestamp(9))),
    "frontiers": Frontiers(CollectionId("u1"), frontier(8), None, frontier(9)),
    "frontiers-dropped": Frontiers(CollectionId("u1"), EMPTY, EMPTY, EMPTY),
    "peek-response-rows": PeekResponse(UUID, PeekRows(2, b"\x00\x01")),
    "peek-response-error": PeekResponse(UUID, PeekError("why")),
    "peek-response-canceled": PeekResponse(UUID, PeekCanceled()),
    "dataflow-activity": DataflowActivity(
        CollectionId("u3"),
        elapsed_ms=60_000,
        recent_ms=5_000,
        batches=40,
        recent_batches=2,
        hydration_batches=3,
        micros=900,
        recent_micros=70,
        operators=(
            OperatorActivity(0, WorkDone(1, 2, 3), WorkDone(0, 1, 2)),
            OperatorActivity(2, WorkDone(4, 5, 6), rows=7, bytes=512),
        ),
    ),
    "replica-activity": ReplicaActivity((LaneActivity("ingest", 1, 2, 3, 4, 5),)),
    "replica-memory": ReplicaMemory(1 << 30, 7),
    "copy-to-response-files": PeekResponse(UUID, PeekFiles(((2, 700), (1, 650))), is_copy=True),
    "copy-to-response-error": PeekResponse(UUID, PeekError("why"), is_copy=True),
    "copy-to-response-canceled": PeekResponse(UUID, PeekCanceled(), is_copy=True),
}
MESSAGES: dict[str, CommandMessage | ResponseMessage] = {
    **{name: CommandMessage("n1", 4, command) for name, command in COMMANDS.items()},
    **{
        name: ResponseMessage("n1", "r1-aa", 5, response)
        for name, response in RESPONSES.items()
    },
}


def encoded(message: CommandMessage | ResponseMessage) -> bytes:
    if isinstance(message, CommandMessage):
        return encode_command(message)
    return encode_response(message)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_bytes_of_a_message_do_not_change(name: str) -> None:
    message, path = MESSAGES[name], FOLDER / f"{name}.json"
    value = encoded(message)
    if not path.exists() and os.environ.get("ADD"):
        schema, fields = codec.decode(value)
        facts = {"schema": schema, "message": fields, "value": value.hex()}
        path.write_text(json.dumps(facts, indent=1, sort_keys=True, default=bytes.hex) + "\n")
    written = bytes.fromhex(json.loads(path.read_text())["value"])
    assert value == written
    decode = decode_command if name in COMMANDS else decode_response
    assert decode(written) == message
