"""Totals of the tables: noted by PostgreSQL in each commit, compared with the inputs'.

A trigger, deferred to the end of each transaction that moves the checkpoint, adds the tables up
and notes the totals with the time that the tables hold. So no commit is missed, and what is
noted is what everybody sees from that commit on. DuckDB answers the same over the inputs at
that time, from scratch.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from streams.app.freshness import percentile
from streams.demo.check import History, Verdict, contents
from streams.demo.views import VIEWS
from streams.ids import Timestamp
from streams.trace.kernel.kernel import Kernel

Row = tuple[object, ...]

TOTALS: Mapping[str, str] = {
    "scheduled": "SELECT coalesce(sum(flights), 0) FROM departures_by_hour",
    "cancelled": "SELECT coalesce(sum(cancelled), 0) FROM departures_by_hour",
    "flown": "SELECT coalesce(sum(flights), 0) FROM delays_by_airline",
    "planes": "SELECT coalesce(sum(planes), 0) FROM board",
}
IDENTITY = "flown = scheduled - cancelled"
"""An invariant of two tables: it holds only while both are at one time."""
NAMES = ", ".join(TOTALS)

CHECK = (
    f"""CREATE TABLE demo_commits (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, read_through json NOT NULL,
  noted timestamptz NOT NULL DEFAULT clock_timestamp(),
  {", ".join(f"{name} numeric NOT NULL" for name in TOTALS)},
  is_right boolean NOT NULL GENERATED ALWAYS AS ({IDENTITY}) STORED)""",
    f"""CREATE FUNCTION demo_check() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO demo_commits (read_through, {NAMES})
  SELECT NEW.read_through::json, {", ".join(f"({total})" for total in TOTALS.values())};
  RETURN NULL; END $$""",
    """CREATE CONSTRAINT TRIGGER demo_check AFTER UPDATE ON slackwater_checkpoints
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (OLD.checkpoint IS DISTINCT FROM NEW.checkpoint) EXECUTE FUNCTION demo_check()""",
)
"""The statements that have every commit checked."""
COMMITS = f"""SELECT read_through, floor(extract(epoch FROM noted) * 1000)::bigint, is_right,
  {NAMES} FROM demo_commits ORDER BY number"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The state that a commit left in the tables. `time` is None if they differ."""

    time: Timestamp | None
    noted_ms: int
    is_right: bool
    totals: Mapping[str, int]


def commit(row: Sequence[object]) -> Commit:
    """A row of `COMMITS`."""
    read_through, noted_ms, is_right, *totals = row
    return Commit(
        time=time_of(str(read_through)),
        noted_ms=int(str(noted_ms)),
        is_right=bool(is_right),
        totals=dict(zip(TOTALS, (int(str(total)) for total in totals), strict=True)),
    )


def time_of(read_through: str) -> Timestamp | None:
    """The one time that all tables hold; None if there is none."""
    sources: Mapping[str, Mapping[str, str]] = json.loads(read_through).get("sources", {})
    uppers = {int(source["readThrough"]) for source in sources.values()}
    if len(sources) != len(VIEWS) or len(uppers) != 1:
        return None
    return Timestamp(uppers.pop() - 1)


def lags_ms(commits: Sequence[Commit]) -> tuple[float, float]:
    """The lag of commits behind their times: median, and 90th percentile."""
    lags = [
        float(commit.noted_ms - commit.time) for commit in commits if commit.time is not None
    ]
    return percentile(lags, 0.5), percentile(lags, 0.9)


def judged(
    commits: Sequence[Commit], inputs: Mapping[str, History], kernel: Kernel
) -> Iterator[Verdict]:
    """Each commit: its totals are in step, and are what DuckDB says of the inputs then.

    Where the inputs were compacted since, that they are in step is all that can be known.
    """
    times = sorted({commit.time for commit in commits if commit.time is not None})
    expected = totals_at(times, inputs, kernel)
    since = max(input_.since for input_ in inputs.values())
    for commit in commits:
        wrong = int(not commit.is_right) + int(commit.time is None)
        if commit.time is not None and commit.time >= since:
            wanted = expected[commit.time]
            wrong += sum(commit.totals[name] != wanted[name] for name in TOTALS)
        time = Timestamp(0) if commit.time is None else commit.time
        yield Verdict("totals in PostgreSQL", time, len(TOTALS), wrong)


TOTALS_AT = """
WITH changes AS (
  SELECT time, diff AS scheduled, CASE WHEN cancelled THEN diff ELSE 0 END AS cancelled,
         0 AS flown, 0 AS planes FROM flights
  UNION ALL
  SELECT greatest(f.time, a.time), 0, 0, f.diff * a.diff, 0
  FROM flights f JOIN airlines a USING (carrier) WHERE NOT f.cancelled
  UNION ALL
  SELECT time, 0, 0, 0, diff FROM plane_state
), running AS (
  SELECT time, sum(sum(scheduled)) OVER w AS scheduled, sum(sum(cancelled)) OVER w AS cancelled,
         sum(sum(flown)) OVER w AS flown, sum(sum(planes)) OVER w AS planes
  FROM changes GROUP BY time WINDOW w AS (ORDER BY time)
)
SELECT m.time, coalesce(scheduled, 0)::BIGINT AS scheduled,
       coalesce(cancelled, 0)::BIGINT AS cancelled, coalesce(flown, 0)::BIGINT AS flown,
       coalesce(planes, 0)::BIGINT AS planes
FROM moments m ASOF LEFT JOIN running ON m.time >= running.time
"""


def totals_at(
    times: Sequence[Timestamp], inputs: Mapping[str, History], kernel: Kernel
) -> Mapping[int, Mapping[str, int]]:
    """The totals at each time, of the inputs alone."""
    tables = {
        name: input_.updates.rename_columns([*input_.names, "time", "diff"])
        for name, input_ in inputs.items()
    }
    moments = pa.table({"time": pa.array(times, pa.int64())})
    answer = kernel.query(TOTALS_AT, moments=moments, **tables)
    return {row["time"]: {name: row[name] for name in TOTALS} for row in answer.to_pylist()}


def compared(
    history: History, time: Timestamp, actual: Iterable[Sequence[object]], kernel: Kernel
) -> Verdict:
    """A table, as it was read, beside its view at the time that it holds."""
    rows = contents(history, time, kernel)
    shown = ", ".join(
        # Arrow has no value of its own for a HUGEINT
        f'"{field.name}"::DECIMAL(38, 0)' if is_huge(field.type) else f'"{field.name}"'
        for field in rows.schema
    )
    columns = kernel.query(f"SELECT {shown} FROM rows", rows=rows).columns
    expected = Counter(
        map(plain, zip(*(column.to_pylist() for column in columns), strict=True))
    )
    counts = Counter(map(plain, actual))
    wrong = (expected - counts).total() + (counts - expected).total()
    return Verdict(f"{history.name} in PostgreSQL", time, expected.total(), wrong)


def is_huge(kind: pa.DataType) -> bool:
    """Whether a column has a type that Arrow only carries."""
    return isinstance(kind, pa.BaseExtensionType)


def plain(row: Sequence[object]) -> Row:
    """Values that are equal if they say the same: what has no zone is UTC."""
    return tuple(
        value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else value
        for value in row
    )
