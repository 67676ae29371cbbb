"""A cache of views' plans, which are made once, concurrently, in workers.

Planning is deterministic, and takes tens of milliseconds, or up to a minute for a text that
kills its worker. So plans are made without the lock, and `of` returns at once. The plan of a
view with EMIT ON CLOSE depends on its first time, so there is none before its birth.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from streams.adapter.catalog import Catalog, Item
from streams.adapter.workers.pool import MOST
from streams.ids import CollectionId
from streams.plan.sql.emit import emits

Planner = Callable[[Item, Catalog], str]
"""Plans a view deterministically; returns JSON. Called by several threads."""


class Plans:
    """The known plans, in JSON, and the failures of others."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._made: dict[CollectionId, str | Exception] = {}

    def prepare(self, items: Sequence[Item], catalog: Catalog) -> None:
        """Make the missing plans of these views; `of` raises the failures."""
        wanted = [item for item in items if _has_plan(item) and item.id not in self._made]
        if not wanted:
            return
        with ThreadPoolExecutor(min(MOST, len(wanted)), "plans") as pool:
            plans = pool.map(lambda item: self._tried(item, catalog), wanted)
            self._made.update(zip((item.id for item in wanted), plans, strict=True))

    def _tried(self, item: Item, catalog: Catalog) -> str | Exception:
        try:
            return self._planner(item, catalog)
        except Exception as error:  # noqa: BLE001  it is raised by `of`
            return error

    def of(self, item: Item, catalog: Catalog) -> str:
        """Return the plan of a view; empty for other objects. Errors: as the planner.

        A failed plan is retried the next time.
        """
        self.prepare([item], catalog)
        plan = self._made.get(item.id, "")
        if isinstance(plan, Exception):
            del self._made[item.id]
            raise plan
        return plan

    def keep(self, id_: CollectionId, plan: str) -> None:
        """Store a plan that was just made in place of an earlier one."""
        self._made[id_] = plan

    def forget(self, id_: CollectionId) -> None:
        """Forget a dropped view."""
        self._made.pop(id_, None)


def _has_plan(item: Item) -> bool:
    return item.kind == "view" and (item.as_of is not None or not emits(item.query))
