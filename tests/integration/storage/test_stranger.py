"""What `schemas/CLIENTS.md` says, done by a client of the page alone, on a real broker."""

import datetime as dt
import decimal
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported nowhere else
    AdminClient,
    NewPartitions,
    NewTopic,
)

from tests.stranger import chunk, cuts, types, wire
from tests.stranger.client import Client, reference, stream
from tests.stranger.load import again, load
from tests.stranger.reader import Missing, Reader, counted
from tests.stranger.values import Record
from tests.support.command_place import TABLE, Place, rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def parties(served: Place) -> Iterator[tuple[Place, Client, Reader]]:
    """A namespace with a service, a client, and a reader of logs."""
    with served.client() as client, served.reader() as reader:
        yield served, client, reader


Parties = tuple[Place, Client, Reader]


def topic_of(place: Place, reader: Reader, group: str) -> tuple[str, str]:
    """A group's data topic, and its UUID."""
    return f"{place.namespace}.{group}.data", reader.fold(group).group


def linked(held: Record, *refs: Record, upper: int = 10) -> dict[str, Any]:
    write = {"capability": held, "updates": None, "chunks": list(refs), "new_frontier": upper}
    return {"writes": [write]}


def test_a_command_of_some_megabytes_is_written(parties: Parties) -> None:
    _, client, reader = parties
    _, write = client.done("create", collection="large", description=TABLE)
    text = uuid.uuid4().hex * 180_000
    assert 5 << 20 < len(text) < chunk.RECORD
    client.write(write, 10, rows((text, 1, 3, 1)))
    assert reader.snapshot("large", "large", 9) == {(text, 1): 1}


def test_a_bulk_load_is_staged_and_linked_at_once(parties: Parties) -> None:
    place, client, reader = parties
    read, write = client.done("create", collection="loaded", description=TABLE)
    where = topic_of(place, reader, "loaded")
    text = uuid.uuid4().hex * 1_000
    tables = [
        rows(*((f"{text}{n}", n, n % 7, 1) for n in range(start, start + 90)))
        for start in (0, 90, 180)
    ]
    write = load(client, where, write, tables, 10)
    assert write["frontier"] == 10
    (batch,) = reader.fold("loaded").collections["loaded"]["batches"]
    assert len(batch["chunks"]) > len(tables)
    assert max(chunk_ref["size"] for chunk_ref in batch["chunks"]) <= chunk.BEST
    assert client.ask("heartbeat", capability=write)["status"] == "DONE"
    assert not reader.fold("loaded").stages  # which end at the record that follows
    expected = {(f"{text}{n}", n): 1 for n in range(270)}
    assert reader.snapshot("loaded", "loaded", 9) == expected
    fetched, upper = cuts.cut(client, reader.chunk, {**read, "frontier": 9})
    assert (counted(fetched, with_time=False), upper) == (expected, 10)


def test_a_chunk_counts_only_as_the_page_has_it(parties: Parties) -> None:
    place, client, reader = parties
    _, write = client.done("create", collection="chunked", description=TABLE)
    topic, group = topic_of(place, reader, "chunked")
    ((body, count),) = chunk.written(rows(("a", 1, 1, 1), ("b", 2, 9, 1)), "zstd")
    fine = chunk.headers(group, "chunked", body, count)

    def written(headers: list[tuple[str, bytes]], key: str = "") -> Record:
        key = key or uuid.uuid4().hex
        offset = client.publish(body, topic, key=key, partition=0, headers=headers)
        chunk_ref = client.write_chunk(topic, group, "chunked", body, count)
        return {**chunk_ref, "key": key, "offset": offset}

    wrong = {
        "a header twice": written([*fine, fine[0]]),
        "no header": written(fine[1:]),
        "another collection": written(chunk.headers(group, "u", body, count)),
        "upper case": written([*fine[:3], ("crc32", b"ABCDEF01")]),
        "other rows": {**written(fine), "rows": 3},
        "other size": {**written(fine), "size": 1},
        "other offset": {**written(fine), "offset": 1 << 40},
    }
    for name, ref in wrong.items():
        answer = client.ask("update_and_downgrade", **linked(write, ref))
        assert answer["status"] == "REFUSED", name
        assert answer["error"]["code"] == "WrongRows", name
    ref = written([*fine, ("more", b"says nothing")])
    for name, refs in {
        "no UUID": [written(fine, "my-own-key")],
        "named twice": [ref, ref],
    }.items():
        with pytest.raises(AssertionError):
            chunk.check_references(refs)
        code = client.refused("update_and_downgrade", **linked(write, *refs))
        assert code == "WrongRows", name
    (moved,) = client.done("update_and_downgrade", **linked(write, ref))
    assert moved["frontier"] == 10
    assert reader.snapshot("chunked", "chunked", 9) == {("a", 1): 1, ("b", 2): 1}


