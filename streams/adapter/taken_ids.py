"""Refuses a new object whose id, or whose group, is another's.

The catalog never gives an id twice. So what is found under the id of a new object is of another
catalog, whose topic was deleted or replaced; or of a client, which had the name before it was
reserved. Adopting it would return the rows of something else (`streams.adapter.ownership`).
"""

from collections.abc import Collection

from streams.adapter.catalog import Item
from streams.adapter.shared_groups import is_alone
from streams.errors import Corrupt, InvalidStatement
from streams.kafka.log import Truncated
from streams.kafka.topics import Topics
from streams.storage.client.catalog_ids import own_group
from streams.storage.client.id_registry import Directory
from streams.storage.client.reserved_names import REGISTRY

OWN_TOPIC = "; or create it with OWN TOPIC"


def refuse_taken(
    item: Item, live: Collection[Item], directory: Directory, topics: Topics
) -> None:
    """Check the id of a new object beside those that are live.

    Errors: InvalidStatement, with the ways out; Determinate.
    """
    groups = {own_group(item.id): ""}
    if item.shared_group and is_alone(item, live):  # the group is to begin with this object
        groups[item.shared_group] = OWN_TOPIC
    for group, way_out in groups.items():
        names = directory.shards.names(group)
        if topics.describe(names.log) is not None:
            raise InvalidStatement(
                f"id {item.id} of the new object is taken: topic {names.log} exists",
                "another catalog created it: the catalog's topic was deleted or replaced, and"
                " numbers began again; or a client did, before the name was reserved",
                "restore the catalog's topic, or choose another namespace, or delete topics"
                f" {names.log} and {names.data} if what they hold is not needed{way_out}",
            )
    if item.shared_group:
        _refuse_given(item, directory)


def _refuse_given(item: Item, directory: Directory) -> None:
    """Errors: InvalidStatement if the registry or the shared group has the id already."""
    try:
        entry = directory.registered(item.id)
    except (Corrupt, Truncated) as cause:
        raise InvalidStatement(
            "the registry of ids cannot be read",
            str(cause),
            f"'slackwater shard verify {REGISTRY}' says what is wrong{OWN_TOPIC}",
        ) from cause
    followed = directory.shards.following.groups.get(item.shared_group)
    is_there = followed is not None and item.id in followed.state.collections
    if is_there or entry is not None:
        raise InvalidStatement(
            f"id {item.id} of the new object is taken: it was given to another one",
            "the catalog's topic was deleted or replaced, and numbers began again",
            f"restore the catalog's topic, or choose another namespace{OWN_TOPIC}",
        )
