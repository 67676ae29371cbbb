"""What `slackwater top` shows, of one answer of /status and the one before. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict


class HydrationStatus(TypedDict):
    """How far a hydration is, in rows or messages."""

    done: int
    total: int


class ObjectStatus(TypedDict):
    """What /status says of an object, and is shown."""

    kind: str
    id: str
    name: str
    status: str
    upper: int | None
    progress: str | None
    detail: str | None
    hydration: HydrationStatus | None


class ReplicaStatus(TypedDict):
    """What it says of a live replica: what it owns, and its dataflows by their state."""

    cluster: str
    replica: str
    process: str
    silent_ms: int
    owns: int
    running: int
    hydrating: int
    stalled: int
    failed: int


class MaterializationStatus(TypedDict):
    """What it says of a materialization, and is shown."""

    name: str
    connector: str
    status: str
    behind_ms: int | None
    rows_per_s: int | None
    detail: str | None


class EnvironmentStatus(TypedDict):
    """What /status says, and is shown."""

    epoch: int
    objects: list[ObjectStatus]
    cluster_replicas: list[ReplicaStatus]
    materializations: list[MaterializationStatus]


WRONG = ("failed", "no replica", "no service", "stalled")
UNDER_WAY = ("hydrating", "backfilling", "starting", "waiting")
_ORDER = {status: place for place, status in enumerate((*WRONG, *UNDER_WAY))}


@dataclass(frozen=True, slots=True)
class ObjectLine:
    """A source, view, rebase or sink.

    Units: `lag_ms` is the clock less upper, None without an upper (not known, or sealed);
    `speed` is how much upper advanced since the answer before, over the time that passed: 1 if
    it keeps up, more if it catches up, 0 if it stands, None of the first answer. `done` is the
    part of a hydration, from 0 to 1, None outside of one.
    """

    kind: str
    name: str
    status: str
    lag_ms: int | None
    speed: float | None
    done: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class MaterializationLine:
    """A materialization. `behind_ms` and `rows_per_s` are None while they are not known."""

    name: str
    connector: str
    status: str
    behind_ms: int | None
    rows_per_s: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An environment at `at_ms`, in milliseconds since 1970; what is wrong comes first."""

    at_ms: int
    epoch: int
    objects: Sequence[ObjectLine]
    replicas: Sequence[ReplicaStatus]
    materializations: Sequence[MaterializationLine]

    @property
    def wrong(self) -> list[str]:
        """The names of what has failed, is stalled, or that no replica or service maintains."""
        objects = [line.name for line in self.objects if line.status in WRONG]
        return objects + [line.name for line in self.materializations if line.status in WRONG]

    def as_json(self) -> dict[str, object]:
        """The snapshot for programs."""
        return {**asdict(self), "wrong": self.wrong}


def snapshot(
    status: EnvironmentStatus,
    at_ms: int,
    before: EnvironmentStatus | None = None,
    before_ms: int = 0,
) -> Snapshot:
    """The snapshot of /status at `at_ms`; `before` is what it was at `before_ms`.

    Errors: KeyError if the answer lacks what a coordinator of this version says.
    """
    uppers = {} if before is None else {o["id"]: o["upper"] for o in before["objects"]}
    passed_ms = at_ms - before_ms
    objects = [
        _object(object_, at_ms, uppers.get(object_["id"]), passed_ms)
        for object_ in status["objects"]
    ]
    return Snapshot(
        at_ms,
        status["epoch"],
        sorted(objects, key=_urgency),
        status["cluster_replicas"],
        sorted(map(_materialization, status["materializations"]), key=_urgency),
    )


def _object(
    object_: ObjectStatus, at_ms: int, upper_before: int | None, passed_ms: int
) -> ObjectLine:
    upper, hydration = object_["upper"], object_["hydration"]
    speed = None
    if upper is not None and upper_before is not None and passed_ms > 0:
        speed = (upper - upper_before) / passed_ms
    done = None
    if hydration is not None and hydration["total"]:
        done = min(1.0, hydration["done"] / hydration["total"])
    return ObjectLine(
        object_["kind"],
        object_["name"],
        object_["status"],
        None if upper is None else max(0, at_ms - upper),
        speed,
        done,
        object_["progress"] or object_["detail"] or "",
    )


def _materialization(status: MaterializationStatus) -> MaterializationLine:
    return MaterializationLine(
        status["name"],
        status["connector"],
        status["status"],
        status["behind_ms"],
        status["rows_per_s"],
        status["detail"] or "",
    )


def _urgency(line: ObjectLine | MaterializationLine) -> tuple[int, int, str]:
    """What is wrong first, then what is under way, then what is furthest behind."""
    behind_ms = line.lag_ms if isinstance(line, ObjectLine) else line.behind_ms
    return _ORDER.get(line.status, len(_ORDER)), -(behind_ms or 0), line.name
