"""Is the state of EMIT ON CLOSE views bounded? What they keep after n windows, and after ten n.

The compiled stages are stepped in process, over real run files, as in `streams.bench.change`:
a second of event time a step, so that each step closes a window. The state is looked at after
each of the last steps and the most counts, for merges come when they come. Beside them stands
the view without EMIT ON CLOSE, which keeps every window for late rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.bench.figures import Figure, Outcome, at_most
from streams.ids import MINIMUM_TIME, CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.temporary import temporary_directory

EVENTS = 1_000
"""In each second of event time."""

GROWTH, LAST = 10, 16
COLUMNS = (Column("id", "BIGINT"), Column("page", "BIGINT"), Column("ts", "TIMESTAMP"))
PAGES = 97

_TUMBLING = """SELECT time_bucket(INTERVAL 1 SECOND, ts) AS start, page, count(*) AS clicks
    FROM clicks GROUP BY ALL"""

VIEWS: Mapping[str, str] = {
    "tumbling": f"{_TUMBLING} EMIT ON CLOSE (start + INTERVAL 1 SECOND)",
    "hopping": """SELECT start, page, count(*) AS clicks FROM (
            SELECT page, time_bucket(INTERVAL 1 SECOND, ts)
                - INTERVAL 1 SECOND * unnest(generate_series(0, 4)) AS start FROM clicks)
        GROUP BY ALL EMIT ON CLOSE (start + INTERVAL 5 SECOND)""",
    "sessions": """SELECT page, min(ts) AS first, max(ts) AS last, count(*) AS clicks
        FROM (SELECT *, count(*) FILTER (WHERE begins)
                    OVER (PARTITION BY page ORDER BY ts, id) AS session
              FROM (SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY page ORDER BY ts, id)
                        >= INTERVAL 1 SECOND, true) AS begins
                    FROM clicks WHERE mz_now() < ts + INTERVAL 10 SECOND))
        GROUP BY page, session EMIT ON CLOSE (last + INTERVAL 1 SECOND)""",
    "nearby": """SELECT c.id, n.id AS near, c.ts FROM clicks c JOIN clicks n ON n.page = c.page
            AND n.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts
        EMIT ON CLOSE (ts + INTERVAL 1 SECOND)""",
    "moving": """SELECT id, ts, count(*) OVER (PARTITION BY page ORDER BY ts
            RANGE BETWEEN INTERVAL 1 SECOND PRECEDING AND CURRENT ROW) AS clicks FROM clicks
        EMIT ON CLOSE (ts + INTERVAL 1 SECOND)""",
    "not_closed": _TUMBLING,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of a view: rows of its runs, and their bytes."""

    rows: int
    kib: float


def windows(count: int) -> Outcome:
    """Compare the state of each view after so many windows, and after ten times as many."""
    table: dict[str, dict[str, float]] = {}
    figures: list[Figure] = []
    for name, query in VIEWS.items():
        few, many = kept_after(query, (count, count * GROWTH))
        table[name] = {
            "rows, n": few.rows,
            "rows, 10 n": many.rows,
            "KiB, n": few.kib,
            "KiB, 10 n": many.kib,
        }
        rows, kib = many.rows / few.rows, many.kib / few.kib
        if name == "not_closed":
            figures.append(Figure(f"state_rows_ratio_{name}", rows, "x"))
        else:
            figures += [
                at_most(f"state_rows_ratio_{name}", rows, "x", 1.2),
                at_most(f"state_bytes_ratio_{name}", kib, "x", 1.2),
            ]
    note = f"n is {count:,} windows of {EVENTS:,} events; the ratio is of 10 n to n"
    return Outcome("windows", tuple(figures), table, note, "state", "view")


def kept_after(query: str, counts: tuple[int, int]) -> tuple[Kept, Kept]:
    """Return the most that a view keeps about the end of so many windows."""
    catalog = {"clicks": Relation(CollectionId("clicks"), COLUMNS)}
    dataflow = compile_view(query, catalog, born=MINIMUM_TIME).dataflow
    places = [COLUMNS.index(column) for column in dataflow.imports[0].columns]
    seen: list[Kept] = []
    with temporary_directory("slackwater-") as directory:
        local = LocalDataflow(dataflow, Path(directory))
        local.step(interval_of(0, 1, as_of=True), {})
        for window in range(counts[1]):
            lower, upper = max(1, window * 1000), (window + 1) * 1000
            local.step(interval_of(lower, upper), {0: clicks(window).select([*places, 3, 4])})
            seen.append(kept(local))
    few, many = (
        Kept(max(state.rows for state in last), max(state.kib for state in last))
        for last in (seen[count - LAST : count] for count in counts)
    )
    return few, many


def clicks(window: int) -> pa.Table:
    """Return the events of a second. Shape: the columns, time, diff."""
    numbers = np.arange(window * EVENTS, (window + 1) * EVENTS)
    times = np.maximum(1, numbers * 1000 // EVENTS)
    return pa.table(
        {
            "id": numbers,
            "page": numbers % PAGES,
            "ts": pa.array(times * 1000).cast(pa.timestamp("us")),
            "time": times,
            "diff": np.ones(len(numbers), np.int64),
        }
    )


def kept(local: LocalDataflow) -> Kept:
    """Return the state of a dataflow; not what merges left behind."""
    names = [
        name for runs in local.runs.values() for listed in runs.values() for name in listed
    ]
    size = sum(
        int(piece.rows.get_total_buffer_size())
        for name in names
        for piece in local.context.files.open([name])
    )
    return Kept(sum(int(name[1]) for name in names), size / 1024)
