"""Validates the task of a CREATE MATERIALIZATION against its connector's specification.

The endpoint is not reached: one that is down can be materialized into, once it is up.
"""

import difflib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from streams.errors import InvalidStatement

if TYPE_CHECKING:  # connectors are loaded by the first statement that needs one
    from connectors.json_schema import Json
    from connectors.runtime.task import Materialization
    from schemas.materialize_pb2 import SpecResponse

SPEC_S = 10.0
"""The maximum time for a foreign connector to return its configuration schemas."""


def check(task: Mapping[str, object]) -> Sequence[bool | None]:
    """Return of each binding whether it takes every change as a row; None: not known yet.

    Errors: InvalidStatement.
    """
    from connectors.runtime.task import parse  # noqa: PLC0415
    from streams.app.connector.lookup import OURS  # noqa: PLC0415

    name = str(task["connector"])
    refuse_unknown(name, OURS)
    parsed = parse("materialization", task)
    spec = spec_of(name)
    endpoint: Json = json.loads(spec.endpoint_spec_schema_json)
    resource: Json = json.loads(spec.resource_spec_schema_json)
    problems = list(refused(parsed, endpoint, resource, is_ours=name in OURS))
    if not spec.extensions.subranges:
        problems += undivided(parsed)
    if problems:
        raise InvalidStatement(
            problems[0],
            "; ".join(problems[1:]),
            f"'slackwater connector spec {name}' lists the options",
        )
    return deltas(parsed, resource)


def refuse_unknown(name: str, ours: Sequence[str]) -> None:
    """Errors: InvalidStatement if it is neither one of ours, nor a command or an address."""
    if name in ours or "/" in name or name.startswith("grpc:"):
        return
    close = difflib.get_close_matches(name, ours, n=1)
    names = ", ".join(name.upper() for name in ours)
    raise InvalidStatement(
        f"connector {name.upper()} is not known",
        f"expected {names}, or CONNECTOR (COMMAND './program' | ADDRESS 'HOST:PORT')",
        f"did you mean {close[0].upper()}?" if close else "",
    )


def spec_of(name: str) -> "SpecResponse":
    """A connector's configuration schemas. Errors: InvalidStatement."""
    from schemas.materialize_pb2 import SpecRequest  # noqa: PLC0415
    from streams.app.connector.lookup import driver_of  # noqa: PLC0415

    answers: list[SpecResponse] = []
    failures: list[Exception] = [TimeoutError(f"it has not answered Spec in {SPEC_S:.0f} s")]

    def ask() -> None:
        try:
            with driver_of(name) as driver:
                answers.append(driver.spec(SpecRequest()))
        except Exception as error:  # noqa: BLE001  any error is reported to the user
            failures.append(error)

    asking = threading.Thread(target=ask, name="spec", daemon=True)
    asking.start()
    asking.join(SPEC_S)
    if answers:
        return answers[0]
    problem = f"connector {name} does not answer which options it takes"
    raise InvalidStatement(problem, str(failures[-1])) from failures[-1]


def refused(
    task: "Materialization",
    endpoint: "Json",
    resource: "Json",
    *,
    is_ours: bool,
) -> Iterator[str]:
    """The violations of a task against its connector's schemas."""
    from connectors.json_schema import exposed, marked, refusals  # noqa: PLC0415

    yield from refusals(endpoint, task.config, "INTO", is_closed=is_ours)
    for place in exposed(endpoint, task.config, "INTO"):
        yield (
            f"{place}: expected 'env:NAME' or 'file:PATH', actual the secret itself, which must"
            " not be in a statement"
        )
    place_of = marked(resource, "x-collection-name")
    places: set[str] = set()
    for binding in task.bindings:
        yield from refusals(resource, binding.resource, "BIND", is_closed=is_ours)
        place = str(binding.resource.get(place_of[0], "")) if place_of else ""
        if place and place in places:
            yield f"BIND: two bindings are kept in {place}"
        places.add(place)


def undivided(task: "Materialization") -> Iterator[str]:
    """The violations of a task by a connector without the extension subranges."""
    ways = {"SHARDS": task.shards > 1, "BACKFILL BY SPARK": task.backfill is not None}
    for way in (way for way, is_wanted in ways.items() if is_wanted):
        yield (
            f"{way}: connector {task.connector} does not offer the extension subranges, without"
            " which what was divided by key cannot be put together again: leave it out"
        )


def deltas(task: "Materialization", resource: "Json") -> Sequence[bool | None]:
    """For each binding, whether it takes every change as a row."""
    from connectors.json_schema import marked  # noqa: PLC0415

    property_ = marked(resource, "x-delta-updates")
    if property_ is None:
        return [None for _ in task.bindings]
    name, default = property_
    return [bool(binding.resource.get(name, default)) for binding in task.bindings]
