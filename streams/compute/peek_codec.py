"""The fields of peeks and of their answers in Avro records (`schemas/avro/compute_*peek*`)."""

from typing import Any, assert_never

from streams.compute.peeks import (
    MOST_COPIED,
    CancelPeek,
    CopyFiles,
    KeyLookup,
    Peek,
    PeekCanceled,
    PeekError,
    PeekFiles,
    PeekOutcome,
    PeekResponse,
    PeekRows,
    PeekTarget,
)
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import SortKey

Record = dict[str, Any]  # type: ignore[explicit-any]  # Avro's generic records

PEEK, CANCEL, RESPONSE = "compute_peek", "compute_cancel_peek", "compute_peek_response"
COPY, COPY_RESPONSE = "compute_copy_to", "compute_copy_to_response"


def peek_fields(peek: Peek) -> Record:
    """Return the fields of a peek."""
    target, lookup = peek.target, peek.lookup
    lookup_fields = (
        None if lookup is None else {"columns": list(lookup.columns), "keys": lookup.keys}
    )
    return {
        "uuid": peek.uuid,
        "replica": peek.replica or None,
        "collection": target.collection,
        "group": target.group,
        "index": target.index,
        "time": peek.time,
        "lookup": lookup_fields,
        "plan": peek.plan,
        "order": _order_fields(peek),
        "offset": peek.offset,
        "limit": peek.limit,
        "project": list(peek.project),
        "most_bytes": peek.most_bytes,
    }


def peek_of(record: Record) -> Peek:
    """Return the peek of a record. Errors: Corrupt for numbers that are out of range."""
    for name, least in (("time", 0), ("offset", 0), ("limit", 0), ("most_bytes", 1)):
        if record[name] is not None and record[name] < least:
            raise Corrupt(f"peek: expected {name} of {least} or more, actual {record[name]}")
    index, lookup = record["index"], record["lookup"]
    target = PeekTarget(
        CollectionId(record["collection"]),
        record["group"],
        None if index is None else CollectionId(index),
    )
    return Peek(
        uuid=record["uuid"],
        target=target,
        time=Timestamp(record["time"]),
        plan=record["plan"],
        project=tuple(record["project"]),
        most_bytes=record["most_bytes"],
        lookup=None if lookup is None else KeyLookup(tuple(lookup["columns"]), lookup["keys"]),
        order=_order_of(record),
        limit=record["limit"],
        offset=record["offset"],
        replica=record["replica"] or "",
    )


def copy_fields(peek: Peek, files: CopyFiles) -> Record:
    """Return the fields of a copy-to."""
    return {
        "uuid": peek.uuid,
        "replica": peek.replica or None,
        "collection": peek.target.collection,
        "group": peek.target.group,
        "time": peek.time,
        "plan": peek.plan,
        "order": _order_fields(peek),
        "project": list(peek.project),
        "names": list(files.names),
        "directory": files.uri,
        "file_bytes": files.file_bytes,
    }


def copy_of(record: Record) -> Peek:
    """Return the copy-to of a record. Errors: Corrupt for fields that are out of range."""
    for name, least in (("time", 0), ("file_bytes", 1)):
        if record[name] < least:
            raise Corrupt(f"copy-to: expected {name} of {least} or more, actual {record[name]}")
    names, project = tuple(record["names"]), tuple(record["project"])
    if not names or len(names) != len(project):
        raise Corrupt(
            f"copy-to: expected {len(project)} names, one at least, actual {len(names)}"
        )
    return Peek(
        uuid=record["uuid"],
        target=PeekTarget(CollectionId(record["collection"]), record["group"]),
        time=Timestamp(record["time"]),
        plan=record["plan"],
        project=project,
        most_bytes=MOST_COPIED,
        order=_order_of(record),
        replica=record["replica"] or "",
        files=CopyFiles(record["directory"], names, record["file_bytes"]),
    )


def _order_fields(peek: Peek) -> list[Record]:
    return [
        {
            "column": key.position,
            "descending": key.descending,
            "nulls_first": key.nulls_first,
        }
        for key in peek.order
    ]


def _order_of(record: Record) -> tuple[SortKey, ...]:
    return tuple(
        SortKey(key["column"], key["descending"], key["nulls_first"]) for key in record["order"]
    )


def cancel_of(record: Record) -> CancelPeek:
    """Return the cancellation of a record."""
    return CancelPeek(record["uuid"])


def response_fields(response: PeekResponse) -> Record:
    """Return the fields of an answer."""
    outcome = response.outcome
    fields: Record = {"uuid": response.uuid, "count": 0, "rows": b"", "message": ""}
    match outcome:
        case PeekRows(count, rows):
            return {**fields, "outcome": "rows", "count": count, "rows": rows}
        case PeekError(message):
            return {**fields, "outcome": "error", "message": message}
        case PeekCanceled():
            return {**fields, "outcome": "canceled"}
        case PeekFiles():
            raise AssertionError("only a copy-to has files")
        case _:
            assert_never(outcome)


def copy_response_fields(response: PeekResponse) -> Record:
    """Return the fields of the answer to a copy-to."""
    fields: Record = {"uuid": response.uuid, "files": [], "message": ""}
    match response.outcome:
        case PeekFiles(sizes):
            files = [{"rows": rows, "bytes": size} for rows, size in sizes]
            return {**fields, "outcome": "files", "files": files}
        case PeekError(message):
            return {**fields, "outcome": "error", "message": message}
        case PeekCanceled():
            return {**fields, "outcome": "canceled"}
        case PeekRows():
            raise AssertionError("a copy-to has files")
        case _:
            assert_never(response.outcome)


def copy_response_of(record: Record) -> PeekResponse:
    """Return the answer of a record."""
    outcomes: dict[str, PeekOutcome] = {
        "files": PeekFiles(tuple((file["rows"], file["bytes"]) for file in record["files"])),
        "error": PeekError(record["message"]),
        "canceled": PeekCanceled(),
    }
    return PeekResponse(record["uuid"], outcomes[record["outcome"]], is_copy=True)


def response_of(record: Record) -> PeekResponse:
    """Return the answer of a record."""
    outcomes: dict[str, PeekOutcome] = {
        "rows": PeekRows(record["count"], record["rows"]),
        "error": PeekError(record["message"]),
        "canceled": PeekCanceled(),
    }
    return PeekResponse(record["uuid"], outcomes[record["outcome"]])
