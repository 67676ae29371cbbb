"""Catalog items for tests."""

from streams.adapter.catalog import Item
from streams.compute.description import IngestionDescription, SinkDescription
from streams.ids import CollectionId, Topic
from streams.plan.physical import Column

COLUMNS = (Column("id", "BIGINT"), Column("amount", "DOUBLE"))


def source(number: int, name: str) -> Item:
    return Item(
        id=CollectionId(f"s{number}"),
        kind="source",
        name=name,
        statement=f"CREATE SOURCE {name} ...",
        columns=COLUMNS,
        source=IngestionDescription(
            topic=Topic(name), topic_id="x", envelope="upsert", keys=("id",), key_format="json"
        ),
    )


def view(number: int, name: str, *inputs: str) -> Item:
    return Item(
        id=CollectionId(f"u{number}"),
        kind="view",
        name=name,
        statement=f"CREATE MATERIALIZED VIEW {name} ...",
        query="SELECT 1",
        columns=COLUMNS,
        inputs=tuple(CollectionId(input_) for input_ in inputs),
    )


def rebase(number: int, name: str, of: str = "s1") -> Item:
    return Item(
        id=CollectionId(f"r{number}"),
        kind="rebase",
        name=name,
        statement=f"CREATE REBASE {name} ...",
        columns=COLUMNS,
        inputs=(CollectionId(of),),
    )


def sink(number: int, name: str, of: str) -> Item:
    return Item(
        id=CollectionId(f"k{number}"),
        kind="sink",
        name=name,
        statement=f"CREATE SINK {name} ...",
        columns=COLUMNS,
        inputs=(CollectionId(of),),
        sink=SinkDescription(Topic(name), ("id",)),
    )
