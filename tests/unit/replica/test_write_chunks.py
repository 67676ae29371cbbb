"""What a step writes of its output: all that the shard does not have, and no more."""

from pathlib import Path

import pytest

from streams.ids import CollectionId
from streams.kafka.log import Range
from streams.storage.log.column_stats import LEAST_ROWS
from tests.support.market import Market
from tests.support.sparkless import Replica

VIEW = CollectionId("everything")


def rows_written(replica: Replica) -> int:
    """The rows of the chunks of the micro-batch that was begun."""
    results = [result[VIEW] for result in replica.results.values() if VIEW in result]
    return sum(chunk.rows for result in results for chunk in result.chunks)


def test_a_step_behind_the_shard_writes_only_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 5)
    market.views()
    fast, slow = (Replica(market.world, name, tmp_path / name) for name in ("fast", "slow"))
    for replica in (fast, slow):
        replica.settle()
    for _ in range(4):
        market.world.now += 1000
        market.produce(5)
        fast.settle()
    slow.sync()
    begun = [slow.begin(lane) for lane in ("ingest", "steady")]
    assert any(begun)
    assert rows_written(slow) == 0, "everything it makes is there"
    market.world.now += 1000
    market.produce(5)
    for lane in ("ingest", "steady"):
        slow.commit(lane)
    slow.settle()
    market.check()


def test_large_chunks_go_into_the_log_with_their_ranges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 6)
    replica = Replica(market.world, "one", tmp_path)
    replica.settle()
    market.produce(700)
    market.world.now += 1000
    replica.settle()
    batches = market.world.shards.state(CollectionId("orders")).batches
    large = [ref for batch in batches for ref in batch.chunks if ref.rows >= LEAST_ROWS]
    assert large
    for ref in large:
        ids, customers, _ = ref.ranges
        assert ids is not None
        assert int(ids.high) - int(ids.low) >= ref.rows - 1
        assert customers == Range(0, 5)
