"""A replica's holds: what one import is in trouble with is no concern of the others."""

from pathlib import Path

import pytest

from streams.errors import Corrupt, SlackwaterError
from streams.ids import CollectionId, Topic
from streams.kafka.log import Truncated
from streams.replica.driver.holds import HoldMover
from tests.support.sparkless import Replica, World


@pytest.mark.parametrize(
    "failure", [Truncated(Topic("sw.gone.log"), 7, "it is gone"), Corrupt("log sw.gone.log@7")]
)
def test_a_group_that_failed_stops_the_holds_of_nothing_else(
    tmp_path: Path, failure: SlackwaterError
) -> None:
    world = World()
    for name in ("gone", "kept"):
        world.source(name, [("id", "BIGINT")], world.raw(f"raw.{name}"))
    for of in ("gone", "kept"):
        world.view(f"of_{of}", f"SELECT id FROM {of}")
    replica = Replica(world, "a", tmp_path)
    replica.follow()
    shards = replica.scheduler.shards
    shards.open("gone", "kept", "of_gone", "of_kept")
    shards.following.fail(shards.names("gone").log, failure)

    HoldMover(replica.scheduler).move()

    flow, retained = replica.scheduler.flows[CollectionId("of_kept")], CollectionId("kept")
    assert shards.state(retained).capabilities[flow.holds[retained]].expires_ms is not None
