"""Where SQL and the runtime of materializations meet: two small tables, and what they hold.

The coordinator writes `SPECS`: which materializations there are and what is wanted of each. The
service that runs them writes `STATES`: how each is. Neither knows the other; both keep to the
forms here. A record of a later version may have more members than are read here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Literal, cast

from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp

SPECS = CollectionId("materializations.specs")
SPEC_COLUMNS = (("id", "VARCHAR"), ("wanted", "VARCHAR"), ("spec", "VARCHAR"))
STATES = CollectionId("materializations.states")
STATE_COLUMNS = (("id", "VARCHAR"), ("state", "VARCHAR"))
KIND = "materialization"
"""The kind of both collections."""

Wanted = Literal["run", "pause", "drop"]
WANTED: Sequence[Wanted] = ("run", "pause", "drop")

DROPPED = "dropped"
"""The state of one that holds nothing more: its specification is not needed any longer."""

HEARTBEAT_S = 5.0
"""The service writes its table so often at least: an older one means that no service runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What is wanted of a materialization.

    `task` is what `slackwater materialize run` reads of a file, with ids of collections and all
    keys. `unbound` are collections that it was bound to before: it is to hold them no more.
    """

    id: str
    wanted: Wanted
    task: Mapping[str, object]
    unbound: tuple[CollectionId, ...] = ()

    def row(self) -> tuple[str, str, str]:
        """As a row of `SPECS`."""
        spec = {"task": self.task, "unbound": self.unbound}
        return self.id, self.wanted, json.dumps(spec, ensure_ascii=False, sort_keys=True)

    @staticmethod
    def of(row: Sequence[object]) -> "Spec":
        """The reverse of `row`. Errors: Corrupt."""
        try:
            id_, wanted, text = map(str, row)
            spec = json.loads(text)
            task, unbound = dict(spec["task"]), tuple(map(CollectionId, spec["unbound"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{SPECS}: expected a specification: {error!r}") from error
        if wanted not in WANTED:
            raise Corrupt(f"{SPECS}: expected one of {', '.join(WANTED)}, actual {wanted}")
        return Spec(id=id_, wanted=cast("Wanted", wanted), task=task, unbound=unbound)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a materialization is.

    `time` is what the endpoint holds. `behind_ms` and `behind_rows` are how far it is behind
    what the collections have in common: in time, and in changes that were read for it and not
    yet committed. Rates are of the last seconds. `errors` are sessions that ended with one.
    `stalls` says which bindings stand still, and why; `owner` is the process that writes the
    endpoint. `backfill` is how much of the first contents is written, while they are: `done`
    and `total`, in units of `unit` (rows, or key ranges of a Spark job). `dead_letters` are
    those that were written since the service began, `left_out` the keys whose last document the
    endpoint does not have; both by the binding's place.
    """

    id: str
    state: str = "starting"
    message: str = ""
    time: Timestamp | None = None
    behind_ms: int | None = None
    behind_rows: int = 0
    rows: int = 0
    rows_per_s: int = 0
    commits: int = 0
    errors: int = 0
    committed_ms: int | None = None
    owner: str = ""
    backfill: Mapping[str, int | str] | None = None
    stalls: Mapping[str, str] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def row(self) -> tuple[str, str]:
        """As a row of `STATES`."""
        return self.id, json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @staticmethod
    def of(row: Sequence[object]) -> "State":
        """The reverse of `row`. Errors: Corrupt."""
        names = {field.name for field in fields(State)}
        try:
            id_, text = map(str, row)
            members = {name: value for name, value in json.loads(text).items() if name in names}
            return replace(State(id=id_), **members)
        except (ValueError, AttributeError, TypeError) as error:
            raise Corrupt(f"{STATES}: expected a state: {error!r}") from error
