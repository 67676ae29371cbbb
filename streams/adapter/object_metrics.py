"""The metrics of sources, views and sinks, and of clusters. Pure."""

from collections.abc import Iterator, Sequence

from streams.adapter.catalog import NAMES
from streams.adapter.show import ShownObject
from streams.adapter.show_clusters import ShownCluster
from streams.http.metrics import Family, Labels, counter, gauge, seconds
from streams.progress import Antichain


def of_objects(shown: Sequence[ShownObject], replicas: int, now_ms: int) -> Iterator[Family]:
    """Return the metrics of objects, of which no two of a kind have one name.

    `replicas` is how many are live, `now_ms` the clock, in milliseconds since 1970.
    """
    yield gauge("replicas", "Replicas that serve.", [({}, replicas)])
    yield gauge(
        "object_status",
        "1; the labels have the object's id and its status, as SHOW has them.",
        (
            ({**named(object_), "id": object_.item.id, "status": object_.status}, 1)
            for object_ in shown
        ),
    )
    yield from frontiers(shown, now_ms)
    yield from event_times(shown, now_ms)
    yield from hydrations(shown)
    yield from messages(shown)


def of_clusters(clusters: Sequence[ShownCluster]) -> Iterator[Family]:
    """How many replicas each cluster has, and is to have."""
    live = [({"cluster": cluster.name}, cluster.live) for cluster in clusters]
    wanted = [({"cluster": cluster.name}, cluster.replicas) for cluster in clusters]
    yield gauge("cluster_replicas", "Replicas of the cluster that serve.", live)
    yield gauge("cluster_replicas_wanted", "Replicas that the cluster is to have.", wanted)


def frontiers(shown: Sequence[ShownObject], now_ms: int) -> Iterator[Family]:
    """Frontiers, and how far upper is behind the clock. Closed ones have no sample."""
    uppers = [(named(object_), time_of(object_.upper)) for object_ in shown]
    yield gauge(
        "object_since_timestamp_seconds",
        "Reads are exact from here on, in seconds since 1970; with a watermark an event time.",
        ((named(object_), seconds(time_of(object_.since))) for object_ in shown),
    )
    yield gauge(
        "object_upper_timestamp_seconds",
        "Everything before is final, in seconds since 1970; with a watermark an event time.",
        ((labels, seconds(upper)) for labels, upper in uppers),
    )
    yield gauge(
        "object_lag_seconds",
        "The clock less upper; with a watermark how far event time is behind the clock.",
        (
            (labels, None if upper is None else seconds(now_ms - upper))
            for labels, upper in uppers
        ),
    )


def event_times(shown: Sequence[ShownObject], now_ms: int) -> Iterator[Family]:
    """How far event time is behind the clock: where it enters, and where it is left."""
    timed = [
        (named(object_), time_of(object_.upper))
        for object_ in shown
        if object_.item.source is not None and object_.timeline == "event"
    ]
    yield gauge(
        "source_event_time_lag_seconds",
        "The clock less the watermark: how old the newest final event time of a source is.",
        ((labels, behind(now_ms, upper)) for labels, upper in timed),
    )
    yield gauge(
        "rebase_event_time_lag_seconds",
        "The clock less the event time up to which a rebase has its input.",
        (
            (named(object_), behind(now_ms, time_of(object_.reached)))
            for object_ in shown
            if object_.item.kind == "rebase"
        ),
    )


def behind(now_ms: int, time: int | None) -> float | None:
    """How far a time is behind the clock, in seconds; None if unknown or 0."""
    return None if not time else seconds(now_ms - time)


def hydrations(shown: Sequence[ShownObject]) -> Iterator[Family]:
    """How far objects are that are loading what was there before them."""
    loading = [
        (named(object_), object_.hydration)
        for object_ in shown
        if object_.hydration is not None
    ]
    yield gauge(
        "object_hydration_read",
        "Rows that a hydration has read; of a source, messages.",
        ((labels, hydration.done) for labels, hydration in loading),
    )
    yield gauge(
        "object_hydration_expected",
        "Rows that a hydration has to read; of a source, messages.",
        ((labels, hydration.total) for labels, hydration in loading),
    )


def messages(shown: Sequence[ShownObject]) -> Iterator[Family]:
    """Messages of sources that did not become rows as they came."""
    yield counter(
        "source_late_rows_total",
        "Rows of a source with a watermark that were late.",
        ((named(object_), object_.late) for object_ in shown),
    )
    yield counter(
        "source_skipped_messages_total",
        "Messages that ON ERROR SKIP left out.",
        ((named(object_), object_.skipped) for object_ in shown),
    )


def named(object_: ShownObject) -> Labels:
    """The labels of all samples of an object."""
    return {"kind": NAMES[object_.item.kind], "name": object_.item.name}


def time_of(frontier: Antichain | None) -> int | None:
    """The time of a frontier; None if it is not known, or closed."""
    return None if frontier is None or frontier.is_empty else frontier.time
