"""What a view with EMIT ON CLOSE has to be: a model over DuckDB, from its inputs' history.

Between two changes of the inputs its query has the same rows, and those whose windows end there
appear. And a dataflow of it, stepped in process: cut anywhere, killed and built again.
"""

import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa

from streams.ids import CollectionId, Timestamp
from streams.operators.local import LocalDataflow
from streams.plan.compile import CompiledView, Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.trace import updates as trace
from streams.trace.columns import int64
from streams.trace.kernel.kernel import arrow_schema
from tests.support.flows import kernel
from tests.support.lives import relations_at

Rows = Counter[tuple[object, ...]]
"""Rows with the time at which they appear, and how often."""


def expected(
    query: str, end: str, inputs: Mapping[str, pa.Table], born: int, upper: int
) -> Rows:
    """What the view says up to `upper`, from inputs with `_time` and `_diff`."""
    con = duckdb.connect()
    con.execute("SET integer_division=true; SET default_null_order='postgres'")
    con.execute("SET TimeZone='UTC'; SET threads=1")
    relations = relations_at(con, inputs)
    text = query.replace("mz_now()", "make_timestamp($at::BIGINT * 1000)")
    closes = f"(epoch_us(({end})::TIMESTAMP) + 999) // 1000"
    con.execute(
        f"PREPARE ended AS {relations} SELECT *, greatest({closes}, {born})"
        f" FROM ({text}) WHERE {closes} <= least($next::BIGINT, {upper - 1})"
        f" AND ({closes} > $at::BIGINT OR $at::BIGINT = {born})"
    )
    changes = {time for table in inputs.values() for time in table["_time"].to_pylist()}
    goes_by_itself = "mz_now()" in query
    moments = range(born, upper) if goes_by_itself else sorted({born, *changes})
    since = [time for time in moments if born <= time < upper]
    rows = Rows()
    for seen, next_change in pairwise([*since, upper]):
        ended = con.execute(f"EXECUTE ended(at := {seen}, next := {next_change})")
        rows.update(ended.fetchall())
    return rows


def compiled(
    text: str, tables: Mapping[str, str], born: int
) -> tuple[CompiledView, dict[str, list[str]]]:
    """The view of a text over tables, and the types of those."""
    columns = {name: kernel().columns(definition) for name, definition in tables.items()}
    catalog = {
        name: Relation(CollectionId(name), tuple(Column(*pair) for pair in pairs))
        for name, pairs in columns.items()
    }
    types = {name: [kind for _, kind in pairs] for name, pairs in columns.items()}
    return compile_view(text, catalog, (), Timestamp(born)), types


class Stepped:
    """The dataflow of a view, and what it said: rows and errors with their times."""

    def __init__(
        self,
        text: str,
        tables: Mapping[str, str],
        inputs: Mapping[str, pa.Table],
        born: int,
        directory: Path,
    ) -> None:
        self.view, types = compiled(text, tables, born)
        self.born, self.directory = born, directory
        self.updates = {
            name: trace.flatten(
                [table.rename_columns(arrow_schema(types[name]).names)],
                arrow_schema(types[name]),
            )
            for name, table in inputs.items()
        }
        self.outputs: list[pa.Table] = []
        self.errors: list[pa.Table] = []
        self.lives = 0
        self.build(born, is_birth=True)

    def build(self, as_of: int, *, is_birth: bool = False) -> None:
        """State from snapshots at `as_of`, in two slices; only a birth says something."""
        self.lives += 1
        directory = self.directory / str(self.lives)
        directory.mkdir()
        self.local = LocalDataflow(self.view.dataflow, directory, kernel=kernel())
        for part in range(2):
            interval = interval_of(as_of, as_of + 1, as_of=part == 0)
            snapshot = self.local.step(interval, self._snapshot(as_of, part))
            if is_birth:
                self._say(snapshot)

    def step(self, lower: int, upper: int) -> None:
        """Step over an interval."""
        self._say(self.local.step(interval_of(lower, upper), self._changes(lower, upper)))

    def _say(self, emitted: tuple[list[pa.Table], list[pa.Table]]) -> None:
        self.outputs += emitted[0]
        self.errors += emitted[1]

    def _snapshot(self, as_of: int, part: int) -> dict[int, pa.Table]:
        rows = {}
        for index, imported in enumerate(self.view.dataflow.imports):
            updates = trace.clip(self.updates[imported.collection], 0, as_of + 1)
            times = pa.array([as_of] * updates.num_rows, pa.int64())
            place = updates.schema.get_field_index("time")
            moved_up = pa.Table.from_batches([updates]).set_column(place, "time", times)
            middle = moved_up.num_rows // 2
            rows[index] = (moved_up[:middle], moved_up[middle:])[part]
        return rows

    def _changes(self, lower: int, upper: int) -> dict[int, pa.Table]:
        return {
            index: pa.Table.from_batches(
                [trace.clip(self.updates[imported.collection], lower, upper)]
            )
            for index, imported in enumerate(self.view.dataflow.imports)
        }

    def rows(self) -> Rows:
        """The consolidated rows with their times."""
        types = [column.type for column in self.view.columns]
        flat = trace.flatten(self.outputs, arrow_schema(types))
        consolidated = trace.consolidate(flat, kernel())
        diffs = int64(consolidated.column("diff"))
        assert not len(diffs) or diffs.min() > 0, "a row was taken back"
        rows = Rows()
        for row in consolidated.to_pylist():
            *values, diff = row.values()
            rows[tuple(values)] += diff
        return rows

    def held(self) -> int:
        """How many rows the state has, in all files."""
        runs = (names for bucket in self.local.runs.values() for names in bucket.values())
        return sum(int(name[1]) for names in runs for name in names)


@contextmanager
def stepped(
    text: str, tables: Mapping[str, str], inputs: Mapping[str, pa.Table], born: int
) -> Iterator[Stepped]:
    """A view that is born."""
    with tempfile.TemporaryDirectory() as directory:
        yield Stepped(text, tables, inputs, born, Path(directory))


def lived(
    text: str,
    tables: Mapping[str, str],
    inputs: Mapping[str, pa.Table],
    born: int,
    cuts: Sequence[int],
    kills: Collection[int],
) -> Rows:
    """What a view says that is stepped up to each of the cuts, and dies after some."""
    with stepped(text, tables, inputs, born) as view:
        for lower, upper in pairwise([born + 1, *cuts]):
            view.step(lower, upper)
            if upper in kills:
                view.build(upper - 1)
        return view.rows()