def test_a_chunk_of_a_transaction_counts_once_that_is_committed(parties: Parties) -> None:
    place, client, reader = parties
    _, write = client.done("create", collection="committed", description=TABLE)
    topic, group = topic_of(place, reader, "committed")
    ((body, count),) = chunk.written(rows(("a", 1, 1, 1)))
    headers = chunk.headers(group, "committed", body, count)
    with client.transaction() as open_:
        ref = open_.write_chunk(topic, headers, body, count)
        behind = client.write_chunk(topic, group, "committed", body, count)
        for chunk_ref in (ref, behind):
            code = client.refused("update_and_downgrade", **linked(write, chunk_ref))
            assert code == "Uncommitted"
    (write,) = client.done_once_committed("update_and_downgrade", **linked(write, ref))
    with client.transaction() as doomed:
        aborted = doomed.write_chunk(topic, headers, body, count)
        doomed.abort()
    late = linked(write, aborted, upper=20)
    assert client.refused("update_and_downgrade", **late) == "Uncommitted"
    assert reader.snapshot("committed", "committed", 9) == {("a", 1): 1}


def test_what_was_overtaken_is_sent_anew(parties: Parties) -> None:
    """Two writers of one capability; counts that hang on what others write."""
    _, client, reader = parties
    _, writer = client.done("create", collection="contended", description=TABLE)
    first = client.contend(writer, rows(("a", 1, 0, 1)), 5)
    second = client.contend(writer, rows(("a", 1, 0, 1)), 5)
    assert (first["frontier"], second["frontier"]) == (5, 10)
    updates = stream(rows(("a", 1, 10, -2)))

    def counting() -> dict[str, Any]:
        write = {"capability": second, "updates": updates, "new_frontier": 20}
        return {"writes": [write], "check_counts": True}

    again(client, "update_and_downgrade", counting)
    assert reader.snapshot("contended", "contended", 9) == {("a", 1): 2}
    assert reader.snapshot("contended", "contended", 19) == {}


def test_cuts_are_read_and_resumed(parties: Parties) -> None:
    _, client, reader = parties
    read, write = client.done("create", collection="cuts", description=TABLE)
    fetched, upper = cuts.cut(client, reader.chunk, read)
    assert (fetched, upper) == (None, 0)  # the contents at 0 are not known yet
    write = client.write(write, 10, rows(("a", 1, 0, 1), ("b", 2, 5, 1)))
    write = client.write(write, 20, rows(("c", 9, 12, 1)))
    fetched, upper = cuts.cut(client, reader.chunk, read)
    total = counted(fetched, with_time=True)
    assert (total, upper) == ({("a", 1, 0): 1, ("b", 2, 5): 1, ("c", 9, 12): 1}, 20)
    write = client.write(write, 30, rows(("a", 1, 25, -1)))
    fetched, upper = cuts.cut(client, reader.chunk, read, after=upper - 1)
    assert (counted(fetched, with_time=True), upper) == ({("a", 1, 25): -1}, 30)
    fetched, _ = cuts.cut(client, reader.chunk, read, until=6)
    assert counted(fetched, with_time=True) == {("a", 1, 0): 1, ("b", 2, 5): 1}
    where = [{"column": "size", "operator": ">", "value": 5}]
    fetched, _ = cuts.cut(client, reader.chunk, read, where=where)
    large = [row for row in fetched.to_pylist() if row["data"]["size"] > 5]
    assert [row["data"]["name"] for row in large] == ["c"]
    assert client.refused("subscribe_at", capability=read, until=0) == "InvalidUsage"
    client.write(write, None)
    fetched, upper = cuts.cut(client, reader.chunk, read, after=upper - 1)
    assert (fetched, upper) == (None, None)


