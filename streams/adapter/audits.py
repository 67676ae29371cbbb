"""Audits: what a view holds is compared with what its query says of its inputs, at one time.

The query is computed once and from nothing, from the inputs' snapshots at that time; the view's
contents come from its own shard. So a view that lost a change, counted one twice, or went on
with state that was not its own is found, at whatever time of its history. Both are read as a
SELECT reads: held against compaction, in a process of bounded memory.

Random times are denser towards the present: the distance to upper is as likely to be a few
milliseconds as a few minutes.

A verdict is written to a topic and counted (`streams.adapter.audit_verdicts`); an audit that
says "wrong" is an error in the log. What cannot be read, or is too large to be computed, is
refused and counted, and is not wrong.
"""

import json
import logging
from collections.abc import Generator, Iterator
from random import Random

from streams.adapter import ddl
from streams.adapter.audit_verdicts import COLUMNS, AuditVerdict, Verdicts
from streams.adapter.catalog import NAMES, Catalog, Item
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.read_times import When
from streams.adapter.reads import Reads
from streams.adapter.results import Columns, Complete, Result, Rows
from streams.adapter.sessions import Session
from streams.adapter.timestamp_selection import Unreadable, choose, freshest
from streams.compute.as_of import ReadableInterval
from streams.errors import InvalidStatement, InvalidUsage, SlackwaterError
from streams.ids import Timestamp
from streams.plan.sql.audit import Audit
from streams.plan.sql.emit import emits
from streams.storage.client.shards import Shards

log = logging.getLogger(__name__)


class Audits:
    """Audits views, on request and at random. Thread-safe."""

    def __init__(
        self,
        reads: Reads,
        catalog: CatalogLog,
        shards: Shards,
        verdicts: Verdicts,
        random: Random | None = None,
    ) -> None:
        self._reads, self._catalog, self._shards = reads, catalog, shards
        self.verdicts = verdicts
        self._random = random or Random()  # noqa: S311  no secret

    def execute(self, statement: Audit, session: Session) -> Iterator[Result]:
        """Yield one verdict for each time. Errors: InvalidStatement; TimeoutError."""
        item = audited(statement.name, self._catalog.state)
        yield Columns(COLUMNS)
        for _ in range(statement.times or 1):
            as_of = statement.as_of if statement.times is None else self._random_time(item)
            verdict = yield from self._at(item, When(as_of, session))
            yield Rows((json.dumps(verdict.row, ensure_ascii=False),))
        yield Complete(f"AUDIT {statement.times or 1}")

    def audit_any(self) -> None:
        """Audit one view, chosen at random, at a random time. Nothing if there is none.

        What cannot be audited now is counted as refused.
        """
        views = [item for item in self._catalog.state.ordered() if is_auditable(item)]
        if not views:
            return
        item = self._random.choice(views)
        try:
            time = self._random_time(item)
            if time is None:
                raise InvalidStatement(f"{item.name} has no time in common with its inputs yet")
            for _ in self._at(item, When(time, Session())):
                pass
        except (SlackwaterError, TimeoutError) as error:
            self.verdicts.refused()
            log.info("no audit", extra={"view": item.name, "cause": str(error)})

    def _random_time(self, item: Item) -> Timestamp | None:
        """Return a time at which the view and its inputs can be read; None if there is none."""
        try:
            states = [self._shards.state(id_) for id_ in (item.id, *item.inputs)]
        except InvalidUsage:
            return None  # one of them is still to be created
        bounds = tuple(ReadableInterval(item.name, s.since, s.upper) for s in states)
        latest = freshest(bounds)
        chosen = choose(bounds, latest)
        if isinstance(chosen, Unreadable) or chosen.waits_for:
            return None
        since = max(interval.since.time for interval in bounds)
        return random_time(since, latest, self._random)

    def _at(self, item: Item, when: When) -> Generator[Result, None, AuditVerdict]:
        """Compare at one time, and yield while it waits. Errors: as `execute`."""
        catalog = self._catalog.state
        items = [other for other in catalog.ordered() if other.has_shard]
        functions = tuple(catalog.functions.values())
        time, compared = yield from self._reads.compare(item, when, items, functions)
        verdict = AuditVerdict(
            view=item.name,
            id=item.id,
            time=time,
            rows=compared.rows,
            missing=compared.missing,
            excess=compared.excess,
        )
        self.verdicts.note(verdict)
        return verdict


def audited(name: str, catalog: Catalog) -> Item:
    """Return the view of this name. Errors: InvalidStatement if it cannot be audited."""
    item = ddl.readable(name, catalog)
    if item.kind != "view":
        raise InvalidStatement(
            f"{NAMES[item.kind]} {item.name} cannot be audited",
            "expected a materialized view: only it has a query to compute",
        )
    if emits(item.query):
        raise InvalidStatement(
            f"{item.name} cannot be audited",
            "it has EMIT ON CLOSE: its rows depend on when windows closed, and not only on the"
            " contents of its inputs at one time",
        )
    return item


def is_auditable(item: Item) -> bool:
    """Whether `audited` has it."""
    return item.kind == "view" and item.as_of is not None and not emits(item.query)


def random_time(since: int, latest: int, random: Random) -> Timestamp:
    """Return a time of [since, latest], evenly on a logarithmic scale from its end."""
    distance = int((latest - since + 1) ** random.random())
    return Timestamp(max(since, latest + 1 - distance))
