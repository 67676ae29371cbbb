"""The lanes of a replica: those that every replica has, and one of each source by event time.

A source with a watermark has a streaming query of its own, since Spark has one watermark for a
query. Its lane is made when the source is there, and ended when it is dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from streams.replica.driver.lane import Lane
from streams.replica.driver.micro_batch import LANES, LaneName
from streams.replica.driver.scheduler import Scheduler


@dataclass(slots=True)
class Lanes:
    """Makes, tends and ends lanes. `make` takes the delay of a lane that has a watermark."""

    scheduler: Scheduler
    make: Callable[[LaneName, int | None], Lane]
    running: dict[LaneName, Lane] = field(default_factory=dict)

    def tend(self) -> None:
        """Make the lanes that are lacking, end those without a source, and tend all."""
        wanted = {**dict.fromkeys(LANES), **self.scheduler.lanes_of_sources()}
        for name in set(self.running) - set(wanted):
            self.running.pop(name).stop()
            self.scheduler.forget_lane(name)
        for name, delay_ms in wanted.items():
            if name not in self.running:
                self.running[name] = self.make(name, delay_ms)
            self.running[name].tend()

    def watermark_ms(self, name: LaneName) -> int:
        """Return the watermark of a lane's query; 0 if it has none yet."""
        lane = self.running.get(name)
        return 0 if lane is None else lane.following.watermark_ms

    def stop(self) -> None:
        """Stop all."""
        for lane in self.running.values():
            lane.stop()
