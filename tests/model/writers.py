"""Who brings data in: table writers, and ingestions of a raw topic with an UPSERT envelope."""

from collections.abc import Generator
from dataclasses import dataclass, replace

from streams.compute.reclocking import (
    Clock,
    Ends,
    Follow,
    Ingest,
    Position,
    Rebuild,
    Tick,
    next_interval,
    ranges,
)
from streams.compute.stepping import Step, clip
from streams.ids import CapabilityId
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, frontier
from streams.storage.log.events import Append, Downgrade, Part
from streams.storage.log.outcomes import Appended, Outcome, UpperMismatch
from tests.model.mutations import Mutation
from tests.model.world import (
    SRC,
    TAB,
    Client,
    Disk,
    Process,
    Row,
    Update,
    World,
    clipped,
    pieces,
)

TAB_WRITE, SRC_WRITE = CapabilityId("tab.w"), CapabilityId("src.w")
KEYS = 3


def table_writer(world: World, disk: Disk) -> Process:
    """Insert and delete rows, each write at one new time; tick when there is nothing to do."""
    client, mine = Client(world), list[Row]()
    while True:
        yield
        client.sync(TAB)
        lower = client.collection(TAB).upper
        time = max(world.now, lower.time)
        if world.resting and lower.time > world.now:
            continue
        if not world.busy or not world.chance(0.3 * world.weather.busy):
            yield from _tick(world, client, lower, time)
            continue
        world.serial += 1
        intent, rows = world.serial, _some_rows(world, mine)
        if (yield from _write(world, client, intent, rows)):
            world.acknowledged.add(intent)
            mine += [row for row, diff in rows if diff > 0]


def _tick(world: World, client: Client, lower: Antichain, time: int) -> Process:
    upper = frontier(time + 1)
    if world.chance(0.5):
        body = Downgrade(collection=TAB, capability=TAB_WRITE, frontier=upper)
        yield from client.submit(TAB, body)
    else:
        yield from client.submit(TAB, Append((_table_part(lower, upper, ()),)))


def _some_rows(world: World, mine: list[Row]) -> list[tuple[Row, int]]:
    rows: list[tuple[Row, int]] = []
    for _ in range(world.rng.randint(1, 2)):
        if mine and world.chance(0.4):
            rows.append((mine.pop(), -1))
        else:
            until = world.now + world.rng.randint(1, 25) if world.chance(0.4) else None
            world.serial += 1
            rows.append(((world.rng.randrange(KEYS), world.serial, until), 1))
    return rows


def _write(
    world: World, client: Client, intent: int, rows: list[tuple[Row, int]]
) -> Generator[None, None, bool]:
    """Write until it counts: who lost is given a new time and writes anew (rule 18)."""
    while True:
        lower = client.collection(TAB).upper
        time = max(world.now, lower.time)
        updates = tuple((row, time, diff) for row, diff in rows)
        yield
        chunk = world.write(TAB, updates, f"{TAB}-{time}")
        yield
        part = _table_part(lower, frontier(time + 1), (chunk,))
        outcome = yield from _append_once(world, client, part, (intent, updates))
        if isinstance(outcome, Appended):
            return True
        if world.without(Mutation.RULE_18_TABLE) and isinstance(outcome, UpperMismatch):
            step = Step(part.lower, part.upper)
            if clip(step, outcome.current) is None:
                return True


def _append_once(
    world: World, client: Client, part: Part, intent: tuple[int, tuple[Update, ...]]
) -> Generator[None, None, Outcome]:
    event = client.event(TAB, Append((part,)))
    world.intents[event.id] = intent
    if not world.without(Mutation.RULE_1_ID):
        return (yield from client.submit(TAB, event.body, event))
    while True:
        world.send(TAB, event)
        for _ in range(3):
            yield
            client.sync(TAB)
            outcome = client.outcome(TAB, event.id)
            if outcome is not None:
                return outcome
        event = client.event(TAB, Append((part,)))
        lower = client.collection(TAB).upper
        if part.lower != lower:  # as if it had been lost: at a new time, and under a new id
            time = max(world.now, lower.time)
            updates = tuple((row, time, diff) for row, _, diff in intent[1])
            chunk = world.write(TAB, updates, f"{TAB}-{time}")
            part = _table_part(lower, frontier(time + 1), (chunk,))
            event, intent = client.event(TAB, Append((part,))), (intent[0], updates)
        world.intents[event.id] = intent


def _table_part(lower: Antichain, upper: Antichain, chunks: tuple[ChunkRef, ...]) -> Part:
    return Part(collection=TAB, capability=TAB_WRITE, lower=lower, upper=upper, chunks=chunks)


Latest = dict[int, int]


