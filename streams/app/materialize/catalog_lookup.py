"""Collections by their names in an environment's catalog, and the keys of its views."""

from collections.abc import Mapping, Sequence

from connectors.runtime.task import BindingConfig, Materialization
from streams.adapter.catalog import Item
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.coordinator_settings import catalog_topic
from streams.adapter.provisioning import relations
from streams.adapter.timelines import common
from streams.errors import SlackwaterError
from streams.kafka.log import Logs
from streams.kafka.topics import Topics
from streams.plan.compile import compile_view
from streams.storage.client.shards import fresh_uuid


def named(task: Materialization, logs: Logs, topics: Topics, namespace: str) -> Materialization:
    """The task with ids in place of names, and with the keys that views have by their queries.

    A name that the catalog does not have is an id. Errors: Determinate; InvalidStatement if
    the collections have two timelines.
    """
    items = catalog_items(logs, topics, namespace)
    by_name = {**{str(item.id): item for item in items}, **{item.name: item for item in items}}
    inputs = [by_name.get(binding.collection) for binding in task.bindings]
    common([item for item in inputs if item is not None], {item.id: item for item in items})
    bindings = [
        bound(binding, by_name.get(binding.collection), items) for binding in task.bindings
    ]
    return task.model_copy(update={"bindings": bindings})


def catalog_items(logs: Logs, topics: Topics, namespace: str) -> Sequence[Item]:
    """The sources and views; none where there is no catalog."""
    topic = catalog_topic(namespace)
    if topics.describe(topic) is None:
        return ()
    catalog = CatalogLog(logs, topic, fresh_uuid)
    try:
        return [item for item in catalog.sync().ordered() if item.has_shard]
    finally:
        catalog.close()


def bound(binding: BindingConfig, item: Item | None, items: Sequence[Item]) -> BindingConfig:
    """A binding of what the catalog knows, if it does."""
    if item is None:
        return binding
    update: Mapping[str, object] = {"collection": str(item.id)}
    if binding.key is None and item.kind in {"view", "rebase"}:
        update = {**update, "key": key_of(item, items)}
    return binding.model_copy(update=update)


def key_of(item: Item, items: Sequence[Item]) -> list[str] | None:
    """The key of a view by its query, of a rebase by what it reads.

    None if none is known, or a row is alone. Also where the query calls functions that are not
    here: the key has to be declared then.
    """
    by_id = {item.id: item for item in items}
    if item.kind == "rebase":
        item = by_id[item.inputs[0]]
    if item.source is not None:
        return list(item.source.keys) or None
    try:
        compiled = compile_view(item.query, relations(items, by_id))
    except SlackwaterError:
        return None
    places = compiled.key
    return [item.columns[place].name for place in places] if places else None
