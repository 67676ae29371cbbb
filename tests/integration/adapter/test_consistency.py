"""The bank's books are right at every moment, though one of its two topics lags."""

import pytest

from streams.bench.consistency.bank import CHECKS, IN_TIME, OPENING, VIEWS, sources
from streams.bench.consistency.command import working_bank
from streams.bench.consistency.observers import Watch, observe
from streams.ids import Topic
from tests.integration.adapter.support import raw_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def is_enough(watch: Watch) -> bool:
    """Each check was made, however busy the machine is."""
    return all(watch.subscribed[name].observations >= 2 for name in (*CHECKS, IN_TIME)) and all(
        watch.selected[name].observations >= 1 for name in CHECKS
    )


@pytest.mark.parametrize("by_event_time", [False, True], ids=["wall", "event"])
@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.long)])
def test_no_observation_of_the_bank_is_wrong(
    environment, broker, seconds: int, *, by_event_time: bool
) -> None:
    topics = raw_topic(broker.bootstrap), raw_topic(broker.bootstrap)
    for statement in sources(*topics, by_event_time=by_event_time):
        environment.sql(statement)
    bank = working_bank(environment.kafka, Topic(topics[0]), Topic(topics[1]), rate=100)
    bank.by_event_time = by_event_time
    messages: list[str] = []
    watch = observe(
        environment.client,
        bank,
        seconds,
        lambda doing, _: messages.append(doing),
        is_enough=is_enough,
    )
    seen = [*watch.subscribed.items(), *watch.selected.items()]
    assert [answer for answer in seen if answer[1].wrong] == []
    assert is_enough(watch)
    assert bank.transfers.sent > OPENING
    assert list(dict.fromkeys(messages)) == [
        "the views are made",
        "100 transfers a second",
        "the last ones are awaited",
    ]
    assert len(bank.transfers.unconfirmed) > 100, "one topic was to lag"
    for name in reversed(list(VIEWS)):
        environment.sql(f"DROP MATERIALIZED VIEW {name}")
    environment.sql("DROP SOURCE transactions; DROP SOURCE confirmations")
