"""What messages mean: stepped by the real engine, and compared with a dictionary."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import IngestionDescription
from streams.errors import InvalidUsage
from streams.ids import Offset, Timestamp, Topic
from streams.operators.local import LocalDataflow
from streams.plan.physical import Column, Source, Upsert
from streams.progress import interval_of
from streams.replica.ingest import plan
from streams.replica.ingest.ranges import Slice, assign, slices, windows
from streams.replica.ingest.source import MESSAGES, Resources, load, replay
from streams.trace.kernel.kernel import Kernel
from tests.support.examples import examples

COLUMNS = (Column("v", "BIGINT"), Column("k", "VARCHAR"), Column("w", "VARCHAR"))
TOPIC = Topic("raw.events-1")
NONE = IngestionDescription(topic=TOPIC, topic_id="t", envelope="none")
UPSERT = IngestionDescription(topic=TOPIC, topic_id="t", envelope="upsert", keys=("k",))
KERNEL = Kernel()

Message = tuple[bytes | None, bytes | None, int, int]


class Memory:
    """A topic in memory."""

    def __init__(self, messages: Sequence[Message]) -> None:
        columns = [list(column) for column in zip(*messages, strict=True)] or [[], [], [], []]
        self.table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, MESSAGES, strict=True)],
            schema=MESSAGES,
        )

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        assert not more
        partition, offset = pc.field("partition"), pc.field("offset")
        tables = [
            self.table.filter((partition == number) & (offset >= lo) & (offset < hi)).sort_by(
                "offset"
            )
            for number, lo, hi in ranges
        ]
        return pa.concat_tables([MESSAGES.empty_table(), *tables])


def ends(messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    return {
        p: (
            min(m[3] for m in messages if m[2] == p),
            1 + max(m[3] for m in messages if m[2] == p),
        )
        for p in {m[2] for m in messages}
    }


def loaded(
    source: IngestionDescription, messages: Sequence[Message], parts: Sequence[Slice], time: int
) -> tuple[pa.Table, pa.Table]:
    resources = Resources(Memory(messages), KERNEL)
    ingested = load(source, COLUMNS, parts, Timestamp(time), resources)
    return ingested.updates, ingested.errors


def add(to: Counter[tuple[object, ...]], tables: Sequence[pa.Table]) -> None:
    """Each update as (row, time), by the sum of its diffs."""
    for table in tables:
        for row in table.to_pylist():
            *values, diff = row.values()
            to[tuple(values)] += diff


class Stepped:
    """A source that is stepped in process; remembers its shard."""

    def __init__(self, source: IngestionDescription, directory: Path) -> None:
        self.source = source
        self.flow = LocalDataflow(plan.dataflow(source, COLUMNS), directory, kernel=KERNEL)
        self.rows: Counter[tuple[object, ...]] = Counter()
        self.errors: Counter[tuple[object, ...]] = Counter()
        self.outputs: list[pa.Table] = []
        self.failures: list[pa.Table] = []

    def step(self, update: tuple[pa.Table, pa.Table], lower: int, upper: int) -> None:
        rows, errors = self.flow.step(
            interval_of(Timestamp(lower), Timestamp(upper)), {0: update[0]}
        )
        errors = [*errors, update[1]]
        self.outputs += [table(row) for row in rows]
        self.failures += [table(error) for error in errors]
        add(self.rows, self.outputs[-len(rows) :] if rows else [])
        add(self.errors, self.failures[-len(errors) :])

    def contents(self, time: int) -> Counter[tuple[object, ...]]:
        return at(self.rows, time)

    def failing(self, time: int) -> Counter[tuple[object, ...]]:
        return at(self.errors, time)


def table(batch: pa.Table | pa.RecordBatch) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def at(updates: Counter[tuple[object, ...]], time: int) -> Counter[tuple[object, ...]]:
    counts: Counter[tuple[object, ...]] = Counter()
    for update, diff in updates.items():
        *row, moment = update
        if isinstance(moment, int) and moment <= time:
            counts[tuple(row)] += diff
    return +counts if all(n >= 0 for n in counts.values()) else counts


# A model of UPSERT: keys and values as a person would read them.

KEYS = [b'{"k":"a"}', b'"a"', b' "b"', b'{"k":"b","u":1}', b'"\\u0061"']
BAD_KEYS = [None, b"x", b"{}", b"null", b"5", b'{"k":1}', b"", b'"\xff"']
VALUES = [
    b'{"v":1}',
    b'{"v":1,"w":"x"}',
    b'{"v":2,"k":"other"}',
    b"{}",
    None,
    b"null",
    b'{"v":"one"}',
]


def model_key(raw: bytes | None) -> str | None:
    return {0: "a", 1: "a", 2: "b", 3: "b", 4: "a"}[KEYS.index(raw)] if raw in KEYS else None


def model_value(raw: bytes | None) -> tuple[object, ...] | None:
    """The row's v and w; None: no row or an error."""
    if raw is None or raw in (b"null", b'{"v":"one"}'):
        return None
    document = json.loads(raw)
    return document.get("v"), document.get("w")


