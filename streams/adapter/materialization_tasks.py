"""Turns statements about materializations into tasks. Pure.

A task is what `slackwater materialize run` reads of a file, with ids of collections and all
keys: the runtime needs no catalog. What an option of an endpoint or resource means is the
connector's business (`Check`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from streams.adapter.catalog import Catalog, Item
from streams.adapter.ddl import readable
from streams.errors import InvalidStatement
from streams.plan.sql.materializations import Bind, Options, Value

Json = dict[str, object]

FOREIGN = "connector"
"""INTO CONNECTOR: one that is called by a command or at an address."""

LIMITS = ("rows", "bytes", "every_ms", "idle_ms", "answer_s", "spill", "dead_letters")
"""Settings that bound a transaction."""

BACKFILL = ("by", "master", "ranges")
"""Settings of the backfill, as BACKFILL BY SPARK."""

OF_BACKFILL = "backfill_"
"""What the names of these settings begin with."""

SPARK = "spark"

OF_BINDING = ("key", "select", "verify", "dead_letters")
"""Options of a binding that are the runtime's; the others are of its resource."""

VERIFY = ("never", "first", "always")


class Check(Protocol):
    """Judges a task by what its connector says of its configuration."""

    def __call__(self, task: Mapping[str, object]) -> Sequence[bool | None]:
        """Return of each binding whether it takes every change as a row; None: not known yet.

        Errors: InvalidStatement: no such connector or option, a value that it does not take, a
        secret in clear.
        """
        ...


def no_connectors(task: Mapping[str, object]) -> Sequence[bool | None]:
    """Errors: InvalidStatement: this process knows no connectors."""
    raise InvalidStatement(f"connector {task['connector']!r} is not known")


def endpoint(connector: str, options: Options) -> Json:
    """Return the connector and its configuration. Errors: InvalidStatement."""
    if not connector.isidentifier():
        raise InvalidStatement(
            f"connector {connector!r} is not known",
            hint="for your own connector write INTO CONNECTOR (COMMAND './program')",
        )
    if connector != FOREIGN:
        return {"connector": connector, "config": plain(options)}
    rest = dict(options)
    command, address = (text_of(rest.pop(name, ""), name) for name in ("command", "address"))
    config = configured(rest.pop("config", "{}"), "config")
    if rest:
        raise InvalidStatement(
            f"option {min(rest).upper()} of INTO CONNECTOR is not known",
            "expected COMMAND or ADDRESS, and CONFIG",
        )
    if bool(command) == bool(address):
        raise InvalidStatement(
            "INTO CONNECTOR takes one of COMMAND and ADDRESS",
            hint="COMMAND './connector' runs it, ADDRESS 'HOST:PORT' calls it by gRPC",
        )
    return {"connector": command or f"grpc:{address}", "config": config}


def settings(options: Options) -> Json:
    """Return the settings of a task. Errors: InvalidStatement."""
    rest = plain(options)
    shards = {"shards": rest.pop("shards")} if "shards" in rest else {}
    backfill = {
        name: rest.pop(OF_BACKFILL + name) for name in BACKFILL if OF_BACKFILL + name in rest
    }
    for name in rest:
        if name not in LIMITS:
            backfills = (f"BACKFILL {option.upper()}" for option in BACKFILL)
            names = ", ".join(["SHARDS", *map(str.upper, LIMITS), *backfills])
            raise InvalidStatement(f"setting {name.upper()} is not known", f"expected {names}")
    if backfill:
        refuse_backfill(backfill)
    parts = {"limits": rest, "backfill": backfill}
    return {**shards, **{name: part for name, part in parts.items() if part}}


def refuse_backfill(backfill: Json) -> None:
    """Errors: InvalidStatement if it does not say by what."""
    if "by" not in backfill:
        names = " and ".join(f"BACKFILL {name.upper()}" for name in backfill)
        raise InvalidStatement(
            f"{names}: expected together with BACKFILL BY",
            hint="add BACKFILL BY SPARK, or RESET WITH them too",
        )
    if backfill["by"] != SPARK:
        raise InvalidStatement(
            f"BACKFILL BY: expected SPARK, actual {backfill['by']}",
            hint="left out, the service writes the initial contents itself",
        )


