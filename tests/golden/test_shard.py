"""Golden vectors: for each kind of event, log bytes and the state they fold to (rule 15).

`shard/*.json` are for clients in other languages to check their fold with: `log` is the
records' values in hexadecimal with their append times, `outcomes` what became of each,
`state` the body that a Rollup of the state would have (`shard_state` or a later form), `hash`
its SHA-256. Once written a file is never rewritten: these bytes are in topics out there.
`ADD=1` writes the file of a case that has none.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef, Range
from streams.progress import EMPTY, frontier
from streams.storage.log import event_codec, rollup
from streams.storage.log.dedup_window import COMMAND
from streams.storage.log.events import (
    Acquire,
    Advance,
    Append,
    BatchName,
    Body,
    Clone,
    Create,
    Downgrade,
    Drop,
    Event,
    Part,
    Reclaim,
    Renewal,
    Replace,
    Right,
    Rollup,
    Stage,
    Transfer,
)
from streams.storage.log.machine import step
from streams.storage.log.state import State
from tests.support.shard_script import told

FOLDER = Path(__file__).parent / "shard"
U1 = CollectionId("u1")
WRITE, READ, OTHER = CapabilityId("u1.write"), CapabilityId("u1.read"), CapabilityId("other")


def chunk(partition: int, offset: int) -> ChunkRef:
    key = f"{partition:016x}{offset:016x}"
    return ChunkRef(partition, Offset(offset), key, 0xC0FFEE + offset, 10 + offset, 1_000)


def append(lower: int, upper: int | None, *chunks: ChunkRef, **more: object) -> Append:
    bound = EMPTY if upper is None else frontier(upper)
    part = Part(
        collection=U1,
        capability=WRITE,
        lower=frontier(lower),
        upper=bound,
        chunks=chunks,
        **more,  # type: ignore[arg-type]  # named by the cases below
    )
    return Append((part,))


CREATE = Create(
    collection=U1,
    description='{"columns":[{"name":"ä","type":"INTEGER"}],"keys":[],"kind":"view"}',
    frontier=Timestamp(5),
    write=WRITE,
    read=READ,
)
TWO = (
    BatchName(Offset(1), 0, Timestamp(5), frontier(10)),
    BatchName(Offset(2), 0, Timestamp(10), frontier(15)),
)
TWO_BATCHES = (
    CREATE,
    append(5, 10, chunk(0, 0)),
    append(10, 15, chunk(0, 1)),
    Downgrade(collection=U1, capability=READ, frontier=frontier(12)),
)
LEASED = Create(
    collection=U1,
    description="{}",
    frontier=Timestamp(5),
    write=WRITE,
    read=READ,
    lease_ms=60_000,
)
SECOND = Create(
    collection=CollectionId("u2"),
    description="{}",
    frontier=Timestamp(0),
    write=CapabilityId("u2.write"),
)
BOTH = Append(
    (
        *append(5, 9, chunk(0, 0)).parts,
        Part(
            collection=SECOND.collection,
            capability=SECOND.write,
            lower=frontier(0),
            upper=frontier(9),
        ),
    )
)

AT_SECOND = Append((BOTH.parts[1],))
THIRD = replace(SECOND, collection=CollectionId("u3"), write=CapabilityId("u3.write"))


def shared(created: Create) -> Acquire:
    return Acquire(
        collection=created.collection, capability=OTHER, right=Right.WRITE, lease_ms=350
    )


def at(created: Create, capability: CapabilityId, lower: int, upper: int | None) -> Append:
    bound = EMPTY if upper is None else frontier(upper)
    part = replace(AT_SECOND.parts[0], collection=created.collection, capability=capability)
    return Append((replace(part, lower=frontier(lower), upper=bound),))


def renewal(capability: CapabilityId, at: int) -> Renewal:
    return Renewal(collection=U1, capability=capability, frontier=frontier(at))


CASES: dict[str, Sequence[Body]] = {
    "create": [CREATE, SECOND, CREATE],
    "append": [CREATE, append(5, 10, chunk(0, 0), chunk(1, 0)), append(5, 11), append(10, 12)],
    "append-parts": [CREATE, SECOND, BOTH, BOTH],
    "append-sealing": [CREATE, append(5, None, chunk(0, 0)), append(5, 10)],
    "append-source": [
        CREATE,
        append(5, 10, chunk(0, 0), from_offsets={}, to_offsets={0: 100, 1: 7}),
        append(10, 15, from_offsets={0: 100, 1: 7}, to_offsets={0: 100, 1: 7}),
        append(15, 20, from_offsets={0: 99, 1: 7}, to_offsets={0: 120, 1: 7}),
    ],
    "append-fingerprint": [
        CREATE,
        append(5, 10, fingerprint="old"),
        append(10, 15, fingerprint="new"),
        append(15, 20, fingerprint="old"),
    ],
    "append-read": [
        CREATE,
        append(5, 10, chunk(0, 0)),
        replace(append(10, 15, chunk(0, 1)), read_upto=Offset(0)),
        replace(append(10, 15, chunk(0, 1)), read_upto=Offset(2)),
        append(15, 20),
        replace(append(20, 25), read_upto=Offset(3)),
    ],
    "append-read-merged": [
        CREATE,
        append(5, 10, chunk(0, 0)),
        append(10, 15, chunk(0, 1)),
        Downgrade(collection=U1, capability=READ, frontier=frontier(12)),
        Replace(collection=U1, replaced=TWO, chunks=(), since=Timestamp(12)),
        replace(append(15, 20, chunk(0, 2)), read_upto=Offset(3)),
        SECOND,
        Drop(SECOND.collection),
    ],
    "append-renewal": [
        replace(LEASED, write=OTHER),
        SECOND,
        replace(AT_SECOND, renewals=(renewal(OTHER, 5),)),
        replace(AT_SECOND, renewals=(renewal(OTHER, 5),)),
        Append(
            (replace(AT_SECOND.parts[0], lower=frontier(9), upper=frontier(12)),),
            renewals=(renewal(WRITE, 5),),
        ),
    ],
    "stage": [
        CREATE,
        Stage(stage="load", chunks=(chunk(0, 1), chunk(1, 1)), lease_ms=60_000),
        Stage(stage="load", chunks=(chunk(0, 2),), lease_ms=60_000),
        Stage(stage="kept", chunks=(chunk(0, 3),), lease_ms=60_000),
        append(5, 10, stages=("load",)),
        append(10, 15, stages=("load",)),
    ],
    "reclaim": [
        CREATE,
        append(5, 10, chunk(0, 3)),
        Reclaim({0: 9, 1: 4}),
        append(10, 15, chunk(0, 4)),
        append(10, 15, chunk(0, 9)),
    ],
    "replace": [
        *TWO_BATCHES,
        Replace(
            collection=U1,
            replaced=TWO,
            chunks=(chunk(0, 2),),
            since=Timestamp(12),
        ),
        Replace(
            collection=U1,
            replaced=(BatchName(Offset(1), 0, Timestamp(5), frontier(10)),),
            chunks=(),
            since=Timestamp(0),
        ),
    ],
    "replace-stages": [
        *TWO_BATCHES,
        Stage(stage="merge", chunks=(chunk(0, 3), chunk(1, 3)), lease_ms=60_000),
        Stage(stage="merge", chunks=(chunk(0, 4),), lease_ms=60_000),
        Stage(stage="kept", chunks=(chunk(0, 5),), lease_ms=60_000),
        Replace(collection=U1, replaced=TWO, chunks=(), since=Timestamp(12), stages=("gone",)),
        Replace(
            collection=U1,
            replaced=TWO,
            chunks=(replace(chunk(0, 2), ranges=(Range(-1, 7),)),),
            since=Timestamp(12),
            stages=("merge",),
        ),
    ],
    "replace-ranges": [
        *TWO_BATCHES,
        Replace(
            collection=U1,
            replaced=TWO,
            chunks=(
                replace(chunk(0, 2), ranges=(Range(-1, 7), None, Range("ä", "z"))),
                chunk(0, 3),
            ),
            since=Timestamp(12),
        ),
    ],
    "acquire": [
        CREATE,
        append(5, 20),
        Acquire(
            collection=U1,
            capability=OTHER,
            right=Right.READ,
            frontier=Timestamp(8),
            lease_ms=60_000,
            plan=Offset(1),
        ),
        Acquire(collection=U1, capability=CapabilityId("more"), right=Right.WRITE),
    ],
    "create-leased": [LEASED, LEASED],
    "create-system-fed": [
        replace(LEASED, is_write_critical=True),
        replace(CREATE, collection=SECOND.collection, is_write_critical=True),
    ],
    "append-token": [
        CREATE,
        Downgrade(collection=U1, capability=WRITE, frontier=frontier(5), new_token="one"),
        append(5, 10, chunk(0, 0)),
        append(5, 10, chunk(0, 0), token="one"),
    ],
    "append-ranges": [
        CREATE,
        append(
            5,
            10,
            replace(chunk(0, 0), ranges=(Range(-1, 7), None, Range("ä", "z"), Range(0.5, 1.5))),
            chunk(1, 0),
        ),
        append(10, 15, chunk(0, 1)),
    ],
    "advance": [
        CREATE,
        SECOND,
        Advance(Timestamp(5), Timestamp(30)),
        Acquire(collection=U1, capability=OTHER, right=Right.WRITE),
        Advance(Timestamp(30), Timestamp(40)),
        Advance(Timestamp(40), Timestamp(40)),
    ],
    "clone": [
        CREATE,
        Clone(collection=U1, capability=READ, clone=OTHER, lease_ms=60_000),
        Clone(collection=U1, capability=WRITE, clone=CapabilityId("more")),
        Clone(collection=U1, capability=OTHER, clone=READ),
        Clone(collection=U1, capability=CapabilityId("gone"), clone=CapabilityId("x")),
    ],
    "transfer": [
        CREATE,
        Transfer(collection=U1, capability=WRITE, to=OTHER),
        append(5, 10),
        Transfer(collection=U1, capability=WRITE, to=CapabilityId("more")),
        Transfer(collection=U1, capability=READ, to=OTHER),
    ],
    "token": [
        CREATE,
        Acquire(collection=U1, capability=OTHER, right=Right.READ, token="one"),
        Downgrade(collection=U1, capability=OTHER, frontier=frontier(8)),
        Downgrade(
            collection=U1,
            capability=OTHER,
            frontier=frontier(9),
            token="one",
            new_token="two",
        ),
        Clone(collection=U1, capability=OTHER, clone=CapabilityId("more"), token="one"),
        Clone(collection=U1, capability=OTHER, clone=CapabilityId("more"), token="two"),
        Transfer(collection=U1, capability=OTHER, to=CapabilityId("moved"), token="two"),
        Drop(U1, CapabilityId("moved"), "one"),
        Drop(U1, CapabilityId("moved"), "two"),
    ],
    "downgrade": [
        CREATE,
        append(5, 20),
        Downgrade(collection=U1, capability=READ, frontier=frontier(11), plan=Offset(2)),
        Downgrade(collection=U1, capability=READ, frontier=frontier(7)),
        Downgrade(collection=U1, capability=WRITE, frontier=frontier(30)),
        Downgrade(collection=U1, capability=READ, frontier=EMPTY),
    ],
    "drop": [
        CREATE,
        SECOND,
        append(5, 20, chunk(0, 0)),
        Drop(U1, READ),
        Drop(SECOND.collection, SECOND.write),
        Drop(U1),
    ],
    "drop-whole": [
        replace(LEASED, lease_ms=1_000_000),
        append(5, 20, chunk(0, 0)),
        Acquire(collection=U1, capability=OTHER, right=Right.READ, lease_ms=250),
        Drop(U1, CapabilityId("gone"), whole=True),
        Drop(U1, READ, whole=True),  # the other still reads, until its lease ends
        Drop(U1, READ, whole=True),
        Reclaim({}),
        SECOND,
        Drop(SECOND.collection, SECOND.write, whole=True),
        SECOND,
    ],
    "drop-sole": [
        CREATE,
        append(5, 20, chunk(0, 0)),
        Acquire(collection=U1, capability=OTHER, right=Right.WRITE),
        Drop(U1, READ, whole=True, sole=True),  # two others may write
        Drop(U1, OTHER, whole=True, sole=True),
        Drop(U1, OTHER),
        Drop(U1, WRITE, whole=True, sole=True),
        Drop(U1, READ),
    ],
    "sealing": [
        CREATE,
        shared(CREATE),
        append(5, 10, chunk(0, 0)),
        append(10, None, chunk(0, 1)),
        SECOND,
        shared(SECOND),  # the lease of the first ends here, and seals it
        at(SECOND, SECOND.write, 0, None),
        at(SECOND, OTHER, 0, 9),
        THIRD,
        shared(THIRD),  # and here that of one who has written since, which seals nothing
        at(THIRD, THIRD.write, 0, None),
    ],
    "commands": [
        CREATE,
        append(5, 20, chunk(0, 0)),
        append(5, 30, chunk(0, 1)),
        Transfer(collection=U1, capability=READ, to=OTHER),
    ],
    "silence": [
        LEASED,
        Acquire(collection=U1, capability=OTHER, right=Right.READ, lease_ms=90_000),
        Stage(stage="load", chunks=(chunk(0, 1),), lease_ms=30_000),
        Downgrade(collection=U1, capability=WRITE, frontier=frontier(9)),
        Downgrade(collection=U1, capability=READ, frontier=frontier(9)),
    ],
    "lease-for-ever": [
        replace(LEASED, lease_ms=(1 << 63) - 1),
        Acquire(collection=U1, capability=OTHER, right=Right.READ, lease_ms=(1 << 63) - 1),
        Stage(stage="load", chunks=(chunk(0, 1),), lease_ms=(1 << 63) - 1),
        Clone(
            collection=U1, capability=READ, clone=CapabilityId("more"), lease_ms=(1 << 63) - 1
        ),
        Downgrade(collection=U1, capability=READ, frontier=frontier(9)),
    ],
    "rollup": [
        CREATE,
        *([Reclaim({})] * 130),
        Rollup(upto=Offset(63), chunks=(chunk(0, 5),), hash="ab" * 32),
        Rollup(upto=Offset(127), chunks=(chunk(0, 6),), hash="cd" * 32),
        Rollup(upto=Offset(63), chunks=(chunk(0, 7),), hash="ef" * 32),
    ],
}

PASSING_MS = {"silence": 3_600_000}
"""What lies between two records of a case, if it is not 100 ms."""


def log_of(case: str) -> list[dict[str, object]]:
    start = COMMAND if case == "commands" else ""
    return [
        {
            "at_ms": 1_000_000 + number * PASSING_MS.get(case, 100),
            "value": event_codec.encode(
                Event(EventId(f"{start}{number:032x}"), "f00d" * 8, Offset(number - 1), body)
            ).hex(),
        }
        for number, body in enumerate(CASES[case])
    ]


def fold(log: list[dict[str, object]]) -> tuple[list[str], State]:
    state, outcomes = State(), []
    for number, record in enumerate(log):
        event = event_codec.decode(bytes.fromhex(str(record["value"])))
        state, outcome = step(state, event, Offset(number), int(str(record["at_ms"])))
        outcomes.append(told(outcome))
    return outcomes, state


def vector(log: list[dict[str, object]]) -> dict[str, object]:
    outcomes, state = fold(log)
    body = rollup.encode(state)
    return {
        "log": log,
        "outcomes": outcomes,
        "state": body.hex(),
        "hash": rollup.hash_of(body),
    }


@pytest.mark.parametrize("case", CASES)
def test_the_bytes_of_a_log_fold_to_the_state(case: str) -> None:
    path = FOLDER / f"{case}.json"
    if not path.exists() and os.environ.get("ADD"):
        path.write_text(json.dumps(vector(log_of(case)), indent=1) + "\n")
    golden = json.loads(path.read_text())
    assert log_of(case) == golden["log"], "the bytes we write"
    assert vector(golden["log"]) == golden, "what we make of the bytes that were written"


def test_every_kind_of_event_has_a_vector() -> None:
    kinds = {type(body) for bodies in CASES.values() for body in bodies}
    assert kinds == set(Body.__args__)
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)
