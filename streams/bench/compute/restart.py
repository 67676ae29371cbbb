"""How soon a replica that was killed answers afresh, with much state behind it.

`kill -9` of the replica and all that it has started; its supervisor starts it again under its
name, over its state directory. A bid is published after the kill: the clock runs from the kill
until that bid is readable in the view.
"""

import time
from statistics import median

from streams.bench import bids
from streams.bench.compute.scale import ComputeScale
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Rig
from streams.bench.state import VIEW, fill

FRESH_S = 15.0
KILLS = 3
SETTLE_S = 10.0


def restart(bench: Rig, scale: ComputeScale) -> Outcome:
    """Kill a replica with so many rows of state, some times."""
    source, view = bench.create(bids.SOURCE), bench.create(VIEW)
    began = time.perf_counter()
    fill(bench, source, view, range(scale.rows))
    filled_s = time.perf_counter() - began
    taken = []
    for kill in range(KILLS):
        bench.rest(SETTLE_S)
        bench.say(f"killing the replica: {kill + 1} of {KILLS}")
        began = time.perf_counter()
        bench.environment.kill("replica")
        bench.publisher.publish(bids.TOPIC, None, bids.every_key(kill, 1))
        bench.publisher.flush()
        bench.await_readable(source, [view])
        taken.append(time.perf_counter() - began)
    figures = (
        at_most("restart_s", median(taken), "s", FRESH_S),
        Figure("restart_s_max", max(taken), "s"),
        Figure("restart_rows", scale.rows),
        Figure("restart_filled_s", filled_s, "s"),
    )
    note = f"the median of {KILLS} kills; the target is stated for 10,000,000 rows"
    return Outcome("restart", figures, note=note)