def test_names_and_sizes_have_limits(parties: Parties) -> None:
    _, client, _ = parties
    _, writer = client.done("create", collection="limited", description=TABLE)
    earlier = len(client.reports)
    for id_ in ("s1", "u1", "k1", "id:x"):
        assert client.refused("create", collection=id_, description=TABLE) == "InvalidUsage"
    group = {"description": TABLE, "group": "u7"}
    assert client.refused("create", collection="v", **group) == "InvalidUsage"
    long = client.refused("create", collection="x" * 201, description=TABLE)
    assert long == "TooLarge"
    system = {**writer, "name": "limited.write"}
    assert client.refused("heartbeat", capability=system) == "InvalidCapability"
    for lease_ms, expected in ((0, "InvalidUsage"), (31_622_400_001, "TooLarge")):
        code = client.refused("acquire_capabilities", collection="limited", lease_ms=lease_ms)
        assert code == expected, lease_ms
    code = client.refused(
        "acquire_capabilities", collection="limited", critical=True, token="x" * 257
    )
    assert code == "TooLarge"
    stage = {"capability": writer, "stage": "x" * 101, "chunks": []}
    assert client.refused("stage", **stage) == "TooLarge"
    large = rows(("a", 1, 0, (1 << 53) + 1))
    write = {"capability": writer, "updates": stream(large), "new_frontier": 10}
    assert client.refused("update_and_downgrade", writes=[write]) == "WrongRows"
    pieces = pa.Table.from_batches(rows(("a", 1, 0, 1)).to_batches() * 4097)
    write = {"capability": writer, "updates": stream(pieces), "new_frontier": 10}
    assert client.refused("update_and_downgrade", writes=[write]) == "TooLarge"
    ref = reference(0, 0, uuid.uuid4().hex, b"", 1)
    refs = [{**ref, "offset": n, "key": uuid.uuid4().hex} for n in range(4097)]
    assert client.refused("update_and_downgrade", **linked(writer, *refs)) == "TooLarge"
    assert client.refused("stage", **{**stage, "stage": "s", "chunks": refs}) == "TooLarge"
    columns = [{"name": f"c{n}", "type": "INTEGER"} for n in range(1601)]
    wide = json.dumps({"columns": columns, "keys": [], "kind": "table", "required": []})
    assert client.refused("create", collection="w", description=wide) == "TooLarge"
    client.publish(wire.encode("command_heartbeat", {"id": "x" * 101, "capability": writer}))
    writer = client.write(writer, 10)
    (report,) = client.reports[earlier:]
    assert (report["status"], report["error"]["code"]) == ("MALFORMED", "Malformed")


DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123000)  # noqa: DTZ001  of no zone
SAMPLES: dict[str, tuple[Any, pa.DataType | None]] = {
    "BOOLEAN": (True, None),
    "TINYINT": (-3, pa.int64()),
    "UBIGINT": (1 << 63, None),
    "USMALLINT": (7, pa.int8()),
    "HUGEINT": ((-5).to_bytes(16, "little", signed=True), pa.binary(16)),
    "UHUGEINT": ((1 << 127).to_bytes(16, "little"), pa.binary(16)),
    "FLOAT": (0.5, None),
    "DOUBLE": (0.25, pa.float32()),
    "DECIMAL(7, 2)": (decimal.Decimal("12345.67"), pa.decimal128(20, 3)),
    "VARCHAR": ("text", pa.large_utf8()),
    "ENUM('x', 'y')": ("x", pa.string_view()),
    "JSON": ('{"a": 1}', pa.utf8()),
    "BLOB": (b"\x00\xff", pa.large_binary()),
    "UUID": (uuid.UUID(int=7).bytes, pa.binary(16)),
    "DATE": (DAY, pa.date64()),
    "TIME": (dt.time(1, 2, 3), pa.time32("s")),
    "TIMESTAMP": (NOON, pa.timestamp("ms")),
    "TIMESTAMP_S": (NOON.replace(microsecond=0), pa.timestamp("us")),
    "TIMESTAMP_MS": (NOON, pa.timestamp("us")),
    "TIMESTAMP_NS": (NOON, pa.timestamp("us")),
    "TIMESTAMPTZ": (NOON.replace(tzinfo=dt.UTC), pa.timestamp("ms", "Europe/Rome")),
    "INTERVAL": ((1, 2, 3000), None),
    "INTEGER[]": ([1, None, 3], None),
    "INTEGER[2]": ([1, 2], None),
    "STRUCT(a INTEGER, b VARCHAR)": ({"a": 1, "b": "x"}, None),
    "MAP(VARCHAR, INTEGER)": ([("k", 1)], None),
}


