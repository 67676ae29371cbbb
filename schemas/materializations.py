"""Where SQL and the runtime of materializations meet: two small tables, and what they hold.

The coordinator writes `SPECS`: which materializations there are and what is wanted of each. The
service that runs them writes `STATES`: how each is. Neither knows the other; both keep to the
forms here. A record of a later version may have more members than are read here, and one of an
earlier version fewer. All else that is wrong with a record is an error of that one
materialization, until the record is replaced.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeVar, cast

from schemas.members import Members, is_text
from schemas.members import shown as shown_value
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

STATES_SAID: Sequence[str] = (
    "starting", "waiting", "backfilling", "running", "paused", "stalled", "failed", DROPPED,
)  # fmt: skip
"""What the service says that a materialization is."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")

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
        """The reverse of `row`. Errors: Corrupt, which names the member that is wrong."""
        id_, wanted, text = _texts(SPECS, row, len(SPEC_COLUMNS))
        subject = f"{SPECS}: {id_}"
        if wanted not in WANTED:
            raise Corrupt(
                f"{subject}: wanted: expected one of {', '.join(WANTED)}, actual"
                f" {shown_value(wanted)}"
            )
        members = Members.of(subject, text)
        unbound = tuple(map(CollectionId, members.list_of_texts("unbound")))
        return Spec(
            id=id_,
            wanted=cast("Wanted", wanted),
            task=members.mapping("task"),
            unbound=unbound,
        )


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
        """The reverse of `row`. Errors: Corrupt, which names the member that is wrong."""
        id_, text = _texts(STATES, row, len(STATE_COLUMNS))
        members = Members.of(f"{STATES}: {id_}", text)
        if members.text("id") != id_:
            raise Corrupt(f"{members.subject}: id: expected {id_}, actual {members.text('id')}")
        if members.text("state") not in STATES_SAID:
            raise Corrupt(
                f"{members.subject}: state: expected one of {', '.join(STATES_SAID)}, actual"
                f" {shown_value(members.text('state'))}"
            )
        read = {name: read(members, name) for name, read in _READ.items() if name in members}
        return State(id=id_, **read)  # type: ignore[arg-type]  # each is read as its type


def _backfill(members: Members, name: str) -> Mapping[str, int | str] | None:
    backfill = members.maybe_members(name)
    if backfill is None:
        return None
    counts = {member: backfill.count(member) for member in ("done", "total")}
    return {**counts, "unit": backfill.text("unit")}


_READ: Mapping[str, Callable[[Members, str], object]] = {
    "state": Members.text,
    "message": Members.text,
    "time": Members.maybe_count,
    "behind_ms": Members.maybe_count,
    "behind_rows": Members.count,
    "rows": Members.count,
    "rows_per_s": Members.count,
    "commits": Members.count,
    "errors": Members.count,
    "committed_ms": Members.maybe_count,
    "owner": Members.text,
    "backfill": _backfill,
    "stalls": Members.texts,
    "dead_letters": Members.counts,
    "left_out": Members.counts,
}
"""How each member of a state is read, if it is there."""


Record = TypeVar("Record", Spec, State)


def read_all(
    rows: Iterable[Sequence[object]], of: Callable[[Sequence[object]], Record]
) -> tuple[Mapping[str, Record], Mapping[str, str]]:
    """The records of a table by the materialization's id, and what is wrong with the others.

    Of one materialization there is one record: several say nothing. What is wrong with a record
    that does not say whose it is, is under "".
    """
    records, unreadable = dict[str, Record](), dict[str, str]()
    for row in rows:
        try:
            record = of(row)
        except Corrupt as error:
            unreadable[_id_of(row)] = str(error)
            continue
        if record.id in records:
            unreadable[record.id] = f"{record.id}: expected one record, actual several"
        records[record.id] = record
    whole = {id_: record for id_, record in records.items() if id_ not in unreadable}
    return dict(sorted(whole.items())), unreadable


def _texts(table: CollectionId, row: Sequence[object], count: int) -> Sequence[str]:
    """The columns of a row, of which the first is an id. Errors: Corrupt."""
    if len(row) != count or not all(map(is_text, row)):
        raise Corrupt(f"{table}: expected {count} texts, actual {shown_value(tuple(row))}")
    texts = tuple(map(str, row))
    if not _ID.fullmatch(texts[0]):
        raise Corrupt(f"{table}: expected an id, actual {shown_value(texts[0])}")
    return texts


def _id_of(row: Sequence[object]) -> str:
    """The id of a row, if it has one."""
    id_ = row[0] if row else None
    return id_ if isinstance(id_, str) and _ID.fullmatch(id_) else ""
