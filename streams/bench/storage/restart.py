"""The cost of a coordinator with a thousand sources: restarting it, and idling.

The catalog is written as the statements would have written it, for sources whose shards are
there already. The coordinator runs in this process, with no replica to answer it.
"""

from collections.abc import Sequence

from streams.adapter import ddl
from streams.adapter.catalog import Birth, Create, Item
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.coordinator import Coordinator
from streams.adapter.coordinator_settings import Cluster, CoordinatorSettings, catalog_topic
from streams.adapter.workers.pool import Workers
from streams.app.service_process import new_id, now_ms
from streams.bench.storage.rig import NAMESPACE, Client, Idle, Start, StorageRig, idle
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.plan.sql import statements
from streams.plan.sql.statements import CreateSource

RAW = Topic("rows")


def declare(rig: StorageRig, client: Client, ids: Sequence[CollectionId]) -> None:
    """Write the catalog of sources with these ids, which are the next that it gives."""
    topics, topic = client.broker.topics, catalog_topic(NAMESPACE)
    specs = [TopicSpec(topic, 1, TopicKind.LOG), TopicSpec(RAW, 1, TopicKind.RAW)]
    topics.create(specs)
    catalog = CatalogLog(client.broker.logs, topic, new_id)
    catalog.open()
    with rig.bar("writing the catalog", len(ids)) as step:
        for id_ in ids:
            item = source(client, catalog, f"rows_{id_}")
            assert item.id == id_, f"expected the catalog to give {id_}, actual {item.id}"
            _written(catalog, item)
            step(1)
    catalog.close()


def source(client: Client, catalog: CatalogLog, name: str) -> Item:
    """The item that `CREATE SOURCE` makes of a statement."""
    text = f"""CREATE SOURCE {name} FROM KAFKA (TOPIC '{RAW}')
        (id BIGINT, account BIGINT, amount DOUBLE, note VARCHAR) FORMAT JSON ENVELOPE NONE"""
    (statement,) = statements.parse(text)
    assert isinstance(statement, CreateSource), "it was written so"
    topics = client.broker.topics
    columns = statement.columns  # spelled as DuckDB does
    return ddl.source(statement, text, catalog.state, topics, NAMESPACE, columns)


def _written(catalog: CatalogLog, item: Item) -> None:
    """The two records of an object that is made."""
    catalog.change(lambda _: Create(item))
    catalog.change(lambda _: Birth(item.id, Timestamp(0)))


def restarted(rig: StorageRig, ids: Sequence[CollectionId]) -> Idle:
    """Start a coordinator, then let it wait.

    Errors: Determinate when it does not find all of its sources.
    """
    settings = CoordinatorSettings(namespace=NAMESPACE)
    start = Start()
    broker = KafkaBroker(ClientSettings(rig.bootstrap))
    cluster = Cluster(broker.logs, broker.chunks, broker.topics)
    workers = Workers()
    coordinator = Coordinator(settings, cluster, now_ms=now_ms, new_id=new_id, workers=workers)
    try:
        coordinator.start()
        ready = start.ready()
        missing = set(ids) - set(coordinator.shards.groups())
        if missing:
            raise Determinate(f"coordinator: expected to find {sorted(missing)[:3]}")
        return idle(rig, ready)
    finally:
        coordinator.stop()
        workers.close()
        broker.close()
