"""ALTER MATERIALIZATION: SET and RESET of options of an existing one. Pure.

The options that it has are taken together with those of the statement, and judged as those of a
CREATE are (`streams.adapter.materialization_tasks`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from streams.adapter.catalog import Item
from streams.adapter.materialization_tasks import (
    FOREIGN,
    OF_BACKFILL,
    OF_BINDING,
    Json,
    binding,
    endpoint,
    settings,
)
from streams.errors import InvalidStatement
from streams.plan.sql.materializations import (
    AmendEndpoint,
    Amendment,
    AmendSettings,
    Bind,
    Options,
)

BACKFILL = "backfill"
"""The number in a resource that, raised, has the present rows written again."""

DELTA = "delta_updates"
"""The option of a resource that keeps every change as a row."""

OF_SETTINGS = frozenset({"shards", "limits", "backfill"})
"""Members of a task that settings make."""

REACHED_BY = frozenset({"command", "address"})
"""Options of a foreign connector that exclude each other."""


def amended_task(task: Json, change: AmendEndpoint | AmendSettings) -> Json:
    """Return the task with other options of its own. Errors: InvalidStatement."""
    if isinstance(change, AmendEndpoint):
        return amended_endpoint(task, change.amendment)
    return amended_settings(task, change.amendment)


def amended_endpoint(task: Json, amendment: Amendment) -> Json:
    """Return the task with other options of its endpoint. Errors: InvalidStatement."""
    connector, config = str(task["connector"]), members(task["config"])
    if connector.isidentifier():
        return {**task, **endpoint(connector, amended(config, amendment))}
    if REACHED_BY & amendment.values.keys():
        reached = {}
    elif connector.startswith("grpc:"):
        reached = {"address": connector.removeprefix("grpc:")}
    else:
        reached = {"command": connector}
    return {
        **task,
        **endpoint(FOREIGN, amended({**reached, "config": json.dumps(config)}, amendment)),
    }


def amended_settings(task: Json, amendment: Amendment) -> Json:
    """Return the task with other settings of how it is written. Errors: InvalidStatement."""
    rest = {name: value for name, value in task.items() if name not in OF_SETTINGS}
    shards = {"shards": task["shards"]} if "shards" in task else {}
    backfill = members(task.get("backfill", {}))
    before = {
        **shards,
        **members(task.get("limits", {})),
        **{OF_BACKFILL + name: value for name, value in backfill.items()},
    }
    return {**rest, **settings(amended(before, amendment))}


def amended_binding(before: Json, item: Item, amendment: Amendment) -> Json:
    """Return a binding of an object with other options. Errors: InvalidStatement."""
    own = {name: value for name, value in before.items() if name in OF_BINDING}
    resource = members(before["resource"])
    refuse_unset(amendment.reset, [*own, *resource])
    changed = binding(Bind(item.name, amendment.values), item)
    resource_options = {} if "resource" in amendment.values else resource
    others = [name for name in amendment.reset if name not in OF_BINDING]
    after = {
        **left({**before, **changed}, [name for name in amendment.reset if name in OF_BINDING]),
        "resource": left({**resource_options, **members(changed["resource"])}, others),
    }
    refuse_lower(before, after, item.name)
    return after


def keeps_old_rows(before: Json, after: Json) -> bool:
    """Whether existing rows keep their columns although the statement selects others."""
    is_same_place = before["resource"] == after["resource"]
    return is_same_place and before.get("select") != after.get("select")


def refuse_lower(before: Json, after: Json, name: str) -> None:
    """Errors: InvalidStatement if the number of a backfill is lower than the last one."""
    last, number = (
        members(task_binding["resource"]).get(BACKFILL, 0) for task_binding in (before, after)
    )
    if isinstance(last, int) and isinstance(number, int) and number < last:
        raise InvalidStatement(
            f"option {BACKFILL.upper()} of {name}: expected at least {last}, actual {number}",
            "each new number rewrites the table once",
            f"{BACKFILL.upper()} = {last + 1} rewrites it",
        )


def refuse_reshaped(before: Json, after: Json, name: str) -> None:
    """Refuse another key, or every change for the present rows, in a table that is there.

    Errors: InvalidStatement.
    """
    old, new = (members(task["resource"]) for task in (before, after))
    if left(old, (BACKFILL, DELTA)) != left(new, (BACKFILL, DELTA)):
        return  # another place
    numbers = [resource.get(BACKFILL, 0) for resource in (old, new)]
    deltas = [bool(resource.get(DELTA, False)) for resource in (old, new)]
    if deltas[0] != deltas[1]:
        what = "DELTA UPDATES"
    elif before.get("key") != after.get("key") and not all(deltas):
        what = f"KEY ({', '.join(map(str, cast('Sequence[str]', after.get('key', ()))))})"
    else:
        return
    if numbers[0] == numbers[1]:
        raise InvalidStatement(
            f"{what} of {name} does not match the existing table",
            "the existing rows of a table are kept, so its key and DELTA UPDATES cannot change",
            f"add BACKFILL = {int(str(numbers[0])) + 1} to the statement to re-create"
            " and rewrite the table, or name another table",
        )


def amended(options: Json, amendment: Amendment) -> Options:
    """Options after a change. Errors: InvalidStatement if one that is reset is not set."""
    refuse_unset(amendment.reset, options)
    remaining = cast("Options", left(options, amendment.reset))
    return {**remaining, **amendment.values}


def refuse_unset(names: Sequence[str], present: Iterable[str]) -> None:
    """Errors: InvalidStatement if a name is not among those that are set."""
    present_names = sorted(present)
    for name in names:
        if name not in present_names:
            raise InvalidStatement(
                f"option {name.upper()} is not set, so it cannot be reset",
                f"set are {', '.join(present_names).upper()}"
                if present_names
                else "none is set",
            )


def left(options: Json, names: Sequence[str]) -> Json:
    """Options without those of some names."""
    return {name: value for name, value in options.items() if name not in names}


def members(value: object) -> Json:
    """An object of a task, which is JSON."""
    return dict(cast("Mapping[str, object]", value))
