"""A materialization in a file: YAML, or JSON, which is YAML too. It holds no secrets.

`env:NAME` or `file:PATH` in the configuration stands for what is found there. Connectors of
ours look it up when they connect, so that no secret reaches the endpoint's own tables; for
others it is done here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from connectors.config import resolved
from connectors.driver import Driver
from connectors.json_schema import exposed
from connectors.runtime.task import Materialization, parse
from schemas.materialize_pb2 import SpecRequest
from streams.errors import InvalidUsage

_UNREADABLE = (OSError, ValueError, AttributeError, RecursionError, yaml.YAMLError)
"""What PyYAML raises: for dates that are none and numbers that are too long, ValueError."""


def read(path: Path, backfill: Mapping[str, object] = MappingProxyType({})) -> Materialization:
    """Read a task; of its backfill, what `backfill` says goes before what the file says.

    Errors: InvalidUsage, which says where the file is wrong.
    """
    try:
        value = yaml.safe_load(path.read_text())
    except _UNREADABLE as error:
        raise InvalidUsage(f"{path}: expected YAML: {error}") from error
    if isinstance(value, dict) and backfill:
        stated = {name: part for name, part in backfill.items() if part is not None}
        in_file = value.get("backfill")
        value["backfill"] = {**(in_file if isinstance(in_file, dict) else {}), **stated}
    return parse(str(path), value)


def with_secrets(
    task: Materialization, driver: Driver, environment: Mapping[str, str], *, is_ours: bool
) -> Materialization:
    """The task as the connector is given it.

    Errors: InvalidUsage if the file holds a secret itself, or a reference leads nowhere.
    """
    schema = json.loads(driver.spec(SpecRequest()).endpoint_spec_schema_json)
    places = list(exposed(schema, task.config, "config"))
    if places:
        raise InvalidUsage(
            f"{', '.join(places)}: expected env:NAME or file:PATH, actual the secret itself,"
            " which must not be in a file of a task"
        )
    if is_ours:
        return task
    return task.model_copy(update={"config": resolved(environment, task.config)})
