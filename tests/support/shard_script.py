"""The directives of `tests/datadriven/shard`: a log of one group, folded event by event.

Chunks are written `partition@offset`, frontiers as a time or `-` for the empty one, source
bindings as `partition:offset,...`. Every event may set `id=`, `seen=`, `group=`, `at=` (its
append time in ms); it has a fresh id, a writer that has seen everything, and comes 10 ms after
the one before it, otherwise. `again id=` sends a copy.
"""

from collections.abc import Callable
from dataclasses import fields

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log import event_codec, rollup
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
from streams.storage.log.outcomes import Outcome
from streams.storage.log.state import CollectionState, State
from streams.storage.read import reader as read
from tests.support.datadriven import Case


class ShardScript:
    """One log of one group."""

    def __init__(self) -> None:
        self.state = State()
        self.at_ms = 1_000
        self.sent: dict[str, Event] = {}

    def handle(self, case: Case) -> str:
        if case.directive in BODIES:
            return self.send(case, BODIES[case.directive](self, case))
        return {
            "again": self.again,
            "noise": self.noise,
            "state": self.show,
            "pieces": self.pieces,
            "source-at": self.source_at,
            "reload": self.reload,
            "chunks": self.named,
        }[case.directive](case)

    def send(self, case: Case, body: Body) -> str:
        seen = Offset(case.number("seen", self.state.upto))
        name = case.get("id", f"e{self.state.upto + 1}")
        event = Event(EventId(name), case.get("group", "g"), seen, body)
        self.sent[name] = event
        return self.fold(event, case)

    def fold(self, event: Event, case: Case) -> str:
        # through the bytes, so that every script is a test of the codec too
        event = event_codec.decode(event_codec.encode(event))
        self.at_ms = case.number("at", self.at_ms + 10)
        self.state, outcome = step(self.state, event, Offset(self.state.upto + 1), self.at_ms)
        return f"{self.state.upto}: {told(outcome)}"

    def again(self, case: Case) -> str:
        return self.fold(self.sent[case["id"]], case)

    def noise(self, case: Case) -> str:
        """Events that change nothing but make the log longer."""
        for _ in range(case.number("events")):
            offset = Offset(self.state.upto + 1)
            id_ = EventId(f"{case.get('prefix')}noise{offset}")
            event = Event(id_, "g", self.state.upto, Reclaim({}))
            self.state, _ = step(self.state, event, offset, self.at_ms)
        return f"upto {self.state.upto}"

    def show(self, case: Case) -> str:
        state = self.state
        lines = [
            line
            for _, collection in sorted(state.collections.items())
            for line in shown(collection)
        ]
        if state.floor:
            lines.append(f"floor {binding(state.floor)}")
        lines += [
            f"stage {name} {chunks_text(stage.chunks)} until {stage.expires_ms}"
            for name, stage in state.stages.items()
        ]
        lines += [f"superseded at {s.offset} {chunks_text(s.chunks)}" for s in state.superseded]
        lines += [f"rollup upto {r.upto} {chunks_text(r.chunks)}" for r in state.rollups]
        if "clock" in case.arguments:
            lines.append(f"clock {state.clock_ms}")
        return "\n".join(lines)

    def pieces(self, case: Case) -> str:
        collection = self.state.collections[CollectionId(case["of"])]
        pieces = read.pieces(collection, stamp(case["lower"]), stamp(case["upper"]))
        return (
            "\n".join(f"{chunk_text(p.ref)} [{p.lower}, {p.upper})" for p in pieces) or "none"
        )

    def source_at(self, case: Case) -> str:
        collection = self.state.collections[CollectionId(case["of"])]
        upper = stamp(case["upper"])
        batches = collection.batches.overlapping(Timestamp(upper - 1), upper)
        sourced = [batch for batch in batches if batch.source is not None]
        return binding(max(sourced, key=lambda batch: batch.lower).source if sourced else None)

    def reload(self, case: Case) -> str:
        """Go on from the state as a Rollup would bring it back."""
        body = rollup.encode(self.state)
        self.state = rollup.decode(body)
        return "same" if rollup.encode(self.state) == body else "different"

    def named(self, case: Case) -> str:
        return " ".join(sorted(chunk_text(chunk) for chunk in self.state.chunks()))


