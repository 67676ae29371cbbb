"""How soon a replica that was killed answers afresh, with much state behind it.

`kill -9` of the replica and all that it has started; its supervisor starts it again under its
name, over its state directory. A bid is published after the kill: the clock runs from the kill
until that bid is readable in the view. What /status says meanwhile tells where the time goes:
the replica says something (Python, the JVM and Spark have started), it owns the source, and its
dataflows run (their state is there again).
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from streams.bench import bids
from streams.bench.compute.scale import ComputeScale
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Rig
from streams.bench.state import VIEW, fill
from streams.errors import Determinate
from streams.process_tree import cpu_s

FRESH_S = 15.0
KILLS = 3
SETTLE_S = 10.0
LOOK_EVERY_S = 0.1
STARTED, OWNS, RUNS, FRESH = "it is heard, s", "it owns, s", "they run, s", "fresh, s"


def restart(bench: Rig, scale: ComputeScale) -> Outcome:
    """Kill a replica with so many rows of state, some times."""
    source, view = bench.create(bids.SOURCE), bench.create(VIEW)
    began = time.perf_counter()
    fill(bench, source, view, range(scale.rows))
    filled_s = time.perf_counter() - began
    moments: dict[str, Mapping[str, float]] = {}
    used = []
    for kill in range(1, KILLS + 1):
        bench.rest(SETTLE_S)
        bench.say(f"killing the replica: {kill} of {KILLS}")
        began = time.perf_counter()
        with _watched(bench, began) as seen:
            bench.environment.kill("replica")
            bench.publisher.publish(bids.TOPIC, None, bids.every_key(kill, 1))
            bench.publisher.flush()
            bench.await_readable(source, [view])
            seen[FRESH] = time.perf_counter() - began
        moments[f"kill {kill}"] = seen
        used.append(cpu_s(bench.replica))
    taken = [seen[FRESH] for seen in moments.values()]
    figures = (
        at_most("restart_s", median(taken), "s", FRESH_S),
        Figure("restart_s_max", max(taken), "s"),
        Figure("restart_cpu_s", median(used), "s"),
        Figure("restart_rows", scale.rows),
        Figure("restart_filled_s", filled_s, "s"),
    )
    note = (
        f"the median of {KILLS} kills; the target is stated for 10,000,000 rows; CPU: of the"
        " replica and what it has started, until it is fresh"
    )
    return Outcome("restart", figures, moments, note, "seconds from the kill", "kill")


@contextmanager
def _watched(bench: Rig, began: float) -> Iterator[dict[str, float]]:
    """Note, in a thread, when the replica's successor first gets to each stage."""
    before = {str(row["process"]) for row in replicas(bench)}
    seen = dict[str, float]()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_EVERY_S):
            rows = [row for row in replicas(bench) if row["process"] not in before]
            now = time.perf_counter() - began
            for stage in stages(rows):
                seen.setdefault(stage, now)

    thread = threading.Thread(target=watch, name="status")
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def replicas(bench: Rig) -> list[Mapping[str, object]]:
    """The live replicas, as /status has them; none while it is not answered."""
    try:
        rows = bench.environment.client.status()["cluster_replicas"]
    except Determinate:
        return []
    assert isinstance(rows, list)
    return rows


def stages(rows: list[Mapping[str, object]]) -> tuple[str, ...]:
    """The stages that a replica with one source and one view is at or beyond."""
    if not rows:
        return ()
    (row,) = rows
    owns = (OWNS,) if row["owns"] else ()
    runs = (RUNS,) if row["running"] == 2 else ()  # noqa: PLR2004  the source and the view
    return (STARTED, *owns, *runs)
