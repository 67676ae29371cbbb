"""The plans of views: each is made once, several side by side, in workers.

A plan is the same every time, and takes tens of milliseconds, or up to a minute for a text that
ends its worker. So plans are made where nobody waits behind them, and `of` answers at once.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from streams.adapter.catalog import Catalog, Item
from streams.adapter.workers.pool import MOST
from streams.ids import CollectionId

Planner = Callable[[Item, Catalog], str]
"""Has a view planned, the same every time; the plan in JSON. Called by several threads."""


class Plans:
    """The plans that are known, in JSON, and why others could not be made the last time."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._made: dict[CollectionId, str | Exception] = {}

    def prepare(self, items: Sequence[Item], catalog: Catalog) -> None:
        """Make the plans of the views among these that have none; `of` says what failed."""
        wanted = [each for each in items if each.kind == "view" and each.id not in self._made]
        if not wanted:
            return
        with ThreadPoolExecutor(min(MOST, len(wanted)), "plans") as pool:
            made = pool.map(lambda item: self._tried(item, catalog), wanted)
            self._made.update(zip((each.id for each in wanted), made, strict=True))

    def _tried(self, item: Item, catalog: Catalog) -> str | Exception:
        try:
            return self._planner(item, catalog)
        except Exception as error:  # noqa: BLE001  it is raised by `of`
            return error

    def of(self, item: Item, catalog: Catalog) -> str:
        """The plan of a view; empty for others. Errors: as the planner.

        One that could not be made is made anew the next time.
        """
        self.prepare([item], catalog)
        made = self._made.get(item.id, "")
        if isinstance(made, Exception):
            del self._made[item.id]
            raise made
        return made

    def keep(self, id_: CollectionId, plan: str) -> None:
        """Use this plan of a view, which was just made, instead of another one."""
        self._made[id_] = plan

    def forget(self, id_: CollectionId) -> None:
        """The view is gone."""
        self._made.pop(id_, None)