def told(outcome: Outcome) -> str:
    words = [told_value(getattr(outcome, field.name)) for field in fields(outcome)]
    return " ".join([type(outcome).__name__, *words])


def told_value(value: object) -> str:
    match value:
        case tuple():
            return " ".join(str(item) for item in value)
        case dict():
            return binding(value)
        case _:
            return str(value)


def shown(collection: CollectionState) -> list[str]:
    head = f"{collection.id} since={collection.since} upper={collection.upper}"
    if collection.source is not None:
        head += f" source={binding(collection.source)}"
    if collection.fingerprint:
        head += f" fingerprint={collection.fingerprint}"
    if collection.fenced:
        head += f" fenced={','.join(sorted(collection.fenced))}"
    head += " sealing" if collection.is_sealing else ""
    capabilities = [
        f"  {capability.right.value.lower()} {id_} at {capability.frontier}"
        + (f" plan {capability.plan}" if capability.plan is not None else "")
        + (f" until {capability.expires_ms}" if capability.expires_ms is not None else "")
        + (f" token {capability.token}" if capability.token else "")
        for id_, capability in collection.capabilities.items()
    ]
    batches = [
        f"  batch {batch.offset}.{batch.part} [{batch.lower}, {upper_text(batch.upper)})"
        f" {chunks_text(batch.chunks)}" + (f" since {batch.since}" if batch.since else "")
        for batch in collection.batches.ordered()
    ]
    return [head, *capabilities, *batches]


def upper_text(upper: Antichain) -> str:
    return "-" if upper.is_empty else str(upper.time)


def chunk_text(chunk: ChunkRef) -> str:
    return f"{chunk.partition}@{chunk.offset}"


def chunks_text(chunks: tuple[ChunkRef, ...]) -> str:
    return " ".join(chunk_text(chunk) for chunk in chunks) or "empty"


def binding(offsets: object) -> str:
    if not isinstance(offsets, dict):
        return "none"
    return ",".join(f"{offset}:{offsets[offset]}" for offset in sorted(offsets)) or "nothing"


def stamp(text: str) -> Timestamp:
    return Timestamp(int(text))


def bound(text: str) -> Antichain:
    return EMPTY if text == "-" else frontier(int(text))


def chunks_of(text: str) -> tuple[ChunkRef, ...]:
    return tuple(chunk_of(word) for word in text.split(",") if word)


def chunk_of(word: str) -> ChunkRef:
    partition, offset = word.split("@")
    return ChunkRef(int(partition), Offset(int(offset)), f"key{word}", 7, 1, 100)


def offsets_of(text: str | None) -> dict[int, int] | None:
    if text is None:
        return None
    pairs = (word.split(":") for word in text.split(",") if word)
    return {int(partition): int(offset) for partition, offset in pairs}


def create(script: ShardScript, case: Case) -> Body:
    read_ = CapabilityId(case["read"]) if "read" in case.arguments else None
    return Create(
        collection=CollectionId(case["of"]),
        description=case.get("description", "{}"),
        frontier=Timestamp(case.number("frontier")),
        write=CapabilityId(case.get("write", "w")),
        read=read_,
        lease_ms=lease_of(case),
        is_write_critical="critical-write" in case.arguments,
    )


def append(script: ShardScript, case: Case) -> Body:
    upto = Offset(case.number("read-upto")) if "read-upto" in case.arguments else None
    lines = case.lines()
    parts = tuple(part(words) for words in lines if words[0] != "renew")
    renewals = tuple(renewal(words[1:]) for words in lines if words[0] == "renew")
    return Append(parts, upto, renewals)


def renewal(words: list[str]) -> Renewal:
    collection, capability, at, *token = words
    return Renewal(
        collection=CollectionId(collection),
        capability=CapabilityId(capability),
        frontier=bound(at),
        token="".join(token),
    )