def binding(bind: Bind, item: Item) -> Json:
    """Return a binding of an object. Errors: InvalidStatement."""
    rest = dict(bind.options)
    task_binding: Json = {"collection": str(item.id)}
    for name in ("key", "select"):
        if name in rest:
            task_binding[name] = spelled(names_of(rest.pop(name), name), item)
    if "verify" in rest:
        task_binding["verify"] = text_of(rest.pop("verify"), "verify").lower()
        if task_binding["verify"] not in VERIFY:
            raise InvalidStatement(
                f"option VERIFY of {bind.relation}: expected one of {', '.join(VERIFY)}"
            )
    if "dead_letters" in rest:
        task_binding["dead_letters"] = text_of(rest.pop("dead_letters"), "dead_letters")
    resource = configured(rest.pop("resource", "{}"), "resource")
    return {**task_binding, "resource": {**resource, **plain(rest)}}


def bound(binds: Sequence[Bind], catalog: Catalog) -> list[tuple[Item, Json]]:
    """Return the objects that are bound, with their bindings. Errors: InvalidStatement."""
    items = [readable(bind.relation, catalog) for bind in binds]
    return [(item, binding(bind, item)) for item, bind in zip(items, binds, strict=True)]


def needs_key(task_binding: Json) -> bool:
    """Whether a key is to be looked for."""
    return "key" not in task_binding


def refuse_keyless(
    bindings: Sequence[Json], names: Mapping[str, str], deltas: Sequence[bool | None]
) -> None:
    """Refuse a table of the present rows without a key. `names` are those of collections.

    Errors: InvalidStatement.
    """
    for task_binding, is_delta in zip(bindings, deltas, strict=True):
        if is_delta is False and "key" not in task_binding:
            name = names[str(task_binding["collection"])]
            raise InvalidStatement(
                f"{name} has no key",
                "nothing in its definition says which columns identify a row",
                f"declare them: {name} (..., KEY (column)); or keep every change as a row:"
                f" {name} (..., DELTA UPDATES)",
            )


def refuse_undivided(task: Json, bindings: Sequence[Json], names: Mapping[str, str]) -> None:
    """Refuse to divide a binding without a key by it. `names` are those of collections.

    Errors: InvalidStatement.
    """
    shards = task.get("shards", 1)
    if "backfill" in task:
        what, setting = "BACKFILL BY SPARK", "BACKFILL BY"
    elif isinstance(shards, int) and shards > 1:
        what, setting = f"SHARDS {shards}", "SHARDS"
    else:
        return
    for task_binding in bindings:
        if "key" not in task_binding:
            name = names[str(task_binding["collection"])]
            raise InvalidStatement(
                f"{what}: {name} has no key by which its rows could be divided",
                hint=f"declare one: {name} (..., KEY (column)); or leave {setting} out",
            )


def plain(options: Options) -> Json:
    """Options in JSON's types."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in options.items()}


def configured(value: Value, name: str) -> Json:
    """An object in JSON. Errors: InvalidStatement, which shows no value: it may be a secret."""
    try:
        document = json.loads(text_of(value, name))
    except ValueError as error:
        raise InvalidStatement(f"option {name.upper()}: expected JSON: {error}") from error
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise InvalidStatement(
            f"option {name.upper()}: expected a JSON object, actual a {kind}"
        )
    return document


def text_of(value: Value, name: str) -> str:
    """A text. Errors: InvalidStatement."""
    if not isinstance(value, str):
        raise InvalidStatement(f"option {name.upper()}: expected a text in quotes")
    return value


def names_of(value: Value, name: str) -> tuple[str, ...]:
    """Names. Errors: InvalidStatement."""
    if not isinstance(value, tuple):
        raise InvalidStatement(
            f"option {name.upper()}: expected names between parentheses",
            hint=f"as {name.upper()} (id)",
        )
    return value


def spelled(names: Sequence[str], item: Item) -> list[str]:
    """Columns as the object spells them. Errors: InvalidStatement."""
    columns = {column.name.casefold(): column.name for column in item.columns}
    for name in names:
        if name.casefold() not in columns:
            raise InvalidStatement(
                f"column {name} of {item.name} does not exist",
                f"its columns are {', '.join(columns.values())}",
            )
    return [columns[name.casefold()] for name in names]
