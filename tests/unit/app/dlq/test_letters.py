import base64
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from streams.app.dlq.letters import Filter, Letter, letter, records, summary
from streams.app.topic.record_output import NOTHING
from streams.compute.description import Start, TopicStart
from streams.compute.skipped_offsets import skipped
from streams.errors import InvalidUsage
from streams.ids import Timestamp, Topic
from streams.replica.ingest.refusals import LARGEST_BYTES, Refusals
from tests.unit.adapter.items import source


def row_of(key: bytes | None, value: bytes | None) -> list[object]:
    """A row of the query, of the letter that ingestion makes of a message."""
    described = source(1, "orders").source
    assert described is not None
    described = replace(described, on_error="dead_letter")
    messages = pa.table(
        {
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "key": pa.array([key], pa.binary()),
            "value": pa.array([value], pa.binary()),
        }
    )
    letters = Refusals(described).refused(messages, pa.array(["bad"]), Timestamp(5)).letters
    (*place, time, own_key, own_value, reason) = (
        column[0].as_py() for column in letters.columns[:-2]
    )
    texts = [
        None if part is None else base64.b64encode(part).decode()
        for part in (own_key, own_value)
    ]
    return [*place, time, *texts, reason]


@pytest.mark.parametrize(
    ("key", "value", "is_whole"),
    [
        (b"k", b"v", True),
        (None, b"v", True),
        (b"k", None, True),
        (None, None, True),
        (b"", b"\xff", True),
        (b"x" * (LARGEST_BYTES + 1), b"v", False),
        (b"k", b"x" * (LARGEST_BYTES + 1), False),
        (b"x" * (LARGEST_BYTES + 1), b"x" * (LARGEST_BYTES + 1), False),
    ],
)
def test_bytes_come_back_and_letters_that_lack_some_are_known(key, value, is_whole) -> None:
    decoded = letter(row_of(key, value))
    assert decoded.is_whole == is_whole
    if is_whole:
        assert (decoded.key, decoded.value) == (key, value)
        assert records([decoded], Topic("t"))[0].value == value
    else:
        with pytest.raises(InvalidUsage, match="not all of their bytes are kept"):
            records([decoded], Topic("t"))


def at(topic: str, partition: int, offset: int) -> Letter:
    return Letter(topic, partition, offset, "then", b"k", b"\xff", "bad")


def test_bytes_that_are_no_text_are_shown_in_base64() -> None:
    shown = at("a", 0, 1).as_object()
    assert (shown["key"], shown["value"]) == ("k", {"base64": "/w=="})
    assert at("a", 0, 1).as_line() == '0@1  then  k  {"base64": "/w=="}\n  bad'


def test_a_letter_may_tell_no_time() -> None:
    told = letter(["a", 0, 1, None, None, None, "bad"])
    assert told.as_object()["time"] is None
    assert told.as_line() == f"0@1  {NOTHING}  {NOTHING}  {NOTHING}\n  bad"


def test_places_of_records() -> None:
    letters = [at("a", 3, 1), at("b", 0, 2)]
    assert [(r.topic, r.partition) for r in records(letters, Topic("c"))] == [("c", None)] * 2
    assert [(r.topic, r.partition) for r in records(letters, None)] == [("a", 3), ("b", 0)]


def test_what_was_skipped_is_no_message() -> None:
    reason = skipped(
        [TopicStart(Topic("a"), "id", Start(n, ((0, n * 5),))) for n in (0, 1)], {0: 3}, 0
    )[0].reason
    assert reason == "skipped: offsets 3 to 4, by ALTER SOURCE ... RESUME FROM"
    assert not replace(at("a", 0, 3), reason=reason).is_message
    assert at("a", 0, 3).is_message


def test_letters_are_counted_by_partition() -> None:
    lines = summary([at("a", 0, 1), at("a", 0, 9), at("a", 1, 4)])
    assert [tuple(some.values()) for some in lines] == [("a", 0, 2, 1, 9), ("a", 1, 1, 4, 4)]


def test_conditions_of_a_query() -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    query = Filter(1, 17, since, "true -- all", 5).query('a"b')
    assert 'FROM "a""b".errors WHERE partition = 1 AND "offset" = 17' in query
    came = "(time IS NULL OR time >= TIMESTAMP '2026-01-31 10:00:00.000000')"
    assert f"{came} AND (\ntrue -- all\n)" in query
    assert query.endswith('ORDER BY topic, partition, "offset" LIMIT 5')


@pytest.mark.parametrize(
    "where", ["true); DROP SOURCE orders; SELECT (1", "'", "true;", "true) /* ", '"']
)
def test_a_condition_is_one_condition(where) -> None:
    with pytest.raises(InvalidUsage, match="condition of SQL"):
        Filter(where=where).query("orders")
