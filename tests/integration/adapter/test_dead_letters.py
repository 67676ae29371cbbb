"""Bad messages of a source are rows of its dead letters, through kills, on a real broker."""

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic, read_output
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

numbers = itertools.count()


def sender(broker: EmbeddedBroker, topic: str) -> Callable[..., None]:
    """A function that sends values to a topic, in order."""
    feed = Feed(broker.bootstrap)
    return lambda *values: feed.put(topic, [({}, value) for value in values])


@through_kills
def test_good_rows_are_read_and_each_bad_message_is_a_dead_letter_once(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    """A snapshot with bad messages, then changes while replica and coordinator are killed."""
    feed, number = Feed(broker.bootstrap), next(numbers)
    topic = raw_topic(broker.bootstrap, 1)
    source, view = f"paid{number}", f"total{number}"
    out = f"dlq-{topic}"

    def send(start: int, count: int) -> None:
        good = [json.dumps({"id": n}).encode() for n in range(start, start + count)]
        feed.put(topic, [({}, value) for value in (b"{", *good)])

    send(0, 10)
    environment.sql(
        f"CREATE SOURCE {source} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON;"
        f"CREATE MATERIALIZED VIEW {view} AS SELECT"
        f" (SELECT count(*) FROM {source}) AS good, count(*) AS bad FROM {source}.errors;"
        f"CREATE SINK letters{number} FROM {source}.errors INTO KAFKA (TOPIC '{out}')"
        ' KEY (partition, "offset")'
    )
    query = f"SELECT good, bad FROM {view}"
    eventually(lambda: environment.sql(query)[0].rows == ((10, 1),))
    yield "replica"
    send(10, 10)
    yield "coordinator"
    send(20, 10)
    yield "others"
    eventually(lambda: environment.sql(query)[0].rows == ((30, 3),))
    (letters,) = environment.sql(
        f'SELECT "offset", value, reason FROM {source}.errors ORDER BY "offset"'
    )
    assert [row[0] for row in letters.rows] == [0, 11, 22]
    assert {row[2] for row in letters.rows} == {
        "expected JSON, actual a text that ends too early"
    }
    namespace = environment.settings.namespace
    eventually(lambda: len(read_output(broker.bootstrap, namespace, out)) == 3)
    shown = environment.sql("SHOW SOURCES")[0].dicts()
    (detail,) = (row["detail"] for row in shown if row["name"] == source)
    assert detail == f"3 dead letters in {source}.errors"


@through_kills
def test_a_skipped_message_counts_once_through_kills(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    feed, number = Feed(broker.bootstrap), next(numbers)
    topic, source = raw_topic(broker.bootstrap, 1), f"lenient{number}"

    def send(start: int) -> None:
        good = [json.dumps({"id": n}).encode() for n in range(start, start + 10)]
        feed.put(topic, [({}, value) for value in (b"{", *good, b"[]")])

    send(0)
    environment.sql(
        f"CREATE SOURCE {source} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
        " ON ERROR SKIP"
    )
    query = f"SELECT count(*) FROM {source}"
    eventually(lambda: environment.sql(query)[0].rows == ((10,),))
    yield "replica"
    send(10)
    yield "coordinator"
    send(20)
    yield "others"
    eventually(lambda: environment.sql(query)[0].rows == ((30,),))
    send(30)
    eventually(lambda: environment.sql(query)[0].rows == ((40,),))
    shown = environment.sql("SHOW SOURCES")[0].dicts()
    assert [row["skipped"] for row in shown if row["name"] == source] == [8]


def test_a_source_that_stops_goes_on_behind_the_message(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    feed, number = Feed(broker.bootstrap), next(numbers)
    topic = raw_topic(broker.bootstrap, 1)
    source = f"strict{number}"
    feed.put(topic, [({}, value) for value in (b'{"id":1}', b'{"id":2}', b"[]", b'{"id":4}')])
    environment.sql(
        f"CREATE SOURCE {source} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
        " ON ERROR FAIL"
    )

    def state() -> tuple[object, str]:
        shown = environment.sql("SHOW SOURCES")[0].dicts()
        (row,) = (row for row in shown if row["name"] == source)
        return row["status"], str(row["detail"])

    place = f"cannot decode message: topic {topic}, partition 0, offset 2: "
    eventually(lambda: state()[0] == "stalled" and state()[1].startswith(place))
    query = f"SELECT id FROM {source} ORDER BY id"
    eventually(lambda: environment.sql(query)[0].rows == ((1,), (2,)))

    def resumes() -> bool:
        """It runs for a moment, until it comes to the message again."""
        try:
            environment.sql(f"ALTER SOURCE {source} RESUME FROM OFFSETS (0 => 3)")
        except InvalidStatement:
            return False
        return True

    eventually(resumes)
    eventually(lambda: environment.sql(query)[0].rows == ((1,), (2,), (4,)))
    eventually(lambda: state()[0] == "running")


@through_kills
def test_a_source_stops_at_its_limit_and_goes_on_when_that_is_changed(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    topic, source = raw_topic(broker.bootstrap, 1), f"limited{next(numbers)}"
    send = sender(broker, topic)

    def row() -> dict[str, object]:
        shown = environment.sql("SHOW SOURCES")[0].dicts()
        (source_row,) = (row for row in shown if row["name"] == source)
        return source_row

    send(b'{"id":1}', b"{", b"[]")
    environment.sql(
        f"CREATE SOURCE {source} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
        " WITH (ERROR LIMIT 2)"
    )
    query = f"SELECT (SELECT count(*) FROM {source}), count(*) FROM {source}.errors"
    eventually(lambda: environment.sql(query)[0].rows == ((1, 2),))
    send(b'{"id":2}', b"no")
    eventually(lambda: "too many messages cannot be decoded" in str(row()["detail"]))
    yield "replica"
    assert environment.sql(query)[0].rows == ((1, 2),)
    environment.sql(f"ALTER SOURCE {source} SET (ON ERROR SKIP, ERROR LIMIT NONE)")
    yield "coordinator"
    send(b'{"id":3}', b"again")
    yield "others"
    eventually(lambda: environment.sql(query)[0].rows == ((3, 2),))
    assert (row()["status"], row()["skipped"]) == ("running", 2)


@through_kills
def test_dead_letters_by_event_time_wait_for_no_row(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    topic, source = raw_topic(broker.bootstrap, 1), f"timed{next(numbers)}"
    send = sender(broker, topic)

    def letters() -> list[object]:
        (result,) = environment.sql(f'SELECT "offset" FROM {source}.errors ORDER BY 1')
        return [offset for (offset,) in result.rows]

    send(b"{", b"[]")
    environment.sql(
        f"CREATE SOURCE {source} FROM KAFKA (TOPIC '{topic}') (id BIGINT, ts TIMESTAMP,"
        " WATERMARK FOR ts AS ts - INTERVAL '1 second') FORMAT JSON"
    )
    eventually(lambda: letters() == [0, 1])
    yield "replica"
    send(*(f'{{"id":{n},"ts":"2024-01-01 00:00:{n:02}"}}'.encode() for n in range(5)), b"no")
    yield "others"
    eventually(lambda: letters() == [0, 1, 7])
    query = f"SELECT id FROM {source} ORDER BY id"
    eventually(lambda: environment.sql(query)[0].rows == ((0,), (1,), (2,)))
    yield "replica"
    send(b'{"id":9,"ts":"2024-01-01 00:01:00"}', b"more")
    yield "others"
    eventually(lambda: letters() == [0, 1, 7, 9])
    eventually(lambda: environment.sql(query)[0].rows == ((0,), (1,), (2,), (3,), (4,)))
    ((oldest,),) = environment.sql(f"SELECT year(min(time)) FROM {source}.errors")[0].rows
    assert oldest != 1970, "the time of the message, not an upper"
