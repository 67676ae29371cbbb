"""Sources that begin elsewhere than at the first message of their topic, on Spark."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

numbers = itertools.count()


def ids(environment: Environment, name: str) -> list[object]:
    return [row[0] for row in environment.sql(f"SELECT id FROM {name} ORDER BY id")[0].rows]


@through_kills
def test_a_source_begins_where_its_statement_says(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    topic, feed = raw_topic(broker.bootstrap, 1), Feed(broker.bootstrap)
    feed.send(topic, [{"id": number} for number in range(10)])
    between = datetime.now(UTC).isoformat()
    feed.send(topic, [{"id": number} for number in range(10, 15)])
    clauses = {
        "": 0,
        "START FROM EARLIEST": 0,
        "START FROM OFFSETS (0 => 3)": 3,
        f"START FROM TIMESTAMP '{between}'": 10,
        "START FROM LATEST": 15,
    }
    firsts = {}
    for clause, first in clauses.items():
        name = f"began{next(numbers)}"
        firsts[name] = first
        environment.sql(
            f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (id BIGINT)"
            f" FORMAT JSON {clause}"
        )
    for name, first in firsts.items():
        assert ids(environment, name) == list(range(first, 15))
    yield "replica"
    feed.send(topic, [{"id": number} for number in range(15, 20)])
    yield "others"
    eventually(
        lambda: all(
            ids(environment, name) == list(range(first, 20)) for name, first in firsts.items()
        )
    )
