"""Many small views over one source, of which none has anything to do.

`idle` is the processor time of the replica: its driver, Spark and its Python processes. The
views have state and their times go on, but no message arrives.

`controller` kills the coordinator, which its supervisor starts again, until /status says of
every object that it runs. Then controllers of the protocol in this process succeed one another:
each from before it is constructed to the frontiers of all dataflows, which the replica that
runs reports to it.
"""

import time
from collections.abc import Iterable
from statistics import median

from streams.bench import bids
from streams.bench.compute.scale import ComputeScale
from streams.bench.compute.takeover import POLL_MS, Successors, successors
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.flow import small_view
from streams.bench.process_kinds import percent_since, process_times
from streams.bench.rig import Rig
from streams.bench.up_process import wait_until
from streams.compute.replica_responses import NO_CONDITION, InstanceStatus
from streams.errors import Determinate
from streams.ids import CollectionId

IDLE_PERCENT, FRONTIERS_S = 10.0, 2.0
MESSAGES = 20_000
SETTLE_S = 10.0
CONTROLLERS, COORDINATORS = 5, 2
PATIENCE_S = 120.0


def create_dataflows(bench: Rig, count: int) -> None:
    """Create a source and views, `count` in all, and have them read some messages."""
    bench.say(f"creating {count:,} dataflows")
    source = bench.create(bids.SOURCE)
    views = [bench.create(small_view(number)) for number in range(count - 1)]
    bids.Load(bench.publisher, lambda _: None).burst(bids.messages(MESSAGES, seed=1))
    bench.await_readable(source, views)


def idle(bench: Rig, scale: ComputeScale) -> Outcome:
    """The processor time of a replica whose dataflows have nothing to do."""
    bench.say(f"{scale.seconds:.0f} s without a message")
    bench.rest(SETTLE_S)
    before, began = process_times(bench.replica), time.perf_counter()
    bench.rest(scale.seconds)
    used = percent_since(before, process_times(bench.replica), time.perf_counter() - began)
    figures = (
        at_most("idle_replica_cpu_percent", sum(used.values()), "%", IDLE_PERCENT),
        Figure("idle_dataflows", scale.dataflows),
    )
    parts = {kind: {"% of a core": percent} for kind, percent in used.items()}
    return Outcome("idle", figures, parts, "", "processor time of the replica", "processes")


def controller(bench: Rig, scale: ComputeScale) -> Outcome:
    """The time until a new controller knows the frontiers of all dataflows."""
    bench.say("killing the coordinator")
    coordinator_s = [coordinator_restart_s(bench) for _ in range(COORDINATORS)]
    bench.say("new controllers")
    with successors(bench) as takeovers:
        if len(takeovers.descriptions) != scale.dataflows:
            raise Determinate(
                f"expected {scale.dataflows} dataflows, actual {len(takeovers.descriptions)}"
            )
        controller_s = [frontiers_s(takeovers) for _ in range(CONTROLLERS)]
    figures = (
        at_most("controller_frontiers_s", median(controller_s), "s", FRONTIERS_S),
        Figure("controller_frontiers_s_max", max(controller_s), "s"),
        Figure("controller_dataflows", scale.dataflows),
        Figure("coordinator_killed_to_all_running_s", median(coordinator_s), "s"),
    )
    note = f"of {CONTROLLERS} controllers, and of {COORDINATORS} coordinators: process and all"
    return Outcome("controller", figures, note=note)


def coordinator_restart_s(bench: Rig) -> float:
    """Seconds from `kill -9` of the coordinator until it says of all objects that they run."""
    client = bench.environment.client
    objects, epoch = len(client.objects()), client.status()["epoch"]

    def runs() -> bool:
        try:
            status = client.status()
        except Determinate:  # it is not there yet
            return False
        conditions = status["objects"]
        assert isinstance(conditions, list)
        states = [condition["status"] for condition in conditions]
        return status["epoch"] != epoch and states == ["running"] * objects

    began = time.perf_counter()
    bench.environment.kill("coordinator")
    wait_until(runs, "the objects do not run", PATIENCE_S)
    return time.perf_counter() - began


def frontiers_s(successors: Successors) -> float:
    """Seconds until a new controller knows the frontiers of all dataflows."""
    began = time.perf_counter()
    controller = successors.started()

    def knows_all() -> bool:
        controller.poll(POLL_MS)
        return is_known(controller.observed, successors.descriptions)

    try:
        wait_until(knows_all, "the frontiers are not known", PATIENCE_S)
        return time.perf_counter() - began
    finally:
        controller.close()


def is_known(observed: InstanceStatus, exports: Iterable[CollectionId]) -> bool:
    """Whether a replica has reported a frontier of each of these dataflows."""
    conditions = (observed.conditions.get(export, NO_CONDITION) for export in exports)
    return all(
        condition.write is not None or condition.output is not None for condition in conditions
    )
