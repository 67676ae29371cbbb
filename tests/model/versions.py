"""A second version of the view: it says the same of every key, and says it otherwise.

So whatever it did not take back of what the first one had said shows at once (rule 24).
"""

from typing import TYPE_CHECKING

from streams.compute.stepping import Step, can_hydrate
from streams.progress import frontier
from streams.storage.log.state import CollectionState
from tests.model.counting import Contribution, State, contributions, shown
from tests.model.holders import IMPORTS
from tests.model.world import CNT, Process, Update, pieces

if TYPE_CHECKING:
    from tests.model.views import Replica


def is_foreign(replica: "Replica", shard: CollectionState) -> bool:
    """Whether another version has written last."""
    return shard.fingerprint not in {"", replica.version}


def upgrade(replica: "Replica") -> Process:
    """Hydrate at the shard's upper, and take back all that the shard says there."""
    client = replica.client
    while True:
        shard = client.collection(CNT)
        as_of = shard.upper.time
        if replica.version not in shard.fenced and can_hydrate(as_of, replica.inputs(as_of)):
            break
        yield  # for ever, when it was this version that was replaced
        yield from replica.fold_imports()
        client.sync(CNT)
    replica.disk.records, replica.disk.hydration = [], None
    collected: list[Contribution] = []
    for name in IMPORTS:
        for piece in pieces(client.collection(name), 0, as_of + 1):
            updates = yield from replica.fetch(piece)
            collected += contributions((row, as_of, diff) for row, _, diff in updates)
    undone: list[Update] = []
    for piece in pieces(shard, 0, as_of):
        updates = yield from replica.fetch(piece)
        undone += [(row, as_of, -diff) for row, _, diff in updates]
    state = State(as_of + 1, (replica.write_run("upgrade", collected),), tuple(collected))
    output = [
        (shown(replica.version, row), as_of, 1) for row in state.counts().items() if row[1]
    ]
    step = Step(frontier(as_of), frontier(as_of + 1))
    replica.life.hydrates(as_of)
    while not (yield from replica.commit(step, [*output, *undone], state, may_be_early=False)):
        yield
