"""The lanes that there are, and a micro-batch of one of them."""

from dataclasses import dataclass

from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.deadlines import Deadline
from streams.replica.driver.fast_path import Way
from streams.replica.driver.work_units import EventUnit, IdleUnit, Unit

LaneName = str
LANES: tuple[LaneName, ...] = ("ingest", "steady", "hydrate", "apart")
_OF_SOURCE = "event:"


def lane_of(flow: Dataflow) -> LaneName:
    """Return the lane of a source with a watermark: another one where it resumed elsewhere.

    The watermark of the query before may be of messages that are skipped.
    """
    source = flow.description.source
    return f"{_OF_SOURCE}{flow.id}:{0 if source is None else source.start.generation}"


@dataclass(slots=True)
class MicroBatch:
    """A micro-batch of a lane, from decision to commit. Times are of the monotonic clock."""

    lane: LaneName
    seq: int
    units: tuple[Unit, ...]
    quiet: tuple[IdleUnit, ...]
    tasks: int
    asked: float
    decided: float
    deadline: Deadline
    began_at: float
    """System time in seconds."""
    step: str
    """Its name, and its descriptor's: never reused, because workers cache what they read."""
    way: Way = Way.QUERY
    is_given: bool = False
    """Whether what runs it has it: the lane's query, or the thread of a resident task."""

    def flows(self) -> list[Dataflow]:
        """Return the dataflows that it moves."""
        return [unit.flow for unit in self.units] + [advance.flow for advance in self.quiet]

    @property
    def candidate_ms(self) -> int | None:
        """Return the event time that the lane's watermark may follow, if there is one."""
        advances = [unit.advance for unit in self.units if isinstance(unit, EventUnit)]
        return next((advance.candidate for advance in advances), None)

    @property
    def counted_as(self) -> str:
        """Return the name that it is counted under: its lane, with the way if it is fast."""
        return self.lane if self.way is Way.QUERY else f"{self.lane}:{self.way.value}"

    @property
    def depth(self) -> int:
        """Return the number of rounds after round 0."""
        return max((unit.share.base + unit.flow.plan.depth for unit in self.units), default=0)


@dataclass(slots=True)
class LanePlace:
    """The state of a lane: the number of its last micro-batch, and the current one, if any.

    `questions` counts the requests of its source.
    """

    name: LaneName
    seq: int = 0
    current: MicroBatch | None = None
    questions: int = 0


def offset_of(batch: MicroBatch) -> dict[str, object]:
    """Return the offset of a micro-batch."""
    intervals = {unit.flow.id: unit.share.interval for unit in batch.units}
    steps = {id_: [interval.lower, interval.upper] for id_, interval in intervals.items()}
    return {"seq": batch.seq, "steps": steps}
