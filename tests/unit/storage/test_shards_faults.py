"""Two clients that race, under every fault of the log, at random: each write counts as told.

Appended: its row is there exactly once. UpperMismatch or Determinate: never. Indeterminate: at
most once, whenever what was in doubt surfaces.
"""

import itertools
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Timestamp
from streams.kafka.memory.faulty import Fault, FaultyLogs
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log import rollup
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.storage.read import reader as read
from tests.support.examples import examples

U1 = CollectionId("u1")
FAULTS = st.sampled_from([Fault.NONE, Fault.NONE, Fault.AFTER, Fault.INSTEAD, Fault.BEFORE])
WRITES = st.lists(
    st.tuples(
        st.integers(0, 1),  # who
        st.lists(FAULTS, max_size=3),
        st.integers(1, 3),  # how far
        st.booleans(),  # whether it looks at the log first
        st.booleans(),  # whether what is in doubt surfaces afterwards
    ),
    min_size=1,
    max_size=12,
)


def write(one: Shards, name: str, width: int) -> str:
    lower = one.state(U1).upper.time
    row = pa.table({"c0": [name], "time": [lower], "diff": [1]})
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(lower),
        upper=frontier(lower + width),
        chunks=one.write(U1, row),
    )
    try:
        outcome = one.submit([("u1", Append((part,)))])[0]
    except Indeterminate:
        return "perhaps"
    except Determinate:
        return "never"
    return "once" if isinstance(outcome, Appended) else "never"


def everything(one: Shards) -> list[str]:
    upper = one.state(U1).upper.time
    if not upper:
        return []
    updates, _ = read.snapshot(one, U1, Timestamp(upper - 1), timeout_ms=1)
    return [str(name) for name in updates.column("c0").to_pylist()]


@examples(80)
@given(WRITES)
def test_every_write_counts_as_told(
    writes: list[tuple[int, list[Fault], int, bool, bool]],
) -> None:
    ticks = itertools.count(1_000, 10)
    broker = MemoryBroker(lambda: next(ticks))
    logs = [FaultyLogs(broker.logs), FaultyLogs(broker.logs)]
    clients = [
        Shards(log, broker.chunks, broker.topics, now_ms=lambda: 0, resend_ms=(0, 0))
        for log in logs
    ]
    for client in clients:
        client.create("u1", U1, Description((("name", "VARCHAR"),)), Timestamp(0))
    answers: dict[str, str] = {}
    for number, (who, faults, width, looks, surfaces) in enumerate(writes):
        if looks:
            clients[who].sync()
        logs[who].plan(faults)
        answers[f"w{number}"] = write(clients[who], f"w{number}", width)
        if surfaces:
            logs[who].surface()
    for log in logs:
        log.surface()
    for client in clients:
        client.sync()
    counts = Counter(everything(clients[0]))
    for name, word in answers.items():
        allowed = {"once": {1}, "never": {0}, "perhaps": {0, 1}}[word]
        assert counts[name] in allowed, (name, word)
    states = [rollup.encode(client.group_state("u1")) for client in clients]
    assert states[0] == states[1]
    for client in clients:
        client.close()
