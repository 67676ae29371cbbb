"""Rule 27: a replica whose clock is wrong stamps nothing by it, and says that it is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streams.compute.protocol import Response, Status
from streams.ids import CollectionId
from streams.replica.driver import skew_measurement
from streams.replica.driver.clock_skew import FORGET_MS
from streams.replica.driver.skew_measurement import SkewMonitor
from streams.replica.driver.status_reports import StatusReporter
from streams.storage.log.outcomes import Unavailable
from tests.support.market import Market, settle
from tests.support.sparkless import Replica

HOUR_MS = 3_600_000
ORDERS, PEOPLE = CollectionId("orders"), CollectionId("people")


class Told:
    """Keeps what is answered."""

    def __init__(self) -> None:
        self.responses: list[Response] = []

    def write(self, _: str, responses: Sequence[Response]) -> None:
        self.responses += responses

    def of(self, id_: CollectionId) -> list[Status]:
        return [
            response
            for response in self.responses
            if isinstance(response, Status) and response.id == id_
        ]


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Market:
    return Market(monkeypatch, 3)


def turn(market: Market, replica: Replica, seconds: int = 1) -> None:
    """Let time pass, and have the replica do what it can."""
    market.world.now += 1000 * seconds
    for _ in range(3):
        replica.start()
        replica.step("ingest")
        replica.idle()
    replica.sync()


def lag_ms(market: Market, name: str = "orders") -> int:
    """How far a source's upper is behind the moment after now."""
    market.world.shards.sync()
    return market.world.now + 1 - market.world.upper(name)


def records(replica: Replica) -> dict[CollectionId, int]:
    """How many records each log has."""
    replica.sync()
    groups = replica.scheduler.shards.group_state
    return {collection: groups(collection).upto + 1 for collection in (ORDERS, PEOPLE)}


def begin(market: Market, state: Path, ahead_ms: int = 0) -> Replica:
    replica = Replica(market.world, "a", state, ahead_ms=ahead_ms)
    replica.follow()
    return replica


def test_what_comes_while_the_clock_is_ahead_is_stamped_by_the_brokers(
    market: Market, tmp_path: Path
) -> None:
    replica = begin(market, tmp_path, HOUR_MS)
    for _ in range(40):
        market.produce(3)
        turn(market, replica)
        assert 0 <= lag_ms(market) <= 1000
    market.produce(1)
    replica.ahead_ms = 0
    settle(market, replica)
    assert market.check_people() > 30


def test_sources_that_move_together_go_by_one_clock(market: Market, tmp_path: Path) -> None:
    replica = begin(market, tmp_path, 4_000)
    turn(market, replica)
    market.world.now += 100
    market.world.send(market.orders, 0, None, b'{"id": -1}')
    assert replica.step("ingest")
    assert (lag_ms(market, "orders"), lag_ms(market, "people")) == (0, 0)


def test_a_clock_that_is_behind_does_not_take_time_back(market: Market, tmp_path: Path) -> None:
    replica = begin(market, tmp_path, -HOUR_MS)
    uppers = []
    for _ in range(3):
        market.produce(3)
        turn(market, replica)
        uppers.append(market.world.upper("orders"))
        assert lag_ms(market) >= 0
    assert uppers == sorted(set(uppers)), "what comes is taken"


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, -6_000, 6_000, HOUR_MS])
def test_an_idle_source_stands_still_while_the_clock_is_wrong(
    market: Market, tmp_path: Path, ahead_ms: int
) -> None:
    replica = begin(market, tmp_path)
    turn(market, replica)
    replica.ahead_ms = ahead_ms
    turn(market, replica, seconds=FORGET_MS // 1000)
    upper = market.world.upper("orders")
    for _ in range(100):
        turn(market, replica)
        assert market.world.upper("orders") == upper
    replica.ahead_ms = 0
    turn(market, replica, seconds=FORGET_MS // 1000)
    assert lag_ms(market) == 0, "it ticks again"


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_was_just_set_is_measured_first(
    market: Market, tmp_path: Path, jump_ms: int
) -> None:
    replica = begin(market, tmp_path)
    turn(market, replica)
    market.produce(3)
    replica.ahead_ms = jump_ms
    assert not replica.begin("ingest")
    turn(market, replica)
    assert lag_ms(market) >= 0


def test_before_it_was_measured_a_clock_stamps_nothing(market: Market, tmp_path: Path) -> None:
    replica = begin(market, tmp_path, HOUR_MS)
    replica.starter.start_all()
    assert not replica.begin("ingest")
    replica.idler.move()
    assert lag_ms(market) == 1, "its upper is where it was born"
    replica.measurer.measure()
    assert replica.begin("ingest")


def test_an_idle_source_with_a_right_clock_writes_ticks_alone(
    market: Market, tmp_path: Path
) -> None:
    replica = begin(market, tmp_path)
    turn(market, replica)
    before = records(replica)
    for _ in range(100):
        turn(market, replica, seconds=2)
    assert records(replica) == {collection: count + 100 for collection, count in before.items()}


def test_with_a_wrong_clock_it_writes_a_record_each_half_minute(
    market: Market, tmp_path: Path
) -> None:
    replica = begin(market, tmp_path, HOUR_MS)
    turn(market, replica)
    before = records(replica)
    for _ in range(300):
        turn(market, replica)
    assert records(replica) == {collection: count + 10 for collection, count in before.items()}


@pytest.mark.parametrize("one", [ORDERS, PEOPLE])
def test_a_log_that_cannot_be_written_tells_nothing_and_keeps_nobody_waiting(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: CollectionId
) -> None:
    replica = begin(market, tmp_path)
    replica.starter.start_all()
    market.world.now += HOUR_MS  # the newest record that was read is an hour old
    shards = replica.scheduler.shards
    submit = shards.submit

    def lost(events):
        """As when the broker of one log, or of both, is away."""
        submitted = submit([event for event in events if event[0] not in away])
        return [Unavailable("no leader") if e[0] in away else submitted.pop(0) for e in events]

    monkeypatch.setattr(shards, "submit", lost)
    away = {ORDERS, PEOPLE}
    replica.measurer.measure()
    assert replica.scheduler.skew.known(replica.now_ms()) is None
    away.remove(one)
    replica.measurer.measure()
    assert replica.scheduler.skew.known(replica.now_ms()) == 0


def test_without_a_source_that_waits_nothing_is_written(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = begin(market, tmp_path)
    monkeypatch.setattr(skew_measurement, "submit", lambda *_: pytest.fail("nobody asked"))
    SkewMonitor(replica.scheduler).measure()


def test_a_wrong_clock_is_told(
    market: Market, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replica, responses = begin(market, tmp_path, HOUR_MS), Told()
    answers = StatusReporter(responses, nonce="n")  # type: ignore[arg-type]
    for _ in range(40):
        turn(market, replica)
        answers.tell(replica.scheduler, ())
    (response,) = responses.of(ORDERS)
    assert response.state == "stalled"
    assert "3,600 s ahead of the broker's" in response.message
    assert len([record for record in caplog.records if "clock differs" in record.message]) == 1
    replica.ahead_ms = 0
    turn(market, replica)
    answers.tell(replica.scheduler, ())
    assert [(status.state, status.message) for status in responses.of(ORDERS)[1:]] == [
        ("running", "")
    ]