streams = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS * 3 + BAD_KEYS), st.sampled_from(VALUES), st.integers(0, 1)
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=4,
)


def numbered(stream: list[list[tuple[bytes | None, bytes | None, int]]]) -> list[list[Message]]:
    """Each message with an offset in its partition; some offsets stay empty."""
    next_offset = {0: 0, 1: 0}
    result = []
    for interval in stream:
        messages: list[Message] = []
        for key, value, partition in interval:
            messages.append((key, value, partition, next_offset[partition]))
            next_offset[partition] += 1 + (next_offset[partition] % 3 == 1)
        result.append(messages)
    return result


def expected(intervals: list[list[Message]]) -> list[tuple[dict[str, object], int, int]]:
    """After each interval: the row of each key, how many keys and messages are in error."""
    rows: dict[str, object] = {}
    broken: set[str] = set()
    lost = 0
    result = []
    for messages in intervals:
        for raw, value, _, _ in sorted(messages, key=lambda m: (m[3], m[2])):
            key = model_key(raw)
            if key is None:
                lost += 1
                continue
            rows.pop(key, None)
            broken.discard(key)
            row = model_value(value)
            if row is not None:
                rows[key] = row
            elif value is not None:
                broken.add(key)
        result.append((dict(rows), len(broken), lost))
    return result


def by_key(contents: Counter[tuple[object, ...]]) -> dict[object, object]:
    assert all(count == 1 for count in contents.values()), contents
    current: dict[object, object] = {row[1]: (row[0], row[2]) for row in contents}
    assert len(current) == len(contents)
    return current


@examples(60)
@given(streams, st.integers(1, 4), st.booleans())
def test_upsert_says_at_every_time_what_the_latest_messages_say(stream, budget, one_snapshot):
    intervals = numbered(stream)
    everything = [message for messages in intervals for message in messages]
    with tempfile.TemporaryDirectory() as directory:
        stepped = Stepped(UPSERT, Path(directory))
        for index, messages in enumerate(intervals):
            full = slices(ends(messages))
            # The first interval of a source comes in windows, all of them at one time.
            parts = windows(full, budget) if one_snapshot and index == 0 else [full]
            for part in parts:
                stepped.step(
                    loaded(UPSERT, everything, part, 10 * index), 10 * index, 10 * index + 1
                )
        for index, (rows, broken, lost) in enumerate(expected(intervals)):
            assert by_key(stepped.contents(10 * index + 9)) == rows
            failing = stepped.failing(10 * index + 9)
            assert len(failing) == broken + lost
            assert all(count == 1 for count in failing.values())


@examples(50)
@given(streams, st.integers(1, 3), st.booleans())
def test_state_rebuilt_from_the_shard_goes_on_as_the_one_that_was_lost(
    stream, cut, is_complete
):
    check_rebuilt(numbered(stream), cut, whole=is_complete)


@pytest.mark.parametrize("is_complete", [True, False])
def test_state_rebuilt_after_a_row_was_replaced(is_complete):
    writes = [(b'"a"', value, 0) for value in (b'{"v":1}', b'{"v":2}', b"[", None, b'{"v":3}')]
    for first in range(4):
        intervals = numbered([[write] for write in writes[first:]])
        for cut in range(1, len(intervals)):
            check_rebuilt(intervals, cut, whole=is_complete)


