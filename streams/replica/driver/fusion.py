"""Fusion: steps views in the same micro-batch that produces their input.

A micro-batch that ingests knows the frontiers of its sources after the commit. A *near*
(fusible) view, one that reads only sources and near views, can step the same interval in the
same micro-batch: it reads older input from the shards, and the newest directly from the tasks
that produce it (*in hand*). That saves one hop. Each source with a watermark has a lane of its
own, so a view is near such a source if it reads no other.

The output for updates in hand is valid only if these are appended: Appends are made in the
order of the chain, and a view's is omitted if one that it awaits was void
(`streams.replica.driver.commit`). Then its state stays, and the next step reads the shards.

Pure: decides from flows and a view of the shards; the scheduler owns both.

Units: `budget` is in bytes of stored chunks that a step may read beside what is in hand.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.compute.reclocking import Tick
from streams.compute.stepping import Idle, Input, InputBatch, Overtaken, Step, Wait, next_step
from streams.ids import CollectionId
from streams.progress import Antichain
from streams.replica.driver import steady_planner, work_units
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.import_state import Imports
from streams.replica.driver.work_units import EventUnit, IdleUnit, Unit

MOST_ROUNDS = 6
"""Maximum of rounds of a micro-batch, 30 ms each: beyond that a second hop is as fast."""

MOST_MS = 2_000.0
"""Maximum of the near views' total cost in worker time, which delays their sources."""


KEEP_S = 0.5
"""TTL of the set of near views, which every `latestOffset` call consults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFrontier:
    """The frontier of a member after the micro-batch, and the round of its last updates.

    `fed` says whether it has any, `lower` is where they begin.
    """

    lower: Antichain
    upper: Antichain
    level: int
    fed: bool


Home = CollectionId | None
"""The source with a watermark in whose lane a dataflow is stepped; None: the others' lane."""


@dataclass(slots=True)
class NearViews:
    """The near views and their homes, recomputed periodically and when the flows change."""

    flows: tuple[CollectionId, ...] = ()
    homes: Mapping[CollectionId, Home] = field(default_factory=dict)
    until_s: float = 0.0

    def of(self, flows: Sequence[Dataflow], now_s: float) -> Mapping[CollectionId, Home]:
        """Return the near views among these flows, and their homes."""
        ids = tuple(flow.id for flow in flows)
        if ids != self.flows or now_s >= self.until_s:
            self.flows, self.homes, self.until_s = ids, near(flows), now_s + KEEP_S
        return self.homes


def near(flows: Sequence[Dataflow]) -> dict[CollectionId, Home]:
    """Return the views to step with their sources: near, cheap and shallow enough."""
    sources = [flow for flow in flows if flow.binds]
    homes: dict[CollectionId, Home] = {
        flow.id: flow.id if flow.has_watermark else None for flow in sources
    }
    levels = {flow.id: flow.plan.depth for flow in sources}
    spent: defaultdict[Home, float] = defaultdict(float)
    for flow in in_order(flows):
        imports = [imported.collection for imported in flow.description.imports]
        of_imports = {homes[imported] for imported in imports if imported in homes}
        if len(of_imports) != 1 or not all(imported in homes for imported in imports):
            continue
        (home,) = of_imports
        level = max(levels[imported] for imported in imports) + flow.plan.depth
        if level <= MOST_ROUNDS and spent[home] + flow.cost_ms <= MOST_MS:
            homes[flow.id], levels[flow.id] = home, level
            spent[home] += flow.cost_ms
    return dict(list(homes.items())[len(sources) :])


def in_order(flows: Iterable[Dataflow]) -> list[Dataflow]:
    """Return the views among the flows, each after those it reads."""
    left = {flow.id: flow for flow in flows if not flow.binds}
    ordered: list[Dataflow] = []
    while left:
        ready = [
            flow
            for flow in left.values()
            if not any(imported.collection in left for imported in flow.description.imports)
        ]
        ordered += ready
        for flow in ready:
            del left[flow.id]
    return ordered


@dataclass(slots=True, kw_only=True)
class Chain:
    """A micro-batch being assembled: its members and their frontiers after it."""

    view: Imports
    now_ms: int
    budget: int
    units: list[Unit]
    quiet: list[IdleUnit]
    reached: dict[CollectionId, MemberFrontier] = field(default_factory=dict)

    def follow(self, candidates: Iterable[Dataflow]) -> None:
        """Add the candidates that can move with the present members.

        Candidates without updates move too: other views may wait for their time.
        """
        for quiet in self.quiet:
            self._reach(quiet.flow, quiet.move, 0, fed=False)
        for unit in self.units:
            move = work_units.bounds(unit)
            if isinstance(unit, EventUnit) and unit.there is not None:
                continue  # another replica appended what the views read
            if move.lower.strictly_precedes(move.upper):  # else only messages are read ahead
                self._reach(unit.flow, move, unit.flow.plan.depth, fed=True)
        for flow in in_order(candidates):
            self._take(flow)

    def _reach(
        self, flow: Dataflow, move: Step | Idle | Tick, level: int, *, fed: bool
    ) -> None:
        reached = MemberFrontier(lower=move.lower, upper=move.upper, level=level, fed=fed)
        self.reached[flow.id] = reached

    def _take(self, flow: Dataflow) -> None:
        imports = [imported.collection for imported in flow.description.imports]
        awaits = frozenset(imports) & self.reached.keys()
        if not awaits or flow.own is None or not flow.is_ready(Phase.RUNNING, self.now_ms):
            return
        own = flow.own.frontier
        inputs = [self._ahead(self.view.input(imported, own)) for imported in imports]
        match next_step(own, inputs, scheduled=flow.scheduled, budget=self.budget):
            case Idle() as idle:
                self.quiet.append(IdleUnit(flow, idle, awaits))
                self._reach(flow, idle, 0, fed=False)
            case Step() as step:
                self._step(flow, step, imports, awaits)
            case Wait() | Overtaken():
                pass  # `steady_planner.plan` decides about it

    def _step(
        self,
        flow: Dataflow,
        step: Step,
        imports: Sequence[CollectionId],
        awaits: frozenset[CollectionId],
    ) -> None:
        fed = {
            awaited: self.reached[awaited] for awaited in awaits if self.reached[awaited].fed
        }
        if any(not _fits(reached, step) for reached in fed.values()):
            return
        until = {collection: reached.lower.time for collection, reached in fed.items()}
        unit = steady_planner.unit(flow, self.view, step, until)
        share = replace(
            unit.share,
            base=max((input_step.level for input_step in fed.values()), default=0),
            in_hand={
                imported: index for index, imported in enumerate(imports) if imported in fed
            },
        )
        self.units.append(replace(unit, share=share, awaits=awaits))
        self._reach(flow, step, share.base + flow.plan.depth, fed=True)

    def _ahead(self, stored: Input) -> Input:
        """Return an import as it will be after the commit of the micro-batch."""
        reached = self.reached.get(stored.collection)
        if reached is None:
            return stored
        news = (InputBatch(reached.lower, reached.upper, 1),) if reached.fed else ()
        return replace(stored, upper=reached.upper, batches=(*stored.batches, *news))


def _fits(fed: MemberFrontier, step: Step) -> bool:
    """Whether all updates in hand of an import belong to the step.

    The updates in hand are those of the producer's step. The producer's state may be before its
    shard's upper if another replica has appended the same updates already: so the shard is read
    only up to the lower of the updates in hand.
    """
    return fed.upper == step.upper and step.lower.precedes(fed.lower)
