"""Remembered outcomes as records of a Rollup, and back.

An outcome is its name and at most one field of each sort; those it has not are empty.
"""

from typing import assert_never

from schemas.codec import Record
from streams.errors import Corrupt
from streams.ids import CollectionId, Offset
from streams.storage.outcomes import (
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
from streams.storage.records import (
    frontier_record,
    offset_records,
    to_frontier,
    to_offsets,
)
from streams.storage.window import Decided

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
MISUSES = frozenset(Misuse)
BARE_BY_NAME = {kind.__name__: kind for kind in BARE}


def to_record(decided: Decided) -> Record:
    """The fields of a remembered outcome."""
    empty: Record = {
        "text": "",
        "subject": "",
        "frontiers": [],
        "offsets": None,
        "number": 0,
    }
    name = type(decided.outcome).__name__
    known = {"offset": decided.offset, "id": decided.id, "outcome": name}
    return {**known, **empty, **fields(decided.outcome)}


def fields(outcome: Decision) -> Record:
    """What an outcome has beside its name."""
    match outcome:
        case Appended(uppers):
            return {"frontiers": [frontier_record(each) for each in uppers]}
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
    """The fields of an outcome that says a word, or nothing."""
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


def from_record(record: Record) -> Decided:
    """A remembered outcome from its fields.

    Errors: Corrupt when there is no outcome of this name.
    """
    return Decided(record["id"], Offset(record["offset"]), to_outcome(record))


def to_outcome(record: Record) -> Decision:
    """The outcome in a record."""
    name: str = record["outcome"]
    bare = BARE_BY_NAME.get(name)
    if bare is not None:
        return bare()
    text, subject = record["text"], CollectionId(record["subject"])
    if name == "Refused" and text in MISUSES:
        return Refused(Misuse(text))
    frontiers = tuple(to_frontier(each) for each in record["frontiers"])
    made: dict[str, Decision] = {
        "Fenced": Fenced(text, subject),
        "UnknownStage": UnknownStage(text),
        "WrongGroup": WrongGroup(text),
        "UnknownCapability": UnknownCapability(text),
        "UnknownCollection": UnknownCollection(subject),
        "Overtaken": Overtaken(subject),
        "OffsetsMismatch": OffsetsMismatch(to_offsets(record["offsets"]) or {}, subject),
        "TokenMismatch": TokenMismatch(text),
        "RolledUp": RolledUp(Offset(record["number"])),
        "Advanced": Advanced(record["number"]),
        "Appended": Appended(frontiers),
    }
    if frontiers:
        made["UpperMismatch"] = UpperMismatch(frontiers[0], subject)
        made["Acquired"] = Acquired(frontiers[0])
        made["Cloned"] = Cloned(frontiers[0])
        made["Transferred"] = Transferred(frontiers[0])
        made["Downgraded"] = Downgraded(frontiers[0])
    if name not in made:
        raise Corrupt(f"rollup: expected the name of an outcome, actual {name} {text}")
    return made[name]
