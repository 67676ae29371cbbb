"""Reduces a command history to the shortest one that leads a replica to the same state.

    reduce(reduce(h)) = reduce(h)
    a session that receives reduce(h) runs what a session that receives h runs
    len(reduce(h)) is bounded by the number of live dataflows

A compaction frontier only moves forward, and the empty one is the end: all commands of a
dropped dataflow are removed. Of the others only the furthest AllowCompaction counts. It becomes
the as_of of a dataflow that is computed from its imports: nobody reads it earlier, so a replica
that joins need not compute it earlier. For a dataflow with an as_of of another meaning it
stays. Of all UpdateConfigurations one remains, with the last value of each parameter. Peeks and
subscribes are of short life and none of a history.

The order is: creation, configuration, dataflows in the order of their creation (so that imports
come before the dataflows that import them), schedules, compactions, InitializationComplete,
AllowWrites.
"""

from collections.abc import Sequence
from typing import assert_never

from streams.compute.description import DataflowDescription
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Schedule,
    ShortLived,
    UpdateConfiguration,
)
from streams.errors import InvalidUsage
from streams.ids import CollectionId


def reduce(  # noqa: C901, PLR0912  one arm per kind of command
    history: Sequence[Command],
) -> tuple[Command, ...]:
    """Return the reduced history, without CreateTimely: each iteration has its own.

    Errors: InvalidUsage if two instances are created.
    """
    instance: CreateInstance | None = None
    configuration: dict[str, int] = {}
    dataflows: dict[CollectionId, CreateDataflow] = {}
    scheduled: dict[CollectionId, Schedule] = {}
    compactions: dict[CollectionId, AllowCompaction] = {}
    last: dict[type[Command], Command] = {}
    # the controller itself sends what is open again
    for command in (entry for entry in history if not isinstance(entry, ShortLived)):
        match command:
            case CreateTimely():
                pass
            case CreateInstance():
                if instance is not None and instance != command:
                    raise InvalidUsage(f"two instances in one history: {instance}, {command}")
                instance = command
            case UpdateConfiguration(values):
                configuration |= values
            case CreateDataflow(description):
                dataflows[description.export] = command
            case Schedule(id):
                scheduled[id] = command
            case AllowCompaction(id, frontier):
                before = compactions.get(id, command).frontier
                compactions[id] = AllowCompaction(id, before.join(frontier))
            case InitializationComplete() | AllowWrites():
                last[type(command)] = command
            case _:
                assert_never(command)
    dropped = {key for key, compaction in compactions.items() if compaction.frontier.is_empty}
    descriptions = {
        key: _compacted(dataflow.description, compactions.get(key))
        for key, dataflow in dataflows.items()
        if key not in dropped
    }
    said = {key for key, description in descriptions.items() if description.is_computed}
    return (
        *((instance,) if instance is not None else ()),
        *((UpdateConfiguration(configuration),) if configuration else ()),
        *(CreateDataflow(description) for description in descriptions.values()),
        *(command for key, command in scheduled.items() if key in descriptions),
        *(command for key, command in compactions.items() if key in descriptions.keys() - said),
        *(last[kind] for kind in (InitializationComplete, AllowWrites) if kind in last),
    )


def _compacted(
    description: DataflowDescription, compaction: AllowCompaction | None
) -> DataflowDescription:
    return description if compaction is None else description.compacted(compaction.frontier)


def live(history: Sequence[Command]) -> dict[CollectionId, DataflowDescription]:
    """Return the dataflows that run after a history. Errors: as `reduce`."""
    commands = reduce(history)
    created = (
        command.description for command in commands if isinstance(command, CreateDataflow)
    )
    return {description.export: description for description in created}


def is_long(length: int, compactions: int, reduced_to: int) -> bool:
    """Whether to reduce now: a history of this length had `reduced_to` commands at last.

    It has doubled, not counting the compactions that have moved a since: they are small, come
    for as long as time passes, and a reduction sends all plans again.
    """
    has_doubled = length - compactions > max(2 * reduced_to, 32)
    return has_doubled or compactions > max(16 * reduced_to, 1024)