def part(words: list[str]) -> Part:
    collection, capability, lower, upper, *more = words
    extra = dict(word.split("=", 1) for word in more)
    return Part(
        collection=CollectionId(collection),
        capability=CapabilityId(capability),
        lower=bound(lower),
        upper=bound(upper),
        chunks=chunks_of(extra.get("chunks", "")),
        stages=tuple(word for word in extra.get("stages", "").split(",") if word),
        from_offsets=offsets_of(extra.get("from")),
        to_offsets=offsets_of(extra.get("to")),
        fingerprint=extra.get("fingerprint", ""),
        token=extra.get("token", ""),
    )


def stage(script: ShardScript, case: Case) -> Body:
    chunks = chunks_of(case["chunks"])
    return Stage(stage=case["stage"], chunks=chunks, lease_ms=case.number("lease", 60_000))


def reclaim(script: ShardScript, case: Case) -> Body:
    return Reclaim(offsets_of(case.get("floor")) or {})


def replace(script: ShardScript, case: Case) -> Body:
    """The input names batches as `state` shows them: offset.part lower upper."""
    return Replace(
        collection=CollectionId(case["of"]),
        replaced=tuple(batch_name(words) for words in case.lines()),
        chunks=chunks_of(case.get("chunks")),
        since=Timestamp(case.number("since")),
    )


def batch_name(words: list[str]) -> BatchName:
    name, lower, upper = words
    offset, number = name.split(".")
    return BatchName(Offset(int(offset)), int(number), stamp(lower), bound(upper))


def acquire(script: ShardScript, case: Case) -> Body:
    return Acquire(
        collection=CollectionId(case["of"]),
        capability=CapabilityId(case.get("read") or case["write"]),
        right=Right.READ if "read" in case.arguments else Right.WRITE,
        frontier=Timestamp(case.number("at-time")) if "at-time" in case.arguments else None,
        lease_ms=lease_of(case),
        plan=Offset(case.number("plan")) if "plan" in case.arguments else None,
        token=case.get("token"),
    )


def lease_of(case: Case) -> int | None:
    return case.number("lease") if "lease" in case.arguments else None


def clone(script: ShardScript, case: Case) -> Body:
    return Clone(
        collection=CollectionId(case["of"]),
        capability=CapabilityId(case["capability"]),
        clone=CapabilityId(case["as"]),
        lease_ms=lease_of(case),
        token=case.get("token"),
    )


def transfer(script: ShardScript, case: Case) -> Body:
    return Transfer(
        collection=CollectionId(case["of"]),
        capability=CapabilityId(case["capability"]),
        to=CapabilityId(case["to"]),
        token=case.get("token"),
    )


def advance(script: ShardScript, case: Case) -> Body:
    return Advance(stamp(case["from"]), stamp(case["to"]))


def downgrade(script: ShardScript, case: Case) -> Body:
    return Downgrade(
        collection=CollectionId(case["of"]),
        capability=CapabilityId(case["capability"]),
        frontier=bound(case["to"]),
        plan=Offset(case.number("plan")) if "plan" in case.arguments else None,
        token=case.get("token"),
        new_token=case.arguments.get("new-token"),
    )


def drop(script: ShardScript, case: Case) -> Body:
    name = CapabilityId(case["capability"]) if "capability" in case.arguments else None
    is_whole, is_sole = ("whole" in case.arguments, "sole" in case.arguments)
    return Drop(CollectionId(case["of"]), name, case.get("token"), is_whole, is_sole)


def roll_up(script: ShardScript, case: Case) -> Body:
    upto = Offset(case.number("upto"))
    return Rollup(upto=upto, chunks=chunks_of(case["chunks"]), hash=case.get("hash", "h"))


BODIES: dict[str, Callable[[ShardScript, Case], Body]] = {
    "create": create,
    "append": append,
    "advance": advance,
    "stage": stage,
    "reclaim": reclaim,
    "replace": replace,
    "acquire": acquire,
    "clone": clone,
    "transfer": transfer,
    "downgrade": downgrade,
    "drop": drop,
    "rollup": roll_up,
}
