"""An environment whose statements about materializations are checked, and a service's place."""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.materializations import (
    KIND,
    SPEC_COLUMNS,
    SPECS,
    STATE_COLUMNS,
    STATES,
    Spec,
    State,
)
from streams.errors import InvalidStatement
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.small_table import SmallTable
from tests.support.coordinators import NOW, TOTALS, Environment, with_orders

SHOP = (
    "CREATE MATERIALIZATION shop INTO SQLITE (PATH 'shop.db')"
    " BIND totals (TABLE 'totals'), Orders (TABLE 'log', DELTA UPDATES, SELECT (ID))"
)
KEYED = SHOP.replace("SELECT (ID)", "SELECT (ID), KEY (id)")


def check(task: Mapping[str, object]) -> Sequence[bool | None]:
    if task["connector"] != "sqlite":
        raise InvalidStatement(f"connector {task['connector']} is not known")
    bindings: Any = task["bindings"]
    return [binding["resource"].get("delta_updates", False) for binding in bindings]


class Runtime:
    """What a service reads and says."""

    def __init__(self, env: Environment) -> None:
        broker = env.broker
        self.shards = Shards(
            broker.logs, broker.chunks, broker.topics, now_ms=lambda: NOW, pump=True
        )
        self.specs = SmallTable(self.shards, SPECS, Description(SPEC_COLUMNS, kind=KIND))
        self.states = SmallTable(self.shards, STATES, Description(STATE_COLUMNS, kind=KIND))

    def wanted(self) -> dict[str, Spec]:
        assert self.specs.find()
        self.shards.sync(SPECS)
        return {spec.id: spec for spec in map(Spec.of, self.specs.rows())}

    def say(self, *states: State) -> None:
        if not self.states.is_owned:
            self.states.own()
        self.states.write([state.row() for state in states])


def with_materializations() -> Environment:
    environment = Environment(check=check)
    with_orders(environment)
    environment.rows(TOTALS)
    return environment
