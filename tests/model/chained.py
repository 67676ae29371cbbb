"""A replica that ingests, and steps the view over what it has in hand: two Appends in a row.

The view's Append and its checkpoint record are made only after the source's Append counted.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from streams.compute.stepping import InputBatch, Step, next_step
from streams.progress import frontier
from tests.model.holders import IMPORTS
from tests.model.life import after
from tests.model.mutations import Mutation
from tests.model.world import CNT, SRC, pieces
from tests.model.writers import Attempt, attempt, make

if TYPE_CHECKING:
    from tests.model.views import Replica


def step(replica: "Replica") -> Generator[None, None, bool]:
    """A micro-batch of both, if the view can follow; whether it could."""
    world, client = replica.world, replica.client
    target = yield from attempt(world, client)
    ahead = None if target is None else _ahead(replica, target)
    if target is None or ahead is None:
        return False
    lower, upper = ahead.lower.time, ahead.upper.time
    stored = [p for name in IMPORTS for p in pieces(client.collection(name), lower, upper)]
    replica.life.begins()
    output, state = yield from replica.derive(ahead, stored, target.updates)
    planned = replica.life.stepped(ahead, state.runs, (), replica.seen())
    if world.without(Mutation.CHAIN_RECORD):
        replica.life.records(after(planned), client.collection(CNT).upper)
    counted = yield from make(world, client, target)
    if counted or world.without(Mutation.CHAIN_VOID):
        yield from replica.commit(ahead, output, state, may_be_early=False)
    else:
        replica.life.awaited_in_vain(planned)
        replica.life.ends()
    return True


def _ahead(replica: "Replica", target: Attempt) -> Step | None:
    """The view's step as if the ingestion had counted; none if it is not as far."""
    before, after = target.before.frontier, target.after.frontier
    own = replica.state.frontier
    sources = [
        replace(source, upper=after, batches=(*source.batches, InputBatch(before, after, 1)))
        if source.collection == SRC
        else source
        for source in replica.inputs(own)
    ]
    scheduled, budget = replica.state.scheduled, replica.world.weather.budget
    next_ = next_step(frontier(own), sources, scheduled=scheduled, budget=budget)
    return next_ if isinstance(next_, Step) and next_.upper == after else None
