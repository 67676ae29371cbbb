"""Converts the description of a sink's dataflow to the spec of its runner."""

from streams.compute.description import DataflowDescription
from streams.compute.protocol import Frontiers, Response, Status
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.progress import frontier
from streams.storage.sinks.runner import SinkSpec, SinkStatus


def sink_spec(description: DataflowDescription, namespace: str) -> SinkSpec:
    """Return the spec of a described sink.

    Errors: InvalidUsage if the dataflow is not a sink.
    """
    if description.sink is None or len(description.imports) != 1:
        raise InvalidUsage(f"dataflow {description.export} is not a sink of one collection")
    (read,) = description.imports
    return SinkSpec(
        sink=description.export,
        collection=read.collection,
        group=read.group,
        topic=description.sink.topic,
        partitions=description.sink.partitions,
        keys=description.sink.keys,
        as_of=description.as_of,
        hold=read.hold,
        namespace=namespace,
    )


def sink_responses(export: CollectionId, status: SinkStatus) -> tuple[Response, ...]:
    """Return a replica's responses to a change of a sink's status."""
    said = Status(export, status.state, status.message)
    if status.frontier is None:
        return (said,)
    reached = frontier(status.frontier)
    return (said, Frontiers(export, write=reached, output=reached, input=reached))
