"""`schemas/OUTPUT.md` is what sinks write: types, keys, schema; and its consumer reads it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import pyarrow as pa
import pytest

from schemas.keys import unpack
from schemas.rows import form_of, row_schema
from schemas.tuple_elements import encoded
from streams.ids import Timestamp, Topic
from streams.kafka.client.transactions import OutRecord
from streams.operators.context import ERRORS
from streams.storage.description import Description
from streams.storage.sinks.progress import LIMIT
from streams.storage.sinks.record_columns import TIME_HEADER
from streams.storage.sinks.records import RecordEncoder
from streams.storage.sinks.sink import NO_KEYS
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel, arrow_schema

PAGE = (Path(__file__).parents[3] / "schemas" / "OUTPUT.md").read_text(encoding="utf-8")
ROWS = [
    (re.findall(r"`([^`]+)`", types), avro, key)
    for types, avro, key in re.findall(
        r"^\| (`[A-Z].*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE
    )
]
KERNEL = Kernel()
EXAMPLES = {
    "DECIMAL(p, s)": ("DECIMAL(12,2)", "1.50"),
    "ENUM(...)": ("ENUM('p', 'q')", "'q'"),
}
VALUES = {
    "BOOLEAN": "true",
    "FLOAT": "1.5",
    "DOUBLE": "1.5",
    "VARCHAR": "'x'",
    "JSON": "'1'",
    "BLOB": "'x'::BLOB",
    "UUID": "'6b86b273-ff34-4ce1-8d6b-804eff5a3f57'",
    "DATE": "DATE '2026-01-02'",
    "TIME": "TIME '01:02:03'",
    "TIMESTAMP": "TIMESTAMP '2026-01-02 03:04:05'",
    "TIMESTAMP_S": "TIMESTAMP '2026-01-02 03:04:05'",
    "TIMESTAMP_MS": "TIMESTAMP '2026-01-02 03:04:05'",
    "TIMESTAMP_NS": "TIMESTAMP '2026-01-02 03:04:05'",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '2026-01-02 03:04:05+02'",
    "INTERVAL": "INTERVAL '1 hour'",
    "BIT": "'0101'::BIT",
    "TIME WITH TIME ZONE": "TIMETZ '01:02:03+02'",
}
KINDS = {
    "boolean": bool,
    "integer": int,
    "double": float,
    "text": str,
    "bytes": bytes,
    "UUID": object,
}


def plain_types() -> Iterator[tuple[str, str, str, str]]:
    """Each plain type of the table: as DuckDB spells it, a value, its Avro form, its key."""
    for types, avro, key in ROWS:
        for kind in types:
            if kind.startswith("KEY") or "over" in kind or key == "nested tuple":
                continue
            spelled, value = EXAMPLES.get(kind, (kind, VALUES.get(kind, "7")))
            yield spelled, value, avro, key


def spelled(avro: object) -> str:
    """An Avro type as the page writes it."""
    if isinstance(avro, str):
        return f"`{avro}`"
    assert isinstance(avro, dict)
    name = avro["logicalType"]
    size = f"({avro['precision']}, {avro['scale']})" if name == "decimal" else ""
    return f"`{name}{size}` over `{avro['type']}`"


@pytest.mark.parametrize(("kind", "value", "avro", "key"), [*plain_types()])
def test_a_type_has_the_form_that_the_page_says(
    kind: str, value: str, avro: str, key: str
) -> None:
    expected = avro.replace("(p, s)", "(12, 2)")
    assert spelled(json.loads(form_of(kind).avro)) == expected
    rows = row_schema("t", [("c0", kind)])
    table = KERNEL.query(f"SELECT CAST({value} AS {kind}) AS c0")
    keys = KERNEL.query(f"SELECT {rows.key_selects[0]} AS k FROM t", t=table)
    column = keys["k"]
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())  # as tables of ours carry an ENUM
    (element,) = unpack(encoded(one_array(column))[0].as_py())
    assert isinstance(element, KINDS[re.split(r"[:, ]", key)[0]])
    for example in re.findall(r"`([^`]+)`", key):
        assert example == "1.50" or element == example


def test_the_table_has_each_kind_of_type() -> None:
    kinds = {kind for kind, *_ in plain_types()}
    assert kinds >= VALUES.keys() | {"UBIGINT", "HUGEINT", "DECIMAL(12,2)"}
    for kind in ("BIGINT[]", "INTEGER[3]", "STRUCT(a INTEGER)", "MAP(INTEGER, INTEGER)"):
        assert form_of(kind).avro == '"string"'
        assert form_of(kind).sql == "to_json({})::VARCHAR"


COUNTRIES = Description((("country", "VARCHAR"), ("revenue", "DECIMAL(38,2)")))


def test_the_schema_that_is_shown_is_the_one_that_is_published() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rows = row_schema("revenue", COUNTRIES.columns)
    assert json.loads(shown) == json.loads(rows.text)


def test_the_page_names_what_transactions_and_headers_are() -> None:
    assert f"at most {LIMIT:,} records" in PAGE
    assert f"`{TIME_HEADER}`" in PAGE


@dataclass
class Message:
    """A record as confluent-kafka hands it out, or the end of a partition."""

    record: OutRecord | None
    number: int

    def partition(self) -> int:
        return self.number

    def error(self) -> confluent_kafka.KafkaError | None:
        end = confluent_kafka.KafkaError._PARTITION_EOF
        return confluent_kafka.KafkaError(end) if self.record is None else None

    def key(self) -> bytes | None:
        assert self.record is not None
        return self.record.key

    def value(self) -> bytes | None:
        assert self.record is not None
        return self.record.value

    def headers(self) -> list[tuple[str, bytes]]:
        assert self.record is not None
        return list(self.record.headers)


class Enough(Exception):
    """The topic was read to its end."""


PARTITIONS = (1, 0, 2)
"""Those of each topic; all records are in the first of them."""


def consumer_of(topics: dict[str, list[OutRecord]], follows: str) -> type:
    """A consumer over these topics that ends the reading of `follows` at its end."""

    class Consumer:
        def __init__(self, config: dict[str, object]) -> None:
            assert config["isolation.level"] == "read_committed"

        def list_topics(self, topic: str) -> SimpleNamespace:
            topics_by_name = {topic: SimpleNamespace(partitions=dict.fromkeys(PARTITIONS))}
            return SimpleNamespace(topics=topics_by_name)

        def assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
            assert {partition.partition for partition in partitions} == set(PARTITIONS)
            (self.topic,) = {partition.topic for partition in partitions}
            first, *others = PARTITIONS
            ends = [Message(None, number) for number in others]
            records = [Message(record, first) for record in topics[self.topic]]
            self.left = [*ends, *records, Message(None, first)]

        def poll(self, _: float) -> Message:
            if not self.left:
                raise Enough
            return self.left.pop(0)

        def close(self) -> None:
            assert self.topic != follows

    return Consumer


def test_the_consumer_reads_what_a_sink_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = RecordEncoder(Topic("revenue"), COUNTRIES, ["country"], KERNEL)
    rows = [
        {"c0": "NL", "c1": Decimal("20.00"), "time": 1, "diff": 1},
        {"c0": "NL", "c1": Decimal("20.00"), "time": 5, "diff": -1},
    ]
    updates = pa.Table.from_pylist(rows, arrow_schema(COUNTRIES.types))
    interval = recorder.decide(NO_KEYS, updates, ERRORS.empty_table(), Timestamp(9))
    schema = OutRecord(
        Topic("sw.schemas"), recorder.rows.fingerprint, recorder.rows.text.encode()
    )
    topics = {"revenue": [*interval.records], "sw.schemas": [schema]}
    monkeypatch.setattr(confluent_kafka, "Consumer", consumer_of(topics, "revenue"))
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with pytest.raises(Enough):
        exec(compile(example, "OUTPUT.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "1 ('NL',) {'country': 'NL', 'revenue': Decimal('20.00')}",
        "5 ('NL',) None",
    ]
