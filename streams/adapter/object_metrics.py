"""The metrics of sources, views and sinks. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from streams.adapter.catalog import NAMES
from streams.adapter.show import Shown
from streams.compute.replica_responses import InstanceStatus
from streams.http.metrics import Family, Labels, Sample
from streams.progress import Antichain


def of_objects(
    shown: Sequence[Shown], observed: InstanceStatus, now_ms: int
) -> Iterator[Family]:
    """Return the metrics of objects, of which no two of a kind have one name.

    `now_ms` is the clock, in milliseconds since 1970.
    """
    yield Family(
        "replicas", "gauge", "Replicas that serve.", (({}, float(len(observed.replicas))),)
    )
    yield Family(
        "object_status",
        "gauge",
        "1; the labels have the object's id and its status, as SHOW has them.",
        tuple(
            ({**named(object_), "id": object_.item.id, "status": object_.status}, 1.0)
            for object_ in shown
        ),
    )
    yield from frontiers(shown, now_ms)
    yield from hydrations(shown)
    yield from messages(shown)


def frontiers(shown: Sequence[Shown], now_ms: int) -> Iterator[Family]:
    """Frontiers, and how far upper is behind the clock. Unknown ones have no sample."""
    yield Family(
        "object_since_timestamp_seconds",
        "gauge",
        "Reads are exact from here on, in seconds since 1970; with a watermark an event time.",
        _known((object_, object_.since) for object_ in shown),
    )
    yield Family(
        "object_upper_timestamp_seconds",
        "gauge",
        "Everything before is final, in seconds since 1970; with a watermark an event time.",
        _known((object_, object_.upper) for object_ in shown),
    )
    yield Family(
        "object_lag_seconds",
        "gauge",
        "The clock less upper; with a watermark how far event time is behind the clock.",
        tuple(
            (named(object_), (now_ms - object_.upper.time) / 1000)
            for object_ in shown
            if object_.upper is not None and not object_.upper.is_empty
        ),
    )


def hydrations(shown: Sequence[Shown]) -> Iterator[Family]:
    """How far objects are that are loading what was there before them."""
    loading = [
        (named(object_), object_.hydration)
        for object_ in shown
        if object_.hydration is not None
    ]
    yield Family(
        "object_hydration_read",
        "gauge",
        "Rows that a hydration has read; of a source, messages.",
        tuple((labels, float(hydration.done)) for labels, hydration in loading),
    )
    yield Family(
        "object_hydration_expected",
        "gauge",
        "Rows that a hydration has to read; of a source, messages.",
        tuple((labels, float(hydration.total)) for labels, hydration in loading),
    )


def messages(shown: Sequence[Shown]) -> Iterator[Family]:
    """Messages of sources that did not become rows as they came."""
    yield Family(
        "source_late_rows_total",
        "counter",
        "Rows of a source with a watermark that were late.",
        tuple(
            (named(object_), float(object_.late))
            for object_ in shown
            if object_.late is not None
        ),
    )
    yield Family(
        "source_skipped_messages_total",
        "counter",
        "Messages that ON ERROR SKIP left out.",
        tuple(
            (named(object_), float(object_.skipped))
            for object_ in shown
            if object_.skipped is not None
        ),
    )


def named(object_: Shown) -> Labels:
    """The labels of all samples of an object."""
    return {"kind": NAMES[object_.item.kind], "name": object_.item.name}


def _known(frontiers: Iterable[tuple[Shown, Antichain | None]]) -> tuple[Sample, ...]:
    return tuple(
        (named(object_), frontier.time / 1000)
        for object_, frontier in frontiers
        if frontier is not None and not frontier.is_empty
    )
