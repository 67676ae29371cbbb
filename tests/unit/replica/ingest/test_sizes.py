"""A micro-batch of large messages takes few of them: their size is known from samples."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.reclocking import Ends
from streams.ids import Offset, Topic
from streams.kafka.client.raw import RAW_SCHEMA
from streams.kafka.log import Truncated
from streams.replica.config import Budgets
from streams.replica.ingest.ranges import length, slices
from streams.replica.ingest.sizes import EVERY, EVERY_S, FIRST, MeanSize, places, sampled
from streams.replica.tasks.descriptor import RawLoad
from tests.support.market import Market, settle
from tests.support.sparkless import Replica

TOPIC = Topic("events")


class Records:
    """A topic whose messages have these sizes in each partition, from offset 0 on."""

    def __init__(self, *sizes: list[int], deleted: int = 0) -> None:
        self.sizes, self.deleted = sizes, deleted
        self.fetched: list[tuple[int, int]] = []
        self.reads_ahead = False

    @property
    def ends(self) -> dict[int, Ends]:
        return {number: Ends(0, len(sizes)) for number, sizes in enumerate(self.sizes)}

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        self.reads_ahead = True
        if lo < self.deleted:
            raise Truncated(topic, lo, "it is deleted")
        offsets = list(range(lo, hi))[:limit]
        self.fetched += [(partition, offset) for offset in offsets]
        values = [bytes(self.sizes[partition][offset]) for offset in offsets]
        columns = [[None] * len(offsets), values, [partition] * len(offsets), offsets]
        return pa.table(columns, schema=RAW_SCHEMA)

    def rest(self) -> None:
        self.reads_ahead = False


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4))
def test_places_lie_in_the_slices_one_after_another(bounds: list[tuple[int, int]]) -> None:
    parts = slices({number: (lo, lo + size) for number, (lo, size) in enumerate(bounds)})
    chosen = places(parts)
    assert len(set(chosen)) == len(chosen) == min(8, length(parts))
    assert all(part.lo <= offset < part.hi for part, offset in chosen)
    assert [(part.partition, offset) for part, offset in chosen] == sorted(
        (part.partition, offset) for part, offset in chosen
    )


@pytest.mark.parametrize("deleted", [0, 40])
def test_whoever_has_sampled_reads_nothing_ahead(deleted: int) -> None:
    """The consumer would ask for more a hundred times a second, until the next sample."""
    records = Records([100] * 40, deleted=deleted)
    assert (sampled(records, TOPIC, MeanSize(), records.ends, 0.0).mean == 0) == (deleted > 0)
    assert not records.reads_ahead


def test_the_mean_is_that_of_the_messages_of_all_partitions() -> None:
    records = Records([100] * 40, [300] * 40)
    sized = sampled(records, TOPIC, MeanSize(), records.ends, 1.0)
    assert sized.mean == 200
    assert {partition for partition, _ in records.fetched} == {0, 1}
    assert len(records.fetched) <= 32


def test_a_mean_rises_at_once_and_falls_by_half() -> None:
    records = Records([100] * 100 + [1_000] * 100 + [200] * 100)
    sized = sampled(records, TOPIC, MeanSize(), {0: Ends(0, 100)}, 1.0)
    assert sized.mean == 100
    sized = sampled(records, TOPIC, sized, {0: Ends(0, 200)}, 2.0)
    assert sized.mean == 1_000
    sized = sampled(records, TOPIC, sized, {0: Ends(0, 300)}, 3.0)
    assert sized.mean == 600


def test_what_cannot_be_read_leaves_the_mean_as_it_was() -> None:
    before = MeanSize(70, {0: 0})
    records = Records([100] * 100, deleted=1_000)
    assert sampled(records, TOPIC, before, records.ends, 1.0).mean == 70


def test_a_sample_is_taken_of_the_first_messages_and_then_rarely() -> None:
    assert not MeanSize().is_due({0: Ends(0, FIRST - 1)}, 0.0)
    assert MeanSize().is_due({0: Ends(0, FIRST)}, 0.0)
    sized = MeanSize(100, {0: 500}, at_s=0.0)
    many = {0: Ends(0, 500 + EVERY)}
    assert sized.is_due(many, EVERY_S)
    assert not sized.is_due(many, EVERY_S - 1)
    assert not sized.is_due({0: Ends(0, 499 + EVERY)}, EVERY_S)
    assert sized.is_due({0: Ends(0, 500), 1: Ends(0, EVERY)}, EVERY_S), "a new partition"


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Market:
    return Market(monkeypatch, 5)


def taken(replica: Replica) -> Iterator[int]:
    """How many messages each micro-batch takes of a topic until none are left."""
    for lane in ("ingest", "hydrate", "ingest"):
        while replica.begin(lane):
            batch = replica.scheduler.current(lane)
            assert batch is not None
            loads = [load for unit in batch.units for load in unit.loads]
            yield from (length(load.slices) for load in loads if isinstance(load, RawLoad))
            replica.commit(lane)
            replica.sync()


@pytest.mark.parametrize(("message_bytes", "most"), [(1_000, 7), (10, 700), (10_000, 2)])
def test_a_micro_batch_takes_what_its_bytes_allow(
    market: Market, tmp_path: Path, message_bytes: int, most: int
) -> None:
    budgets = Budgets(message_bytes=7_000)
    replica = Replica(
        market.world, "a", tmp_path / "a", budgets=budgets, message_bytes=message_bytes
    )
    replica.follow()
    replica.start()
    market.produce(40)
    numbers = list(taken(replica))
    assert sum(numbers) >= 40
    assert max(numbers) <= most, "of several partitions one message each is the least"
    market.produce(40)
    settle(market, replica)
    market.check_people()
