"""Turns a CREATE statement into the object to create, checked against the catalog.

Nothing is changed here. Every possible refusal happens now, in terms of the user's statement,
so that the steps after the catalog's record fail only for transient reasons.
"""

from collections.abc import Callable, Mapping

from streams.adapter import offsets
from streams.adapter.audit_verdicts import topic_of_verdicts
from streams.adapter.bad_messages import refuse_inline, refuse_limit, refuse_taken
from streams.adapter.catalog import NAMES, Catalog, Item, ItemKind
from streams.adapter.cluster_definitions import live_cluster
from streams.adapter.shared_groups import group_for
from streams.adapter.system_columns import relation_of
from streams.adapter.timelines import common, timeline
from streams.adapter.unknown_names import unknown
from streams.adapter.workers.requests import Viewed
from streams.compute import dead_letters
from streams.compute.description import Envelope as DescribedEnvelope
from streams.compute.description import IngestionDescription, SinkDescription
from streams.errors import InvalidStatement
from streams.ids import CollectionId, Topic
from streams.kafka.topics import LONGEST_NAME, NAME_RULE, TopicKind, Topics, TopicSpec, is_name
from streams.plan import metadata
from streams.plan.metadata import OnError, Watermark
from streams.plan.physical import Column
from streams.plan.sql.emit import emits
from streams.plan.sql.history import Retain
from streams.plan.sql.index import CreateIndex
from streams.plan.sql.messages import KeyFormat
from streams.plan.sql.rebase import CreateRebase
from streams.plan.sql.statements import (
    Alter,
    CreateMaterializedView,
    CreateSink,
    CreateSource,
    Envelope,
    Kind,
)
from streams.storage.policy import LagBehindUpper, RetainHistory, Retention
from streams.trace.kernel.functions import Function
from streams.trace.kernel.types import parts

KINDS: Mapping[Kind, ItemKind] = {
    Kind.SOURCE: "source",
    Kind.VIEW: "view",
    Kind.REBASE: "rebase",
    Kind.SINK: "sink",
    Kind.INDEX: "index",
}


def source(
    statement: CreateSource,
    text: str,
    catalog: Catalog,
    topics: Topics,
    namespace: str,
    columns: tuple[Column, ...],
) -> Item:
    """Return the source of the statement, with these columns. Errors: InvalidStatement."""
    _refuse_options(statement.options)
    topic, topic_id = read_topic(statement.topic, topics, namespace)
    envelope: DescribedEnvelope = "upsert" if statement.envelope is Envelope.UPSERT else "none"
    key_format = _key_format(statement, columns)
    id_ = catalog.next_id("source")
    columns = (*columns, *_included(statement, key_format))
    watermark = event_time(statement, columns)
    on_error = statement.on_error or ON_ERROR["none" if watermark else envelope]
    refuse_limit(on_error, statement.error_limit)
    refuse_inline(on_error, envelope, watermark)
    late_rows = None if watermark is None else watermark.late_rows
    has_letters = "dead_letter" in {on_error, late_rows}
    if has_letters and catalog.find(statement.name) is None:
        refuse_taken(statement.name, catalog)
    return Item(
        id=id_,
        kind="source",
        name=statement.name,
        statement=text,
        columns=columns,
        source=IngestionDescription(
            topic=topic,
            topic_id=topic_id,
            envelope=envelope,
            keys=statement.keys,
            key_format=key_format,
            included=statement.messages.included,
            located=statement.messages.located,
            start=offsets.start(statement.start, topic, topics),
            on_error=on_error,
            dead_letters=dead_letters.of(id_) if has_letters else None,
            watermark=watermark,
            error_limit=statement.error_limit,
        ),
        policy=retention(statement.retain),
    )


ON_ERROR: Mapping[DescribedEnvelope, OnError] = {"none": "dead_letter", "upsert": "inline"}
"""What becomes of bad messages unless the statement says it: an UPSERT key heals by itself.

With a watermark no key is in error, so it is as with NONE.
"""

