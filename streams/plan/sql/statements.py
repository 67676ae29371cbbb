"""The statements a user may send, and their grammar, one table entry each.

The SELECT inside a statement is DuckDB's language, not ours: it is handed on as the exact
text between our words, and judged when it is compiled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from streams.errors import InvalidStatement
from streams.ids import DEFAULT_CLUSTER
from streams.plan.metadata import ErrorLimit, OnError, Watermark
from streams.plan.physical import Column
from streams.plan.sql import (
    analyze,
    audit,
    bad_messages,
    clusters,
    columns,
    copy,
    emit,
    event_time,
    history,
    index,
    materializations,
    messages,
    offsets,
    rebase,
    select,
    show,
    subscribe,
)
from streams.plan.sql.history import Retain
from streams.plan.sql.limits import check_statements, check_text
from streams.plan.sql.tokens import Cursor, split, tokenize


class Kind(Enum):
    """The kinds of objects, by the words that name them."""

    SOURCE = "SOURCE"
    VIEW = "MATERIALIZED VIEW"
    REBASE = "REBASE"
    SINK = "SINK"
    INDEX = "INDEX"


class Envelope(Enum):
    """The envelope: how a source's messages become updates."""

    NONE = "none"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource:
    """Read a Kafka topic as a collection. Types are as the user wrote them."""

    name: str
    topic: str
    options: Mapping[str, str]  # the others, by upper-case name
    columns: tuple[Column, ...]
    envelope: Envelope
    keys: tuple[str, ...]  # of UPSERT, spelled like the columns
    if_not_exists: bool
    messages: messages.Messages
    retain: Retain | None = None
    start: offsets.Place = offsets.EARLIEST
    on_error: OnError | None = None
    error_limit: ErrorLimit | None = None
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """Maintain a query."""

    name: str
    query: str
    if_not_exists: bool
    retain: Retain | None = None
    cluster: str = DEFAULT_CLUSTER
    owns_topic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSink:
    """Write a collection's changes to a topic."""

    name: str
    relation: str
    topic: str
    options: Mapping[str, str]
    keys: tuple[str, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction:
    """Let queries call a function in Python. Types are as the user wrote them."""

    name: str
    parameters: tuple[Column, ...]
    returns: str
    body: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropFunction:
    """Remove a function."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Show:
    """List the objects of a kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Alter:
    """Keep another amount of an object's history; None: what the environment keeps."""

    kind: Kind
    name: str
    retain: Retain | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove an object."""

    kind: Kind
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Explain:
    """Show how a query would be maintained, as a tree in text or as a picture."""

    query: str
    picture: bool = False


Statement = (
    CreateSource
    | CreateMaterializedView
    | rebase.CreateRebase
    | index.CreateIndex
    | CreateSink
    | CreateFunction
    | DropFunction
    | show.ShowFunctions
    | show.ShowReplicas
    | show.ShowClusters
    | select.Select
    | copy.CopyTo
    | subscribe.Subscribe
    | Show
    | Alter
    | clusters.ClusterStatement
    | bad_messages.AlterErrors
    | offsets.ResumeSource
    | audit.Audit
    | Drop
    | Explain
    | analyze.ExplainAnalyze
    | materializations.MaterializationStatement
)

_SOURCE_USAGE = (
    "CREATE SOURCE [IF NOT EXISTS] name FROM KAFKA (TOPIC '...')"
    f" (column type [PATH '$.a.b'], ... {event_time.USAGE}) {messages.USAGE}"
    f" [ENVELOPE NONE | UPSERT (KEY (columns))] {bad_messages.ON_ERROR_USAGE}"
    f" [START FROM {offsets.USAGE}]"
    f" [WITH ({history.USAGE}, {event_time.OPTIONS_USAGE}, {bad_messages.LIMIT_USAGE})]"
)
_VIEW_USAGE = (
    f"CREATE MATERIALIZED VIEW [IF NOT EXISTS] name {clusters.IN_USAGE}"
    f" {clusters.OWN_TOPIC_USAGE} [WITH ({history.USAGE})] AS SELECT ..."
    f" [{emit.USAGE}]"
)
_SINK_USAGE = (
    "CREATE SINK [IF NOT EXISTS] name FROM view INTO KAFKA"
    " (TOPIC '...' [, PARTITIONS number]) KEY (columns)"
)
_FUNCTION_USAGE = (
    "CREATE FUNCTION [IF NOT EXISTS] name (argument type, ...) RETURNS type"
    " LANGUAGE PYTHON AS $$ source that defines name $$"
)
_ALTER_USAGE = (
    "ALTER SOURCE | MATERIALIZED VIEW | REBASE name"
    f" SET ({history.USAGE}) | RESET (RETAIN HISTORY)"
    f", ALTER SOURCE name SET ({bad_messages.ALTER_USAGE})"
    f", ALTER SOURCE name RESUME FROM [TOPIC '...'] [{offsets.USAGE}]"
)
_DROP_USAGE = (
    "DROP SOURCE | MATERIALIZED VIEW | REBASE | SINK | INDEX | MATERIALIZATION | FUNCTION"
    " | CLUSTER [IF EXISTS] name"
)
_EXPLAIN_USAGE = f"EXPLAIN [AS SVG] SELECT ..., {analyze.USAGE}"

_PLURALS = {"INDEXES" if kind is Kind.INDEX else f"{kind.value}S": kind for kind in Kind}
_KINDS = {kind.value: kind for kind in Kind}


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of the text, which semicolons separate.

    Errors: InvalidStatement with line and column, what was expected and what was found.
    """
    check_text(text)
    statements = split(tokenize(text))
    check_statements(text, statements)
    return tuple(_statement(Cursor(text, tokens)) for tokens in statements)


def _statement(cursor: Cursor) -> Statement:
    if any(cursor.at(word) for word in select.WORDS):
        cursor.usage = select.USAGE
        return select.select(cursor)
    for words, (usage, read) in _GRAMMAR.items():
        if cursor.accept(*words.split()):
            cursor.usage = usage
            statement = read(cursor)
            cursor.end()
            return statement
    first = dict.fromkeys(words.split()[0] for words in _GRAMMAR)
    if cursor.accept("CREATE"):
        raise cursor.refused(
            "SOURCE, MATERIALIZED VIEW, REBASE, SINK, INDEX, MATERIALIZATION, FUNCTION"
            " or CLUSTER"
        )
    raise cursor.refused(f"one of SELECT, {', '.join(first)}")


def _create_source(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a source name")
    cursor.expect("FROM", "KAFKA")
    topic, options = _kafka(cursor)
    beside = columns.Beside()
    declared = columns.columns(cursor, beside)
    read = messages.messages(cursor, declared, tuple(beside.located))
    envelope, keys = _envelope(cursor, declared)
    messages.refuse_paths_of_keys(read.located, keys)
    on_error = bad_messages.on_error(cursor)
    start = offsets.place(cursor) if cursor.accept("START", "FROM") else offsets.EARLIEST
    options_ = _source_options(cursor)
    watermark = event_time.watermark(
        beside.watermark,
        options_.about_time,
        declared,
        read.included,
        keys,
    )
    return CreateSource(
        name=name,
        topic=topic,
        options=options,
        columns=declared,
        envelope=envelope,
        keys=keys,
        if_not_exists=if_not_exists,
        messages=read,
        retain=options_.retain,
        start=start,
        on_error=on_error,
        error_limit=options_.error_limit,
        watermark=watermark,
    )


@dataclass(frozen=True, slots=True)
class _SourceOptions:
    """What WITH of a source says: the retained history, and what concerns its messages."""

    retain: Retain | None = None
    about_time: event_time.Options = event_time.Options()  # noqa: RUF009  frozen
    error_limit: ErrorLimit | None = None


def _source_options(cursor: Cursor) -> _SourceOptions:
    """`[WITH (option, ...)]`."""
    options_ = _SourceOptions()
    if not cursor.accept("WITH"):
        return options_
    cursor.expect("(")
    while True:
        options_ = _with_option(cursor, options_)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return options_


def _with_option(cursor: Cursor, options_: _SourceOptions) -> _SourceOptions:
    option = cursor.choose((*history.OPTIONS, *event_time.OPTIONS, bad_messages.LIMIT))
    if option == bad_messages.LIMIT:
        if options_.error_limit is not None:
            raise InvalidStatement(f"option {option} appears twice")
        return replace(options_, error_limit=bad_messages.limit(cursor))
    if option not in history.OPTIONS:
        about_time = event_time.option(cursor, option, options_.about_time)
        return replace(options_, about_time=about_time)
    if options_.retain is not None:
        raise InvalidStatement(f"{' and '.join(history.OPTIONS)} are one option, given twice")
    return replace(options_, retain=history.retained(cursor, option))


def _kafka(cursor: Cursor) -> tuple[str, dict[str, str]]:
    """The topic and the other options between parentheses, by upper-case name."""
    options: dict[str, str] = {}
    cursor.expect("(")
    while True:
        name = cursor.name("an option").upper()
        if name in options:
            raise InvalidStatement(f"option {name} appears twice")
        cursor.accept("=")
        options[name] = _value(cursor, name)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if "TOPIC" not in options:
        raise InvalidStatement(
            "option TOPIC is missing", hint=f"the statement is {cursor.usage}"
        )
    return options.pop("TOPIC"), options


def _value(cursor: Cursor, option: str) -> str:
    token = cursor.current
    if token is None or token.text in {",", ")"}:
        raise cursor.refused(f"a value of option {option}")
    return (
        cursor.string(f"option {option} in quotes") if option == "TOPIC" else cursor.take().text
    )


def _envelope(cursor: Cursor, columns: tuple[Column, ...]) -> tuple[Envelope, tuple[str, ...]]:
    if not cursor.accept("ENVELOPE") or cursor.accept("NONE"):
        return Envelope.NONE, ()
    if not cursor.accept("UPSERT"):
        raise cursor.refused("NONE or UPSERT")
    cursor.expect("(", "KEY")
    keys = cursor.names("a key column")
    cursor.expect(")")
    spelled = {column.name.lower(): column.name for column in columns}
    for key in keys:
        if key.lower() not in spelled:
            names = ", ".join(column.name for column in columns)
            raise InvalidStatement(f"key column {key} does not exist", f"columns are {names}")
    return Envelope.UPSERT, tuple(spelled[key.lower()] for key in keys)


def _create_view(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a view name")
    cluster = clusters.placed(cursor)
    owns_topic = clusters.owns_topic(cursor)
    retain = history.retain(cursor) if cursor.accept("WITH") else None
    cursor.expect("AS")
    query = select.query(cursor)
    return CreateMaterializedView(name, query, if_not_exists, retain, cluster, owns_topic)


def _explain(cursor: Cursor) -> Statement:
    picture = cursor.accept("AS", "SVG")
    return Explain(select.query(cursor), picture)


def _create_sink(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a sink name")
    cursor.expect("FROM")
    relation = cursor.relation("the name of a view or source")
    cursor.expect("INTO", "KAFKA")
    topic, options = _kafka(cursor)
    cursor.expect("KEY")
    return CreateSink(
        name=name,
        relation=relation,
        topic=topic,
        options=options,
        keys=cursor.names("a key column"),
        if_not_exists=if_not_exists,
    )


def _create_function(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a function name")
    parameters = columns.columns(cursor)
    cursor.expect("RETURNS")
    returns = cursor.until(("LANGUAGE",))
    cursor.expect("LANGUAGE", "PYTHON", "AS")
    return CreateFunction(
        name=name,
        parameters=parameters,
        returns=returns,
        body=cursor.string("Python source between $$ and $$"),
        if_not_exists=if_not_exists,
    )


def _show(cursor: Cursor) -> Statement:
    others: Mapping[str, Statement] = {
        "MATERIALIZATIONS": materializations.ShowMaterializations(),
        "FUNCTIONS": show.ShowFunctions(),
        "CLUSTER REPLICAS": show.ShowReplicas(),
        "CLUSTERS": show.ShowClusters(),
    }
    chosen = cursor.choose((*_PLURALS, *others))
    return Show(_PLURALS[chosen]) if chosen in _PLURALS else others[chosen]


def _alter(cursor: Cursor) -> Statement:
    kind = _KINDS[cursor.choose((Kind.SOURCE.value, Kind.VIEW.value, Kind.REBASE.value))]
    name = cursor.name("a name")
    actions = ("SET", "RESET", "RESUME") if kind is Kind.SOURCE else ("SET", "RESET")
    action = cursor.choose(actions)
    has_messages = action == "SET" and kind is Kind.SOURCE
    if has_messages and bad_messages.is_alter(cursor, history.OPTIONS):
        return bad_messages.alter(cursor, name)
    if action == "SET":
        return Alter(kind, name, history.retain(cursor))
    if action == "RESUME":
        return offsets.resume(cursor, name)
    cursor.expect("(", "RETAIN", "HISTORY", ")")
    return Alter(kind, name, None)


def _drop(cursor: Cursor) -> Statement:
    chosen = cursor.choose((*_KINDS, "MATERIALIZATION", "FUNCTION"))
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("a name")
    if chosen == "MATERIALIZATION":
        return materializations.DropMaterialization(name, if_exists)
    if chosen == "FUNCTION":
        return DropFunction(name, if_exists)
    return Drop(_KINDS[chosen], name, if_exists)


_GRAMMAR: Mapping[str, tuple[str, Callable[[Cursor], Statement]]] = {
    "CREATE SOURCE": (_SOURCE_USAGE, _create_source),
    "CREATE MATERIALIZED VIEW": (_VIEW_USAGE, _create_view),
    "CREATE REBASE": (rebase.USAGE, rebase.create),
    "CREATE SINK": (_SINK_USAGE, _create_sink),
    "CREATE INDEX": (index.USAGE, index.create),
    "CREATE MATERIALIZATION": (materializations.CREATE_USAGE, materializations.create),
    "CREATE FUNCTION": (_FUNCTION_USAGE, _create_function),
    "SUBSCRIBE": (subscribe.USAGE, subscribe.subscribe),
    "SHOW": (show.USAGE, _show),
    "ALTER MATERIALIZATION": (materializations.ALTER_USAGE, materializations.alter),
    "CREATE CLUSTER": (clusters.CREATE_USAGE, clusters.create),
    "ALTER CLUSTER": (clusters.ALTER_USAGE, clusters.alter),
    "ALTER": (_ALTER_USAGE, _alter),
    "DROP CLUSTER": (clusters.DROP_USAGE, clusters.drop),
    "DROP": (_DROP_USAGE, _drop),
    "EXPLAIN ANALYZE": (analyze.USAGE, analyze.explain_analyze),
    "EXPLAIN": (_EXPLAIN_USAGE, _explain),
    "AUDIT": (audit.USAGE, audit.audit),
    "COPY": (copy.USAGE, copy.copy),
}