def of_storage(value: Any, kind: pa.DataType) -> pa.Array:
    """One value, of a type that may be one of an extension."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))
    return pa.array([value], kind)


def test_every_type_of_the_page_is_written_both_ways_and_read(parties: Parties) -> None:
    place, client, reader = parties
    columns = [{"name": f"c{n}", "type": kind} for n, kind in enumerate(SAMPLES)]
    text = json.dumps({"columns": columns, "keys": [], "kind": "table", "required": []})
    _, write = client.done("create", collection="typed", description=text)
    kinds = types.schema(text).types
    names = [column["name"] for column in columns]

    def table(kinds: list[pa.DataType], at: int) -> pa.Table:
        values = [
            of_storage(value, kind)
            for (value, _), kind in zip(SAMPLES.values(), kinds, strict=True)
        ]
        more = [pa.array([at], pa.int64()), pa.array([1], pa.int64())]
        return pa.table([*values, *more], names=[*names, "time", "diff"])

    beforehand = load(client, topic_of(place, reader, "typed"), write, [table(kinds, 3)], 10)
    others = [
        own if other is None else other
        for own, (_, other) in zip(kinds, SAMPLES.values(), strict=True)
    ]
    write = client.write(beforehand, 20, table(kinds, 12))
    client.write(write, 30, table(others, 22))
    reader.fold("typed")
    updates = reader.updates("typed", "typed", 0, 0, 30)
    assert updates is not None
    assert updates.schema.field("data").type == pa.struct(zip(names, kinds, strict=True))
    first, *rest = [row["data"] for row in updates.to_pylist()]
    assert len(rest) == 2
    assert rest == [first, first]


def test_chunks_may_lie_in_a_partition_that_came_later(parties: Parties) -> None:
    place, client, reader = parties
    _, write = client.done("create", collection="spread", description=TABLE)
    write = client.write(write, 10, rows(("a", 1, 3, 1)))
    assert reader.snapshot("spread", "spread", 9) == {("a", 1): 1}
    topic, group = topic_of(place, reader, "spread")
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, partitions + 1)])[topic].result()
    ((body, count),) = chunk.written(rows(("b", 2, 11, 1)))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # the producer learns of it a little later
        time.sleep(0.5)
        if len(admin.list_topics(topic, timeout=30).topics[topic].partitions) > partitions:
            break
    ref = client.write_chunk(topic, group, "spread", body, count, partitions)
    client.done("update_and_downgrade", **linked(write, ref, upper=20))
    assert reader.snapshot("spread", "spread", 19) == {("a", 1): 1, ("b", 2): 1}
    with pytest.raises(Missing, match="no partition"):
        reader.chunk(topic, {**ref, "partition": 50})


GOLDEN = Path(__file__).parents[2] / "golden" / "shard"


def remade(bootstrap: str, topic: str, timestamps: str) -> None:
    """Delete a topic if it is there, and make it anew with three records of a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=30).topics:
        admin.delete_topics([topic])[topic].result()
    while topic in admin.list_topics(timeout=30).topics:
        time.sleep(0.1)
    config = {"message.timestamp.type": timestamps}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    log = json.loads((GOLDEN / "rollup.json").read_text())["log"]
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in log[:3]:
        producer.produce(topic, bytes.fromhex(record["value"]), partition=0)
    producer.flush()


def test_a_log_that_was_made_anew_is_not_read_on(place: Place) -> None:
    topic = f"{place.namespace}.g.log"
    remade(place.bootstrap, topic, "LogAppendTime")
    with place.reader() as reader:
        assert reader.fold("g").upto == 2
        remade(place.bootstrap, topic, "LogAppendTime")
        with pytest.raises(AssertionError, match="made anew"):
            reader.fold("g")
    remade(place.bootstrap, topic, "CreateTime")
    with place.reader() as reader, pytest.raises(AssertionError, match="append time"):
        reader.fold("g")


def test_a_log_that_ends_before_what_was_read_is_not_read_on(place: Place) -> None:
    remade(place.bootstrap, f"{place.namespace}.g.log", "LogAppendTime")
    with place.reader() as reader:
        reader.fold("g").upto = 7
        with pytest.raises(AssertionError, match="ends before"):
            reader.fold("g")
