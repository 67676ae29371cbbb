"""A view with an error says so to whoever reads it, others are read as ever, and it heals."""

import pytest

from streams.errors import InvalidStatement
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_bad_row_is_an_error_of_the_views_that_need_it_until_it_goes(
    environment, broker
) -> None:
    topic, feed = raw_topic(broker.bootstrap), Feed(broker.bootstrap)
    feed.put(topic, [({"id": i}, {"n": i + 1}) for i in range(4)])
    environment.sql(
        f"CREATE SOURCE parts FROM KAFKA (TOPIC '{topic}') (id BIGINT, n BIGINT)"
        " FORMAT JSON ENVELOPE UPSERT (KEY (id))"
    )
    environment.sql("CREATE MATERIALIZED VIEW shares AS SELECT id, 12 // n AS share FROM parts")
    environment.sql("CREATE MATERIALIZED VIEW shared AS SELECT sum(share) AS n FROM shares")
    environment.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM parts")

    def answers(view: str) -> object:
        return environment.sql(f"SELECT n FROM {view}")[0].rows

    def fails(view: str) -> bool:
        try:
            answers(view)
        except InvalidStatement as error:
            return "12 // n" in f"{error.message} {error.detail}"
        return False

    eventually(lambda: answers("shared") == ((12 + 6 + 4 + 3,),))
    feed.put(topic, [({"id": 2}, {"n": 0}), ({"id": 9}, {"n": 12})])
    eventually(lambda: fails("shared"))
    eventually(lambda: answers("counted") == ((5,),))
    with pytest.raises(InvalidStatement, match="shares"):
        environment.sql("SELECT id FROM shares")
    feed.put(topic, [({"id": 2}, {"n": 6})])
    eventually(lambda: answers("shared") == ((12 + 6 + 2 + 3 + 1,),))
    feed.put(topic, [({"id": 3}, {"n": 0})])
    eventually(lambda: fails("shared"))
    feed.put(topic, [({"id": 3}, None)])
    eventually(lambda: answers("shared") == ((12 + 6 + 2 + 1,),))
    for view in ("counted", "shared", "shares"):
        environment.sql(f"DROP MATERIALIZED VIEW {view}")
    environment.sql("DROP SOURCE parts")