def check_rebuilt(intervals: list[list[Message]], cut: int, *, whole: bool) -> None:
    everything = [message for messages in intervals for message in messages]
    with tempfile.TemporaryDirectory() as directory:
        one, other = Path(directory) / "one", Path(directory) / "other"
        one.mkdir()
        other.mkdir()
        unbroken, rebuilt = Stepped(UPSERT, one), Stepped(UPSERT, other)
        for index, messages in enumerate(intervals):
            time = 10 * index
            if index == cut:
                rebuild(unbroken, rebuilt, time, whole=whole)
                assert rebuilt.contents(time) == unbroken.contents(time)
                for source in (unbroken, rebuilt):
                    source.rows.clear()
                    source.errors.clear()
            update = loaded(UPSERT, everything, slices(ends(messages)), time)
            unbroken.step(update, time, time + 1)
            if index >= cut:
                rebuilt.step(update, time, time + 1)
        if cut < len(intervals):
            assert present(rebuilt.rows) == present(unbroken.rows)
            assert present(rebuilt.errors) == present(unbroken.errors)


def present(updates: Counter[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    return {update: diff for update, diff in updates.items() if diff}


def rebuild(unbroken: Stepped, rebuilt: Stepped, time: int, *, whole: bool) -> None:
    """Replay the shard, all of it at once or one time after the other."""
    history = (
        pa.concat_tables([plan_schema(), *unbroken.outputs]),
        pa.concat_tables(unbroken.failures),
    )
    times = [(0, time)] if whole else [(t, t + 1) for t in range(0, time, 10)]
    for lower, upper in times:
        part = tuple(updates.filter(within(updates, lower, upper)) for updates in history)
        resources = Resources(Memory([]), KERNEL)
        rebuilt.step(replay(UPSERT, COLUMNS, (part[0], part[1]), resources), lower, upper)


def within(updates: pa.Table, lower: int, upper: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(updates["time"], lower), pc.less(updates["time"], upper))


def plan_schema() -> pa.Table:
    return pa.table(
        {
            "c0": pa.array([], pa.int64()),
            "c1": pa.array([], pa.string()),
            "c2": pa.array([], pa.string()),
            "time": pa.array([], pa.int64()),
            "diff": pa.array([], pa.int64()),
        }
    )


def test_a_row_that_came_and_went_within_one_snapshot_is_not_replayed():
    def history(*diffs: tuple[int, int]) -> pa.Table:
        values, signs = zip(*diffs, strict=True)
        count = len(diffs)
        columns = [values, ["a"] * count, [None] * count, [5] * count, signs]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, plan_schema().schema, strict=True)],
            schema=plan_schema().schema,
        )

    resources = Resources(Memory([]), KERNEL)
    snapshot = history((3, 1), (1, 1), (1, -1), (2, 1), (2, -1))
    updates, errors = replay(UPSERT, COLUMNS, (snapshot, EMPTY_ERRORS), resources)
    assert updates.drop_columns(["c3"]).to_pylist() == [
        {"c0": 3, "c1": "a", "c2": None, "c4": 0, "c5": None, "time": 5, "diff": 1}
    ]
    assert errors.num_rows == 0


EMPTY_ERRORS = pa.table(
    {
        "error": pa.array([], pa.string()),
        "time": pa.array([], pa.int64()),
        "diff": pa.array([], pa.int64()),
    }
)


def test_none_keeps_every_message_and_every_failure():
    messages: list[Message] = [
        (None, b'{"v":1,"k":"a"}', 0, 4),
        (b"ignored", b'{"v":1,"k":"a"}', 1, 4),
        (None, b'{"v":1.5}', 0, 5),
        (None, None, 1, 9),
    ]
    updates, errors = loaded(NONE, messages, slices(ends(messages)), 7)
    row = {"c0": 1, "c1": "a", "c2": None, "time": 7, "diff": 1}
    assert updates.to_pylist() == [row, row]
    start = "cannot decode message: topic raw.events-1, partition"
    assert errors.to_pylist() == [
        {
            "error": f'{start} 0, offset 5: column "v": expected BIGINT, actual 1.5',
            "time": 7,
            "diff": 1,
        },
        {
            "error": f"{start} 1, offset 9: expected a JSON object, actual nothing",
            "time": 7,
            "diff": 1,
        },
    ]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "0, offset 3: key: expected a JSON object, actual nothing"),
        (b"A1", b"{}", "0, offset 3: key: expected JSON, actual other text at character 1"),
        (b"[1]", b"{}", "0, offset 3: key: expected a JSON object, actual an array"),
        (b"{}", b"{}", '0, offset 3: key: column "k": expected VARCHAR, actual no value'),
        (
            b'{"k":null}',
            None,
            '0, offset 3: key: column "k": expected VARCHAR, actual no value',
        ),
        (b"7", b"{}", '0, offset 3: key: column "k": expected VARCHAR, actual 7'),
    ],
)
def test_a_key_that_cannot_be_read_is_an_error_that_names_the_message(key, value, reason):
    message = [(key, value, 0, 3)]
    updates, errors = loaded(UPSERT, message, slices(ends(message)), 7)
    assert updates.num_rows == 0
    assert errors["error"].to_pylist() == [
        f"cannot decode message: topic raw.events-1, partition {reason}"
    ]


