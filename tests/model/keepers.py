"""Who keeps the logs and topics small: compactors, collectors, and writers of Rollups."""

from collections import Counter

from streams.ids import Offset, Timestamp
from streams.storage.log import chunk_gc
from streams.storage.log.batches import Batch
from streams.storage.log.events import Reclaim, Replace, Rollup
from streams.storage.log.outcomes import Reclaimed, RolledUp
from tests.model.mutations import Mutation
from tests.model.truth import visible
from tests.model.world import (
    Client,
    Disk,
    Piece,
    Process,
    Record,
    Row,
    Update,
    World,
    clipped,
)


def compactor(world: World, disk: Disk) -> Process:
    """Merge neighbouring batches into one whose times are advanced to since (rule 9)."""
    client = Client(world)
    while True:
        yield
        name = world.rng.choice(visible(world))
        client.sync(name)
        if world.resting or not client.knows(name):
            continue
        collection = client.collection(name)
        batches = _neighbours(world, sorted(collection.batches, key=lambda b: b.lower))
        if not batches:
            continue
        lower, upper = batches[0].lower, batches[-1].upper.time
        since = collection.since.time
        merged: Counter[tuple[Row, int]] = Counter()
        missing = False
        for batch in batches:
            for ref in batch.chunks:
                if world.chance(0.2):
                    yield
                content = world.fetch(name, ref)
                missing = missing or content is None
                piece = Piece(name, ref, batch.lower, batch.upper.time)
                for row, time, diff in clipped(content, piece) if content else ():
                    bound = max(time, since)
                    if not world.without(Mutation.RULE_9_BOUND):
                        bound = max(time, min(since, upper - 1))
                    merged[row, bound] += diff
        if missing:
            continue
        yield
        updates: tuple[Update, ...] = tuple(
            (row, time, diff) for (row, time), diff in merged.items() if diff
        )
        meaning = f"{name}-{lower}-{upper}-compacted"
        chunks = (world.write(name, updates, meaning),) if updates else ()
        body = Replace(
            collection=name,
            replaced=tuple(batch.name for batch in batches),
            chunks=chunks,
            since=Timestamp(since),
        )
        yield from client.submit(name, body)


def _neighbours(world: World, batches: list[Batch]) -> list[Batch]:
    """Some of the batches, one following the other."""
    if len(batches) < 2:
        return []
    count = world.rng.choice((2, min(4, len(batches)), len(batches)))
    start = 0 if world.chance(0.5) else world.rng.randint(0, len(batches) - count)
    return batches[start : start + count]


def collector(world: World, disk: Disk) -> Process:
    """Take chunks that nobody names: announced by a Reclaim, taken once it is read back."""
    client = Client(world)
    while True:
        yield
        name = world.rng.choice(visible(world))
        client.sync(name)
        if world.resting or not client.knows(name):
            continue
        data = world.groups[name].data
        end = len(data)
        if not world.without(Mutation.RULE_7_RECLAIM):
            outcome = yield from client.submit(name, Reclaim({0: end}))
            if not isinstance(outcome, Reclaimed):
                continue
        live_keys = {chunk.key for chunk in client.state(name).chunks()}
        for place in range(end):
            record = data[place]
            if (
                record is not None
                and record.content is not None
                and record.key not in live_keys
            ):
                if world.chance(0.05):
                    yield
                data.append(Record(record.key, None))


def roller(world: World, disk: Disk) -> Process:
    """Write the state as a Rollup, and delete what the one before the last covers (rule 8)."""
    client = Client(world)
    while True:
        yield
        name = world.rng.choice(visible(world))
        client.sync(name)
        upto = client.position[name] - 1
        upto -= (upto + 1) % chunk_gc.ROLLUP_STRIDE
        log = world.groups[name]
        if world.resting or upto < log.start or name in client.own:
            continue
        state = log.states[upto + 1]
        rollups = client.state(name).rollups
        if rollups and upto <= rollups[-1].upto:
            continue
        chunk = world.write(name, state, f"{name}-rollup-{upto}")
        yield
        if world.without(Mutation.RULE_8_TRUNCATE):
            log.start = max(log.start, upto + 1)
        body = Rollup(upto=Offset(upto), chunks=(chunk,), hash="")
        outcome = yield from client.submit(name, body)
        if isinstance(outcome, RolledUp):
            log.start = max(log.start, outcome.truncate + 1)
