"""Who holds: the view's creation, and the controller that moves holds for its objects."""

from streams.compute.stepping import hold_at
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.log.events import Acquire, Create, Downgrade, Right
from tests.model.mutations import Mutation
from tests.model.world import CNT, SRC, TAB, Client, Disk, Process, World

IMPORTS: tuple[CollectionId, ...] = (TAB, SRC)
WRITE, READ = CapabilityId("cnt.w"), CapabilityId("cnt.read")


def creator(world: World, disk: Disk) -> Process:
    """Create the view some time: its durable holds first, then its as_of."""
    client = Client(world)
    for _ in range(world.rng.choice((0, 5, 8))):
        yield
    since = []
    for name in IMPORTS:
        hold = CapabilityId(f"cnt.on.{name}")
        yield from client.submit(
            name, Acquire(collection=name, capability=hold, right=Right.READ)
        )
        state = client.collection(name)
        since.append(state.capabilities[hold].frontier.time)
    as_of = int(max(since))
    if world.chance(0.8):
        as_of = max(as_of, min(client.collection(n).upper.time - 1 for n in IMPORTS))
    body = Create(
        collection=CNT, description="", frontier=Timestamp(as_of), write=WRITE, read=READ
    )
    yield from client.submit(CNT, body)
    while True:
        yield


def controller(world: World, disk: Disk) -> Process:
    """Move holds on behalf of the objects: the view's on its imports, users' on everything."""
    client = Client(world)
    while True:
        yield
        name = world.rng.choice((TAB, SRC, CNT))
        client.sync(name)
        if world.resting or not client.knows(name):
            continue
        upper = client.collection(name).upper
        desired = hold_at(frontier(max(1, upper.time - world.weather.since_lag + 1)))
        yield from downgrade(client, name, CapabilityId(f"{name}.read"), desired)
        client.sync(CNT)
        if name in IMPORTS and client.knows(CNT):
            done = client.collection(CNT).upper
            consumed = done if world.without(Mutation.RULE_5_HOLD) else hold_at(done)
            yield from downgrade(client, name, CapabilityId(f"cnt.on.{name}"), consumed)


def downgrade(client: Client, name: CollectionId, hold: CapabilityId, to: Antichain) -> Process:
    """Move a hold forward, and its plan with it; now and then renew it where it stands."""
    capability = client.collection(name).capabilities.get(hold)
    if capability is None:
        return
    plan = None if capability.plan is None else Offset(client.position[name] - 1)
    if capability.frontier.strictly_precedes(to) or client.world.chance(0.2):
        body = Downgrade(collection=name, capability=hold, frontier=to, plan=plan)
        yield from client.submit(name, body)