def ingestion(world: World, disk: Disk) -> Process:
    """Bind the raw topic to times, keeping the latest value of each key as state."""
    client = Client(world)
    client.sync(SRC)
    own, latest = yield from _resume(world, client, disk)
    while True:
        yield
        client.sync(SRC)
        topic = {p: Ends(0, len(messages)) for p, messages in enumerate(world.raw)}
        clock = Clock(world.now - world.rng.choice((0, 0, 4)), tick_ms=3, skew_ms=0)
        shard = _position(client)
        match next_interval(own, shard, topic, clock, world.weather.budget):
            case Rebuild(at) if world.without(Mutation.RULE_18_STATE):
                own = at
            case Rebuild():
                own, latest = yield from _rebuild(world, client)
            case Follow(at):
                own = at
            case Tick(lower, upper, offsets):
                part = _source_part(Position(lower, offsets), Position(upper, offsets), ())
                yield from client.submit(SRC, Append((part,)))
            case Ingest() as step:
                new = dict(latest)
                updates = _upsert(world, step, topic, new)
                yield
                chunks = (world.write(SRC, updates, f"{SRC}-{step.upper}"),) if updates else ()
                yield
                after = Position(step.upper, step.to_offsets)
                if (yield from _append(client, world, own, after, chunks)):
                    own, latest = after, new
                    _save(world, disk, own, latest)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Messages bound to a time, by somebody who may yet lose the race for it."""

    before: Position
    after: Position
    updates: tuple[Update, ...]


def attempt(world: World, client: Client) -> Generator[None, None, Attempt | None]:
    """What an ingestion whose state is where the shard is would do now, if there is anything.

    Sources move together: it goes no further than the table has come, but for one time.
    """
    own, latest = yield from _rebuild(world, client)
    topic = {p: Ends(0, len(messages)) for p, messages in enumerate(world.raw)}
    clock = Clock(min(world.now, client.collection(TAB).upper.time - 1), tick_ms=3, skew_ms=0)
    ingest = next_interval(own, own, topic, clock, world.weather.budget)
    if not isinstance(ingest, Ingest):
        return None
    updates = _upsert(world, ingest, topic, latest)
    return Attempt(own, Position(ingest.upper, ingest.to_offsets), updates)


def make(world: World, client: Client, target: Attempt) -> Generator[None, None, bool]:
    """Make the attempt's Append, once; whether it counted."""
    meaning = f"{SRC}-{target.after.frontier}"
    chunks = (world.write(SRC, target.updates, meaning),) if target.updates else ()
    yield
    return (yield from _append(client, world, target.before, target.after, chunks))


def _position(client: Client) -> Position:
    collection = client.collection(SRC)
    return Position(collection.upper, dict(collection.source or {}))


def _save(world: World, disk: Disk, own: Position, latest: Latest) -> None:
    run = world.name("run")
    disk.runs[run] = dict(latest)
    disk.offsets = {"src": (own.frontier.time, dict(own.offsets), run)}


def _resume(
    world: World, client: Client, disk: Disk
) -> Generator[None, None, tuple[Position, Latest]]:
    shard = _position(client)
    for _, offsets, run in disk.offsets.values():
        if offsets == shard.offsets:
            state = disk.runs[run]
            assert isinstance(state, dict)
            return shard, dict(state)
    return (yield from _rebuild(world, client))


def _rebuild(world: World, client: Client) -> Generator[None, None, tuple[Position, Latest]]:
    """The keyed state is what the shard holds at its last time."""
    while True:
        shard = _position(client)
        latest: dict[int, int] = {}
        complete = True
        count: dict[Row, int] = {}
        for piece in pieces(client.collection(SRC), 0, shard.frontier.time):
            content = world.fetch(SRC, piece.ref)
            complete = complete and content is not None
            for row, _, diff in clipped(content, piece) if content is not None else ():
                count[row] = count.get(row, 0) + diff
            yield
        if complete:
            for (key, value), diff in count.items():
                if diff > 0 and key is not None and value is not None:
                    latest[key] = value
            return shard, latest
        client.sync(SRC)
        yield


def _upsert(
    world: World, step: Ingest, topic: dict[int, Ends], latest: Latest
) -> tuple[Update, ...]:
    before = dict(latest)
    for partition, (start, stop) in ranges(step, topic).items():
        for key, value in world.raw[partition][start:stop]:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
    updates: list[Update] = []
    for key in sorted({*before, *latest}):
        if before.get(key) != latest.get(key):
            if key in before:
                updates.append(((key, before[key]), step.time, -1))
            if key in latest:
                updates.append(((key, latest[key]), step.time, 1))
    return tuple(updates)


def _append(
    client: Client, world: World, own: Position, after: Position, chunks: tuple[ChunkRef, ...]
) -> Generator[None, None, bool]:
    """One attempt: who loses throws his chunks away (rule 18)."""
    part = _source_part(own, after, chunks)
    outcome = yield from client.submit(SRC, Append((part,)))
    while world.without(Mutation.RULE_18_RELINK) and isinstance(outcome, UpperMismatch):
        open_ = clip(Step(part.lower, part.upper), outcome.current)
        if open_ is None:
            return False
        bound = _position(client).offsets
        ahead = {p: max(o, bound.get(p, 0)) for p, o in after.offsets.items()}
        part = replace(part, lower=open_[0], from_offsets=bound, to_offsets=ahead)
        outcome = yield from client.submit(SRC, Append((part,)))
    return isinstance(outcome, Appended)


def _source_part(before: Position, after: Position, chunks: tuple[ChunkRef, ...]) -> Part:
    return Part(
        collection=SRC,
        capability=SRC_WRITE,
        lower=before.frontier,
        upper=after.frontier,
        chunks=chunks,
        from_offsets=before.offsets,
        to_offsets=after.offsets,
    )
