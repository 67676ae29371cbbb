"""The fields of subscribes and of what is delivered (`schemas/avro/compute_*subscribe*`)."""

from typing import Any, assert_never

from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp
from streams.progress import Antichain

Record = dict[str, Any]  # type: ignore[explicit-any]  # Avro's generic records

SUBSCRIBE, ACKNOWLEDGE = "compute_subscribe", "compute_acknowledge_subscribe"
CANCEL, RESPONSE = "compute_cancel_subscribe", "compute_subscribe_response"
INTERRUPTED = "compute_subscribe_interrupted"


def command_fields(
    command: Subscribe | AcknowledgeSubscribe | CancelSubscribe,
) -> tuple[str, Record]:
    """Return the schema and the fields of a command."""
    match command:
        case Subscribe():
            return SUBSCRIBE, {
                "uuid": command.uuid,
                "replica": command.replica or None,
                "collection": command.collection,
                "group": command.group,
                "as_of": command.as_of,
                "snapshot": command.snapshot,
                "until": command.until,
                "plan": command.plan,
                "project": list(command.project),
            }
        case AcknowledgeSubscribe(uuid, upper):
            return ACKNOWLEDGE, {"uuid": uuid, "upper": upper}
        case CancelSubscribe(uuid):
            return CANCEL, {"uuid": uuid}
        case _:
            assert_never(command)


def subscribe_of(record: Record) -> Subscribe:
    """Return the subscribe of a record. Errors: Corrupt for times that are out of range."""
    as_of, until = record["as_of"], record["until"]
    if as_of < 0 or (until is not None and until <= as_of):
        raise Corrupt(f"subscribe: expected 0 <= as_of < until, actual {as_of} and {until}")
    return Subscribe(
        uuid=record["uuid"],
        collection=CollectionId(record["collection"]),
        group=record["group"],
        as_of=Timestamp(as_of),
        plan=record["plan"],
        project=tuple(record["project"]),
        snapshot=record["snapshot"],
        until=None if until is None else Timestamp(until),
        replica=record["replica"] or "",
    )


def acknowledge_of(record: Record) -> AcknowledgeSubscribe:
    """Return the acknowledgement of a record."""
    return AcknowledgeSubscribe(record["uuid"], Timestamp(record["upper"]))


def cancel_of(record: Record) -> CancelSubscribe:
    """Return the cancellation of a record."""
    return CancelSubscribe(record["uuid"])


def response_fields(response: SubscribeResponse) -> tuple[str, Record]:
    """Return the schema and the fields of what is delivered."""
    outcome = response.outcome
    fields: Record = {
        "uuid": response.uuid,
        "lower": outcome.lower,
        "upper": [],
        "count": 0,
        "updates": b"",
        "message": "",
    }
    match outcome:
        case SubscribeBatch(_, upper, count, updates):
            batch = {"upper": list(upper.elements), "count": count, "updates": updates}
            return RESPONSE, {**fields, **batch, "outcome": "batch"}
        case SubscribeError(_, message):
            return RESPONSE, {**fields, "outcome": "error", "message": message}
        case SubscribeInterrupted(lower, message):
            return INTERRUPTED, {"uuid": response.uuid, "lower": lower, "message": message}
        case DroppedAt():
            return RESPONSE, {**fields, "outcome": "dropped"}
        case _:
            assert_never(outcome)


def response_of(record: Record) -> SubscribeResponse:
    """Return what a record delivers. Errors: Corrupt for an interval that is none."""
    lower = Timestamp(record["lower"])
    outcomes: dict[str, SubscribeOutcome] = {
        "batch": _batch(record, lower),
        "error": SubscribeError(lower, record["message"]),
        "dropped": DroppedAt(lower),
    }
    return SubscribeResponse(record["uuid"], outcomes[record["outcome"]])


def interrupted_of(record: Record) -> SubscribeResponse:
    """Return what a record says of a read that failed."""
    interrupted = SubscribeInterrupted(Timestamp(record["lower"]), record["message"])
    return SubscribeResponse(record["uuid"], interrupted)


def _batch(record: Record, lower: Timestamp) -> SubscribeBatch:
    upper = record["upper"]
    if len(upper) > 1 or any(time <= lower for time in upper):
        raise Corrupt(f"subscribe: expected an upper beyond {lower}, actual {upper}")
    reached = Antichain(tuple(Timestamp(time) for time in upper))
    return SubscribeBatch(lower, reached, record["count"], record["updates"])
