"""Codec of remembered outcomes in Rollups.

An outcome has a name and at most one field of each type; missing fields are empty.
"""

from collections.abc import Callable, Mapping
from typing import assert_never

from schemas.codec import Record
from streams.errors import Corrupt
from streams.ids import CollectionId, Offset
from streams.progress import Antichain
from streams.storage.log.dedup_window import RecordedOutcome
from streams.storage.log.event_codec import (
    frontier_record,
    offset_records,
    to_frontier,
    to_offsets,
)
from streams.storage.log.outcomes import (
    Acquired,
    Advanced,
    Appended,
    BatchesChanged,
    ChunksReclaimed,
    Cloned,
    Created,
    Decision,
    Downgraded,
    Dropped,
    Fenced,
    Misuse,
    OffsetsMismatch,
    Overtaken,
    Reclaimed,
    Refused,
    Replaced,
    RolledUp,
    RollupSuperseded,
    Staged,
    Stale,
    TokenMismatch,
    Transferred,
    UnknownCapability,
    UnknownCollection,
    UnknownStage,
    UpperMismatch,
    WrongGroup,
)

BARE = (
    Created,
    ChunksReclaimed,
    Staged,
    Reclaimed,
    Replaced,
    BatchesChanged,
    Dropped,
    RollupSuperseded,
    Stale,
)
BARE_BY_NAME = {kind.__name__: kind for kind in BARE}


def to_record(decided: RecordedOutcome) -> Record:
    """Return the fields of a remembered outcome."""
    empty: Record = {
        "text": "",
        "subject": "",
        "frontiers": [],
        "offsets": None,
        "number": 0,
    }
    name = type(decided.outcome).__name__
    record = {"offset": decided.offset, "id": decided.id, "outcome": name}
    return {**record, **empty, **fields(decided.outcome)}


def fields(outcome: Decision) -> Record:
    """Return the fields of an outcome beside its name."""
    match outcome:
        case Appended(uppers):
            return {"frontiers": [frontier_record(upper) for upper in uppers]}
        case UpperMismatch(current, collection):
            return {"frontiers": [frontier_record(current)], "subject": collection}
        case (
            Acquired(frontier) | Cloned(frontier) | Transferred(frontier) | Downgraded(frontier)
        ):
            return {"frontiers": [frontier_record(frontier)]}
        case OffsetsMismatch(current, collection):
            return {"offsets": offset_records(current), "subject": collection}
        case RolledUp(number) | Advanced(number):
            return {"number": number}
        case _:
            return text_fields(outcome)


Texts = (
    Fenced
    | UnknownStage
    | WrongGroup
    | UnknownCollection
    | Overtaken
    | UnknownCapability
    | TokenMismatch
    | Refused
    | Created
    | ChunksReclaimed
    | Staged
    | Reclaimed
    | Replaced
    | BatchesChanged
    | Dropped
    | RollupSuperseded
    | Stale
)


def text_fields(outcome: Texts) -> Record:
    """Return the fields of an outcome with a text, or with nothing."""
    match outcome:
        case Fenced(fingerprint, collection):
            return {"text": fingerprint, "subject": collection}
        case (
            UnknownStage(text)
            | WrongGroup(text)
            | UnknownCapability(text)
            | TokenMismatch(text)
        ):
            return {"text": text}
        case Refused(reason):
            return {"text": reason.value}
        case UnknownCollection(collection) | Overtaken(collection):
            return {"subject": collection}
        case (
            Created()
            | ChunksReclaimed()
            | Staged()
            | Reclaimed()
            | Replaced()
            | BatchesChanged()
            | Dropped()
            | RollupSuperseded()
            | Stale()
        ):
            return {}
        case _:
            assert_never(outcome)


def from_record(record: Record) -> RecordedOutcome:
    """Return a remembered outcome from its fields.

    Errors: Corrupt when there is no outcome of this name.
    """
    return RecordedOutcome(record["id"], Offset(record["offset"]), to_outcome(record))


def to_outcome(record: Record) -> Decision:
    """Return the outcome in a record.

    Errors: Corrupt when there is no outcome of this name.
    """
    name: str = record["outcome"]
    bare = BARE_BY_NAME.get(name)
    if bare is not None:
        return bare()
    make = MAKERS.get(name)
    try:
        if make is not None:
            return make(record)
    except (IndexError, ValueError) as cause:
        raise Corrupt(f"rollup: outcome {name}: {cause}") from cause
    raise Corrupt(f"rollup: expected the name of an outcome, actual {name}")


def first(record: Record) -> Antichain:
    """Return the frontier of an outcome that has one."""
    return to_frontier(record["frontiers"][0])


MAKERS: Mapping[str, Callable[[Record], Decision]] = {
    "Appended": lambda of: Appended(
        tuple(to_frontier(frontier) for frontier in of["frontiers"])
    ),
    "UpperMismatch": lambda of: UpperMismatch(first(of), CollectionId(of["subject"])),
    "Acquired": lambda of: Acquired(first(of)),
    "Cloned": lambda of: Cloned(first(of)),
    "Transferred": lambda of: Transferred(first(of)),
    "Downgraded": lambda of: Downgraded(first(of)),
    "OffsetsMismatch": lambda of: OffsetsMismatch(
        to_offsets(of["offsets"]) or {}, CollectionId(of["subject"])
    ),
    "RolledUp": lambda of: RolledUp(Offset(of["number"])),
    "Advanced": lambda of: Advanced(of["number"]),
    "Fenced": lambda of: Fenced(of["text"], CollectionId(of["subject"])),
    "UnknownStage": lambda of: UnknownStage(of["text"]),
    "WrongGroup": lambda of: WrongGroup(of["text"]),
    "UnknownCapability": lambda of: UnknownCapability(of["text"]),
    "UnknownCollection": lambda of: UnknownCollection(CollectionId(of["subject"])),
    "Overtaken": lambda of: Overtaken(CollectionId(of["subject"])),
    "TokenMismatch": lambda of: TokenMismatch(of["text"]),
    "Refused": lambda of: Refused(Misuse(of["text"])),
}
