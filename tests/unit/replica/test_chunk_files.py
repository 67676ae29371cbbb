"""Chunks in files, with which Spark steps a view for a test."""

from pathlib import Path

import pytest

from streams.errors import Corrupt, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.log import ChunkWrite
from streams.testing.chunk_files import Files

TOPIC = Topic("t")


def test_what_was_written_is_fetched_and_checked(tmp_path: Path) -> None:
    chunks = Files(tmp_path).chunks()
    ((one,), (two, three)) = chunks.write_all(
        [ChunkWrite(TOPIC, [(b"a", 1)], {}), ChunkWrite(TOPIC, [(b"b", 2), (b"c", 3)], {})]
    )
    assert (two.rows, two.size) == (2, 1)
    assert chunks.fetch_all({TOPIC: [three, one]}) == {TOPIC: [b"c", b"a"]}
    assert [chunk.body for chunk in chunks.fetch_committed(TOPIC, [two])] == [b"b"]
    (tmp_path / two.key).write_bytes(b"x")
    with pytest.raises(Corrupt):
        chunks.fetch(TOPIC, [two])
    chunks.forget(TOPIC, [one, one])
    assert not (tmp_path / one.key).exists()


def test_tasks_for_a_test_read_no_messages(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage):
        Files(tmp_path).messages().fetch_ranges(TOPIC, [(0, Offset(0), Offset(1))])
