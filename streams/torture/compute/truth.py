"""What each view holds at each time, by DuckDB over all orders there ever were."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from streams.compute.subscribes import Subscribe
from streams.ids import MINIMUM_TIME, CollectionId
from streams.storage.client.shards import Shards
from streams.storage.read import reader
from streams.torture.compute.objects import COLUMNS, ORDERS, Maintained
from streams.trace.kernel.connection import connect
from streams.trace.kernel.kernel import arrow_schema

MEMORY = "1GB"
MOST_ROWS_SHOWN = 8
Rows = Counter[tuple[object, ...]]

Changes = dict[tuple[tuple[object, ...], int], int]
"""The diff of each row at each time."""


class Truth:
    """The orders as ingested, with their times. `objects` are all views there ever were."""

    def __init__(
        self, shards: Shards, objects: Mapping[str, Maintained], directory: Path
    ) -> None:
        self._shards, self._objects = shards, objects
        self._held: dict[str, pa.Table] = {}
        self._connection = connect(MEMORY, str(directory))
        self.orders = updates(shards, ORDERS, [column.name for column in COLUMNS])
        self._connection.register("every", self.orders)
        self._connection.execute("CREATE TABLE history AS FROM every")

    def rows(self, view: Maintained, time: int, where: str = "true") -> Rows:
        """The rows of a view at a time for which `where` is true."""
        text = f'{self._with(view)} SELECT * FROM "{view.name}" WHERE {where}'
        tuples = self._connection.execute(text, {"at": time}).fetchall()
        return Counter(tuples)

    def changes(
        self, view: Maintained, subscribe: Subscribe, reached: int, where: str
    ) -> Changes:
        """What a subscribe has to deliver before a time, by the shard of the view.

        That is compared with the orders at each time by `wrong`.
        """
        names = [column.name for column in view.flow.columns]
        self._connection.register("held", self._said(view))
        own = ", ".join(f'"{name}"' for name in names)
        first = subscribe.first
        begins = MINIMUM_TIME if subscribe.snapshot else first
        rows = self._connection.execute(
            f"SELECT {own}, greatest(_time, {first}) AS _at, sum(_diff)::BIGINT FROM held"
            f" WHERE _time >= {begins} AND _time < {reached} AND {where}"
            " GROUP BY ALL HAVING sum(_diff) <> 0"
        ).fetchall()
        self._connection.unregister("held")
        return {(tuple(row), at): diff for *row, at, diff in rows}

    def _said(self, view: Maintained) -> pa.Table:
        """All updates of a view's shard, read once: nothing is written any more."""
        if view.name not in self._held:
            names = [column.name for column in view.flow.columns]
            self._held[view.name] = updates(self._shards, view.name, names)
        return self._held[view.name]

    def wrong(self, view: Maintained) -> Iterator[str]:
        """The times at which the shard of a view differs: every time of a change is looked at.

        Yields "checked" for each time that was.
        """
        names = [column.name for column in view.flow.columns]
        held = self._said(view)
        upper = self._shards.state(CollectionId(view.name)).upper.time
        times = {view.flow.as_of, upper - 1}
        for table in (held, self.orders):
            times.update(table["_time"].to_pylist())
        own = ", ".join(f'"{name}"' for name in names)
        self._connection.register("held", held)
        self._connection.execute(
            f"PREPARE differing AS {self._with(view)} SELECT {own}, sum(_count)::BIGINT FROM ("
            f" SELECT {own}, sum(_diff)::BIGINT AS _count FROM held"
            "  WHERE _time <= $at::BIGINT GROUP BY ALL UNION ALL"
            f' SELECT *, -count(*)::BIGINT FROM "{view.name}" GROUP BY ALL'
            ") GROUP BY ALL HAVING sum(_count) <> 0"
        )
        for time in sorted(time for time in times if view.flow.as_of <= time < upper):
            rows = self._connection.execute(f"EXECUTE differing(at := {time})").fetchall()
            if rows:
                yield f"{view.name} at {time} differs by {rows[:MOST_ROWS_SHOWN]}"
                break
            yield "checked"
        self._connection.execute("DEALLOCATE differing")
        self._connection.unregister("held")

    def _with(self, view: Maintained) -> str:
        """WITH for a view and all that it reads, at the parameter `at`."""
        names = ", ".join(f'"{column.name}"' for column in COLUMNS)
        base = f'"{ORDERS}" AS (SELECT {names} FROM history WHERE _time <= $at::BIGINT)'
        lineage = [view]
        while (read := lineage[-1].reads[0]) != ORDERS:
            lineage.append(self._objects[read])
        views = (f'"{relation.name}" AS ({relation.query})' for relation in reversed(lineage))
        return f"WITH {', '.join([base, *views])}"


def updates(shards: Shards, name: str, columns: list[str]) -> pa.Table:
    """All that a collection ever said. Shape: its columns, then `_time` and `_diff`.

    Errors: AssertionError if it was in error.
    """
    state = shards.state(CollectionId(name))
    wanted = reader.pieces(state, MINIMUM_TIME, state.upper.time)
    loaded, errors = reader.load(shards.chunks, shards.data_topic(state.id), wanted)
    assert not errors.num_rows, f"{name} is in error: {errors.slice(0, 3).to_pylist()}"
    if loaded.num_columns == len(("time", "diff")):  # nothing was said
        loaded = arrow_schema(["BIGINT"] * len(columns)).empty_table()
    return loaded.rename_columns([*columns, "_time", "_diff"])


def answered(stream: bytes) -> Rows:
    """The rows of an answer."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as opened:
        table = opened.read_all()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def different(expected: Rows, actual: Rows) -> str:
    """The differences as text, empty if there are none."""
    if expected == actual:
        return ""
    missing, surplus = expected - actual, actual - expected
    few = [list(rows.items())[:MOST_ROWS_SHOWN] for rows in (missing, surplus)]
    return f"missing {few[0]}, too much {few[1]}"