def test_a_value_that_cannot_be_read_is_an_error_under_its_key():
    message = [(b' { "k" : "a: b" } ', b"[", 2, 3)]
    updates, errors = loaded(UPSERT, message, slices(ends(message)), 7)
    assert errors.num_rows == 0
    text = (
        'cannot decode message: topic raw.events-1, partition 2, offset 3, key { "k" : "a: b" }'
    )
    assert updates.to_pylist() == [
        {
            "c0": None,
            "c1": "a: b",
            "c2": None,
            "c3": 3 * 2**15 + 2,
            "c4": 2,
            "c5": f"{text}: expected JSON, actual a text that ends too early",
            "time": 7,
            "diff": 1,
        }
    ]


def test_a_row_that_is_not_there_has_no_values():
    columns = (Column("k", "VARCHAR"), Column("v", "BIGINT"), Column("day", "DATE"))
    messages: list[Message] = [(b'"a"', b'{"v":1,"day":"2013-02-29"}', 0, 0)]
    resources = Resources(Memory(messages), KERNEL)
    ingested = load(UPSERT, columns, slices(ends(messages)), Timestamp(7), resources)
    updates = ingested.updates
    assert updates["c0"].to_pylist() == ["a"]
    assert updates["c1"].to_pylist() == [None]


def test_the_share_of_each_task_decodes_alone():
    messages: list[Message] = [(b'"a"', b'{"v":%d}' % i, 0, i) for i in range(20)]
    errors = loaded(UPSERT, messages, slices(ends(messages)), 7)[0]
    parts = [loaded(UPSERT, messages, part, 7)[0] for part in assign(slices(ends(messages)), 3)]
    assert len(parts) == 3
    assert pa.concat_tables(parts).to_pylist() == errors.to_pylist()


def test_an_empty_range_gives_empty_tables_of_the_right_shape():
    for source in (NONE, UPSERT):
        updates, errors = loaded(source, [], [], 7)
        kinds = [column.type for column in plan.import_columns(source, COLUMNS)]
        assert updates.num_columns == len(kinds) + 2
        assert updates.num_rows == errors.num_rows == 0


def test_the_plan_follows_from_the_envelope():
    none, upsert = plan.dataflow(NONE, COLUMNS), plan.dataflow(UPSERT, COLUMNS)
    assert (none.nodes, none.levels, none.depth) == ((Source(0),), (0,), 0)
    assert (upsert.nodes, upsert.levels) == ((Source(0), Upsert(0, (1,))), (0, 1))
    assert none.output == upsert.output == COLUMNS
    assert [c.name for c in upsert.imports[0].columns[3:]] == ["position", "kind", "error"]
    assert upsert.types[0][3:] == ("BIGINT", "UTINYINT", "VARCHAR")


@pytest.mark.parametrize(
    ("envelope", "keys", "message"),
    [
        ("upsert", ("x",), 'key column "x" is not a column'),
        ("upsert", (), "envelope upsert with 0 key columns"),
        ("none", ("k",), "envelope none with 1 key columns"),
    ],
)
def test_keys_that_do_not_fit_are_refused(envelope, keys, message):
    source = IngestionDescription(topic=TOPIC, topic_id="t", envelope=envelope, keys=keys)
    with pytest.raises(InvalidUsage, match=message):
        plan.dataflow(source, COLUMNS)