EVENT_TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""The types of a column with event times."""


def event_time(statement: CreateSource, columns: tuple[Column, ...]) -> Watermark | None:
    """Return the watermark. Errors: InvalidStatement if its column has another type."""
    watermark = statement.watermark
    if watermark is None:
        return None
    (type_,) = (column.type for column in columns if column.name == watermark.column)
    if type_ not in EVENT_TIMES:
        raise InvalidStatement(
            f"column {watermark.column} of WATERMARK has the type {type_}",
            f"expected {' or '.join(EVENT_TIMES)}",
        )
    return watermark


KEY_TYPES: Mapping[KeyFormat, str] = {"text": "VARCHAR", "bytes": "BLOB"}
"""The type of the one key column of a format; JSON has any, and any number of columns."""


def _key_format(statement: CreateSource, columns: tuple[Column, ...]) -> KeyFormat:
    """Return the format of keys. Errors: InvalidStatement if the key columns do not fit it."""
    for column in columns:
        if column.name in statement.keys and parts(column.type) is not None:
            raise InvalidStatement(
                f"key column {column.name} of type {column.type} is not a single value",
                "expected a type without LIST, STRUCT and MAP",
            )
    stated = statement.messages.key_format
    if stated is not None and statement.envelope is Envelope.NONE:
        return _included_format(statement, stated)
    if stated is None or stated == "json":
        return "json"
    keys = [column for column in columns if column.name in statement.keys]
    if [column.type for column in keys] != [KEY_TYPES[stated]]:
        spelled = ", ".join(f"{column.name} {column.type}" for column in keys)
        raise InvalidStatement(
            f"KEY FORMAT {stated.upper()} does not fit the key ({spelled})",
            f"expected one key column of type {KEY_TYPES[stated]}",
            "change the column, or leave KEY FORMAT out if keys are JSON",
        )
    return stated


def _included_format(statement: CreateSource, stated: KeyFormat) -> KeyFormat:
    """Return the format of keys that are but included. Errors: InvalidStatement."""
    if not any(included.part == "key" for included in statement.messages.included):
        raise InvalidStatement(
            f"KEY FORMAT {stated.upper()} in a source of ENVELOPE NONE, which reads no keys",
            hint="leave it out, or declare ENVELOPE UPSERT (KEY (...)), or INCLUDE KEY",
        )
    if stated == "json":
        raise InvalidStatement(
            "KEY FORMAT JSON in a source of ENVELOPE NONE, which does not parse keys",
            "expected TEXT or BYTES",
            "INCLUDE KEY with KEY FORMAT TEXT, and cast the column to JSON in a view",
        )
    return stated


def _included(statement: CreateSource, key_format: KeyFormat) -> tuple[Column, ...]:
    """Return the columns of INCLUDE."""
    types = {**metadata.TYPES, "key": KEY_TYPES.get(key_format, metadata.TYPES["key"])}
    return tuple(
        Column(included.column, types[included.part])
        for included in statement.messages.included
    )


def read_topic(name: str, topics: Topics, namespace: str) -> tuple[Topic, str]:
    """Return a topic that a source is to read, and its id. Errors: InvalidStatement."""
    topic = _topic(name)
    is_system = relation_of(topic, namespace) is not None
    if is_system:
        topics.create([TopicSpec(topic, 1, TopicKind.OUTPUT)])
    info = topics.describe(topic)
    if info is None:
        raise InvalidStatement(f"topic {topic} does not exist", hint="create the topic first")
    if not is_system and topic != topic_of_verdicts(namespace):
        _refuse_ours(topic, namespace)
    return topic, info.id


def view(
    statement: CreateMaterializedView,
    text: str,
    catalog: Catalog,
    viewed: Viewed,
    is_healthy: Callable[[str], bool],
) -> Item:
    """Return the view of the statement, as a worker has planned it, in a healthy group.

    Errors: InvalidStatement if its inputs have two timelines, or EMIT ON CLOSE has no event
    times.
    """
    read_timeline = common([catalog.items[read] for read in viewed.inputs], catalog.items)
    if emits(statement.query) and read_timeline != "event":
        raise InvalidStatement(
            f"EMIT ON CLOSE in {statement.name}, whose inputs have times of ingestion",
            "rows that are ingested after their window has ended would be dropped silently",
            "declare a WATERMARK in the sources: then it says how long a window waits for rows",
        )
    id_, cluster = catalog.next_id("view"), live_cluster(statement.cluster, catalog).name
    shared = group_for(int(id_[1:]), cluster, catalog.items.values(), is_healthy)
    return Item(
        id=id_,
        kind="view",
        name=statement.name,
        statement=text,
        query=statement.query,
        columns=viewed.columns,
        inputs=viewed.inputs,
        policy=retention(statement.retain),
        functions=viewed.functions,
        cluster=cluster,
        shared_group="" if statement.owns_topic else shared,
    )


def rebase(statement: CreateRebase, text: str, catalog: Catalog) -> Item:
    """Return the rebase of the statement. Errors: InvalidStatement."""
    read = readable(statement.relation, catalog)
    if timeline(read, catalog.items) != "event":
        raise InvalidStatement(
            f"{read.name} cannot be rebased: it is already on the timeline of the clock",
            "expected a source with a WATERMARK, or a view over one",
            f"read {read.name} directly: it can be joined with other collections of"
            " that timeline",
        )
    return Item(
        id=catalog.next_id("rebase"),
        kind="rebase",
        name=statement.name,
        statement=text,
        columns=read.columns,
        inputs=(read.id,),
        policy=retention(statement.retain),
    )


def retention(retain: Retain | None) -> Retention | None:
    """Return the read policy of a statement."""
    if retain is None:
        return None
    return LagBehindUpper(retain.ms) if retain.behind_upper else RetainHistory(retain.ms)


def sink(
    statement: CreateSink, text: str, catalog: Catalog, topics: Topics, namespace: str
) -> Item:
    """Return the sink of the statement. Errors: InvalidStatement."""
    options = dict(statement.options)
    partitions = _partitions(options.pop("PARTITIONS", "1"))
    _refuse_options(options, "TOPIC and PARTITIONS")
    read = readable(statement.relation, catalog)
    topic = _topic(statement.topic)
    _refuse_ours(topic, namespace)
    taken = [item for item in catalog.items.values() if item.sink and item.sink.topic == topic]
    if taken:
        raise InvalidStatement(f"topic {topic} is written by sink {taken[0].name}")
    if topics.describe(topic) is not None:
        raise InvalidStatement(
            f"topic {topic} already exists",
            "a sink creates its own topic, so that it has no other records",
            "choose another topic, or delete this one first",
        )
    return Item(
        id=catalog.next_id("sink"),
        kind="sink",
        name=statement.name,
        statement=text,
        columns=read.columns,
        inputs=(read.id,),
        sink=SinkDescription(topic, _spelled(statement.keys, read), partitions),
    )


def index(statement: CreateIndex, text: str, catalog: Catalog) -> Item:
    """Return the index of the statement. Errors: InvalidStatement."""
    read = readable(statement.relation, catalog)
    keys = _spelled(statement.keys, read)
    nested = [c for c in read.columns if c.name in keys and parts(c.type) is not None]
    if nested:
        raise InvalidStatement(
            f"key column {nested[0].name} of type {nested[0].type} is not a single value",
            "expected a type without LIST, STRUCT and MAP",
        )
    return Item(
        id=catalog.next_id("index"),
        kind="index",
        name=statement.name,
        statement=text,
        columns=read.columns,
        inputs=(read.id,),
        keys=keys,
        cluster=live_cluster(statement.cluster, catalog).name,
    )


def readable(name: str, catalog: Catalog) -> Item:
    """Return the source or view of this name. Errors: InvalidStatement."""
    item = catalog.find(name)
    if item is None:
        raise unknown(name, catalog.ordered())
    if not item.has_shard:
        kind = NAMES[item.kind]
        raise InvalidStatement(f"{kind} {name} cannot be read", "expected a source or a view")
    return item


def alterable(statement: Alter, catalog: Catalog) -> Item:
    """Return the object to alter. Errors: InvalidStatement if none has the name and kind."""
    item = catalog.find(statement.name)
    if item is None:
        raise unknown(statement.name, catalog.ordered())
    _refuse_other_kind(statement.kind, item, "ALTER")
    return item


def _refuse_other_kind(kind: Kind, item: Item, verb: str) -> None:
    if item.kind != KINDS[kind]:
        expected, actual = NAMES[KINDS[kind]], NAMES[item.kind]
        hint = f"use {verb} {actual.upper()} {item.name}"
        if item.kind == "errors":
            owner = item.name.removesuffix(dead_letters.SUFFIX)
            hint = f"it comes and goes with its source: {verb} SOURCE {owner}"
        raise InvalidStatement(f"{item.name} is not {a(expected)} but {a(actual)}", hint=hint)


def a(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def droppable(kind: Kind, name: str, catalog: Catalog) -> Item | None:
    """Return the object to drop; None if there is none of the name.

    Errors: InvalidStatement if it is of another kind, or something depends on it.
    """
    item = catalog.find(name)
    if item is None:
        return None
    _refuse_other_kind(kind, item, "DROP")
    readers = [
        f"{NAMES[dependant.kind]} {dependant.name}" for dependant in catalog.dependants(item.id)
    ]
    readers += [f"materialization {name}" for name in catalog.bound(item.id)]
    if readers:
        shown = ", ".join(readers)
        raise InvalidStatement(
            f"{NAMES[item.kind]} {name} cannot be dropped",
            f"what depends on it: {shown}",
            "drop those first",
        )
    return item


def undefinable(name: str, catalog: Catalog) -> Function | None:
    """Return the Python function to drop; None if there is none of the name.

    Errors: InvalidStatement if views call it.
    """
    function = catalog.functions.get(name.casefold())
    callers = catalog.callers(name)
    if callers:
        shown = ", ".join(f"{NAMES[caller.kind]} {caller.name}" for caller in callers)
        raise InvalidStatement(
            f"function {name} cannot be dropped", f"what calls it: {shown}", "drop those first"
        )
    return function


def blocking(item: Item, uppers: Mapping[CollectionId, int]) -> CollectionId | None:
    """Return the input with the least upper, if the object waits for it.

    A rebase waits for none: its time is another one. Shape: `uppers` of the object and its
    inputs; sealed ones are left out.
    """
    if item.kind == "rebase":
        return None
    inputs = [
        (uppers[collection], collection) for collection in item.inputs if collection in uppers
    ]
    if not inputs or item.id not in uppers:
        return None
    least, blocker = min(inputs)
    return blocker if least <= uppers[item.id] else None


def _refuse_options(options: Mapping[str, str], accepted: str = "TOPIC") -> None:
    for name in options:
        raise InvalidStatement(f"option {name} is not known", f"expected only {accepted}")


MOST_PARTITIONS = 1_000
"""Maximum of partitions of an output topic."""


def _partitions(text: str) -> int:
    """Return the number of partitions of an output topic. Errors: InvalidStatement."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004  nine digits are a number
    if not 1 <= number <= MOST_PARTITIONS:
        expected = f"expected a number from 1 to {MOST_PARTITIONS}"
        raise InvalidStatement(f"option PARTITIONS is {text[:20]}", expected)
    return number


def _topic(name: str) -> Topic:
    """Errors: InvalidStatement if no topic can have the name."""
    if not is_name(name):
        shown = (
            name if len(name) <= LONGEST_NAME else f"{name[:20]}... ({len(name)} characters)"
        )
        raise InvalidStatement(f"topic name '{shown}' is not valid", NAME_RULE)
    return Topic(name)


def _refuse_ours(topic: Topic, namespace: str) -> None:
    if topic.startswith(f"{namespace}."):
        raise InvalidStatement(
            f"topic {topic} belongs to this environment",
            f"names that begin with {namespace}. are taken",
        )


def _spelled(keys: tuple[str, ...], read: Item) -> tuple[str, ...]:
    """Return the key columns as the collection spells them. Errors: InvalidStatement."""
    spelled = {column.name.casefold(): column.name for column in read.columns}
    for key in keys:
        if key.casefold() not in spelled:
            names = ", ".join(column.name for column in read.columns)
            raise InvalidStatement(
                f"column {key} of {read.name} does not exist", f"its columns are {names}"
            )
    return tuple(spelled[key.casefold()] for key in keys)
