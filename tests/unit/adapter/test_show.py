from streams.adapter.catalog import Catalog
from streams.adapter.cluster_status import Observed
from streams.adapter.show import shown
from streams.compute.protocol import ResponseMessage, Status
from streams.compute.replica_responses import SILENCE_S, InstanceStatus
from streams.storage.log.persistent_map import Map
from streams.storage.policy import LagBehindUpper
from tests.unit.adapter.items import source

ORDERS = source(1, "orders")


def status(observed: InstanceStatus) -> str:
    catalog = Catalog(items=Map({ORDERS.id: ORDERS}))
    (row,) = shown(catalog, {}, Observed({"default": observed}), {}, LagBehindUpper(1000))
    return row.status


def test_what_a_dead_replica_said_last_is_not_its_condition() -> None:
    begun = InstanceStatus().begin(100.0)
    assert status(begun) == "starting"
    response = ResponseMessage("n", "r1-a", 0, Status(ORDERS.id, "running"))
    running = begun.step(response, 105.0)
    assert status(running) == "running"
    assert status(running.at(105.0 + SILENCE_S)) == "no replica"
    assert status(running.begin(200.0)) == "running", "replicas have time to answer again"
    assert status(running.begin(200.0).at(200.0 + SILENCE_S)) == "no replica"
