"""A Python function on a whole environment: shipped to the workers, kept while it is needed."""

from collections.abc import Iterator

import pytest

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

SHARE = """CREATE FUNCTION share(n BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$
import pyarrow.compute as pc

def share(n):
    return pc.divide(12, n)
$$"""


@through_kills
def test_a_view_calls_a_function_through_errors_and_a_killed_replica(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    topic, feed = raw_topic(broker.bootstrap), Feed(broker.bootstrap)
    feed.put(topic, [({"id": i}, {"n": i + 1}) for i in range(3)])
    environment.sql(
        f"CREATE SOURCE portions FROM KAFKA (TOPIC '{topic}') (id BIGINT, n BIGINT)"
        " FORMAT JSON ENVELOPE UPSERT (KEY (id))"
    )
    environment.sql(SHARE)
    environment.sql("CREATE MATERIALIZED VIEW given AS SELECT id, share(n) AS s FROM portions")
    environment.sql(
        "CREATE MATERIALIZED VIEW by_share AS"
        " SELECT share(n) AS s, count(*) AS c FROM portions GROUP BY 1"
    )

    def holds(view: str, *rows: tuple[object, ...]) -> None:
        eventually(lambda: environment.sql(f"SELECT * FROM {view} ORDER BY 1")[0].rows == rows)

    def fails(view: str) -> bool:
        try:
            environment.sql(f"SELECT * FROM {view}")
        except InvalidStatement as error:
            return "share(" in f"{error.message} {error.detail}"
        return False

    holds("given", (0, 12), (1, 6), (2, 4))
    feed.put(topic, [({"id": 3}, {"n": 5}), ({"id": 4}, {"n": None})])
    holds("by_share", (2, 1), (4, 1), (6, 1), (12, 1), (None, 1))
    feed.put(topic, [({"id": 1}, {"n": 0}), ({"id": 5}, {"n": 6})])
    eventually(lambda: fails("given"))
    eventually(lambda: fails("by_share"))

    yield "replica"
    feed.put(topic, [({"id": 1}, {"n": 4}), ({"id": 2}, None)])
    yield "others"
    holds("given", (0, 12), (1, 3), (3, 2), (4, None), (5, 2))
    holds("by_share", (2, 2), (3, 1), (12, 1), (None, 1))

    shown = environment.sql("SHOW FUNCTIONS")[0].rows
    assert shown == (("share", "n BIGINT", "BIGINT", "given, by_share"),)
    with pytest.raises(InvalidStatement, match="function share cannot be dropped"):
        environment.sql("DROP FUNCTION share")
    environment.sql("DROP MATERIALIZED VIEW by_share; DROP MATERIALIZED VIEW given")
    environment.sql("DROP FUNCTION share; DROP SOURCE portions")
    assert environment.sql("SHOW FUNCTIONS")[0].rows == ()
    with pytest.raises(InvalidStatement, match="share"):
        environment.sql("SELECT share(3)")
