"""Hypothesis strategies for descriptions and commands."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
    SinkDescription,
)
from streams.compute.peeks import (
    MOST_COPIED,
    CancelPeek,
    CopyFiles,
    KeyLookup,
    Peek,
    PeekTarget,
)
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    InitializationComplete,
    Schedule,
    UpdateConfiguration,
)
from streams.compute.subscribes import AcknowledgeSubscribe, CancelSubscribe, Subscribe
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.plan.metadata import Included, Located, Watermark
from streams.plan.physical import Column, SortKey
from streams.progress import EMPTY, frontier

IDS = [CollectionId(f"u{number}") for number in range(4)]
INSTANCE = CreateInstance("sw", 2)


def description(export: str, plan: str = "{}", as_of: int = 5) -> DataflowDescription:
    return DataflowDescription(
        export=CollectionId(export),
        kind="view",
        name=f"view of {export}",
        group=export,
        columns=(Column("a", "BIGINT"), Column("b", "VARCHAR")),
        as_of=Timestamp(as_of),
        imports=(ImportDescription(CollectionId("s1"), "s1", CapabilityId(f"h-{export}")),),
        plan=plan,
        capability=CapabilityId(f"w-{export}"),
    )


INGESTION = DataflowDescription(
    export=CollectionId("s1"),
    kind="ingestion",
    name="orders",
    group="s1",
    columns=(Column("id", "BIGINT"), Column("note", "VARCHAR")),
    as_of=Timestamp(1_700_000_000_000),
    capability=CapabilityId("w-s1"),
    source=IngestionDescription(
        topic=Topic("orders"),
        topic_id="AAAA",
        envelope="upsert",
        keys=("note",),
        key_format="text",
        included=(Included("offset", "o"), Included("key", "k")),
        located=(Located("id", ("a", "b c")),),
        watermark=Watermark(
            column="at", delay_ms=5_000, late_rows="place", idle_ms=30_000, ahead_ms=86_400_000
        ),
    ),
)
REBASE = DataflowDescription(
    export=CollectionId("r2"),
    kind="rebase",
    name="orders now",
    group="r2",
    columns=(Column("id", "BIGINT"),),
    as_of=Timestamp(7),
    imports=(ImportDescription(CollectionId("s1"), "s1", CapabilityId("h-r2")),),
    capability=CapabilityId("w-r2"),
)
SINK = DataflowDescription(
    export=CollectionId("k9"),
    kind="sink",
    name="out",
    group="",
    columns=(Column("id", "BIGINT"),),
    as_of=Timestamp(7),
    imports=(ImportDescription(CollectionId("u1"), "u1", CapabilityId("h-k9")),),
    sink=SinkDescription(Topic("out"), ("id",), 8),
)
INDEX = DataflowDescription(
    export=CollectionId("i8"),
    kind="index",
    name="by id",
    group="",
    columns=(Column("id", "BIGINT"),),
    as_of=Timestamp(7),
    imports=(ImportDescription(CollectionId("u1"), "u1", CapabilityId("")),),
    plan="{}",
)


def dataflow(export: str, plan: str, as_of: int) -> DataflowDescription:
    """A view; `u0` is a source."""
    if export == IDS[0]:
        return replace(INGESTION, export=IDS[0], as_of=Timestamp(as_of))
    return description(export, plan, as_of)


ids = st.sampled_from(IDS)
creates = st.builds(
    lambda export, plan, as_of: CreateDataflow(dataflow(export, plan, as_of)),
    ids,
    st.sampled_from("xy"),
    st.integers(0, 9),
)
compactions = st.builds(
    AllowCompaction, ids, st.one_of(st.just(EMPTY), st.integers(0, 9).map(frontier))
)
uuids = st.sampled_from("pq")
peeks = st.builds(
    lambda uuid, target, limit, lookup: Peek(
        uuid=uuid,
        target=PeekTarget(target, target),
        time=Timestamp(5),
        plan="{}",
        project=(1, 0),
        most_bytes=9,
        limit=limit,
        lookup=lookup,
        order=(SortKey(1, descending=True, nulls_first=False),),
    ),
    uuids,
    ids,
    st.none() | st.integers(0, 3),
    st.none() | st.just(KeyLookup((0,), b"keys")),
)
copies = st.builds(
    lambda uuid, target, replica, file_bytes: Peek(
        uuid=uuid,
        target=PeekTarget(target, target),
        time=Timestamp(5),
        plan="{}",
        project=(1, 0),
        most_bytes=MOST_COPIED,
        order=(SortKey(1, descending=True, nulls_first=False),),
        replica=replica,
        files=CopyFiles("file:///exports/v", ("a", "b c"), file_bytes),
    ),
    uuids,
    ids,
    st.sampled_from(["", "r1"]),
    st.integers(1, 1 << 40),
)
subscribes = st.builds(
    lambda uuid, target, snapshot, until: Subscribe(
        uuid=uuid,
        collection=target,
        group=target,
        as_of=Timestamp(5),
        plan="{}",
        project=(1, 0),
        snapshot=snapshot,
        until=until,
    ),
    uuids,
    ids,
    st.booleans(),
    st.none() | st.integers(6, 9),
)
updates = st.builds(
    UpdateConfiguration,
    st.dictionaries(
        st.sampled_from(["heartbeat_ms", "frontiers_ms", "later"]),
        st.sampled_from([1000, 2000]),
    ),
)
computations = st.one_of(
    creates,
    updates,
    compactions,
    st.builds(Schedule, ids),
    peeks,
    copies,
    st.builds(CancelPeek, uuids),
    subscribes,
    st.builds(AcknowledgeSubscribe, uuids, st.integers(0, 9)),
    st.builds(CancelSubscribe, uuids),
)


def legal(commands: Sequence[Command], seen: set[CollectionId]) -> Iterator[Command]:
    for command in commands:
        if isinstance(command, CreateDataflow):
            if command.description.export in seen:
                continue
            seen.add(command.description.export)
        elif isinstance(command, AllowCompaction | Schedule) and command.id not in seen:
            continue
        yield command


@st.composite
def histories(draw: st.DrawFn) -> list[Command]:
    """A legal history: an export is created once, and commands follow its creation."""
    seen: set[CollectionId] = set()
    before = list(legal(draw(st.lists(computations, max_size=8)), seen))
    after = list(legal(draw(st.lists(computations, max_size=8)), seen))
    later = list(legal(draw(st.lists(computations, max_size=8)), seen))
    return [INSTANCE, *before, InitializationComplete(), *after, AllowWrites(), *later]
