"""What queries may know of an object's rows."""

from dataclasses import replace

from streams.adapter.provisioning import relations
from streams.plan.compile import explain
from tests.unit.adapter.items import source

QUERY = "SELECT DISTINCT id FROM bids"


def test_the_key_of_an_upsert_reaches_the_plan() -> None:
    plan = explain(QUERY, relations([source(1, "bids")], {}))
    assert "key id" in plan
    assert "Distinct" not in plan
    assert "append-only" not in plan


def test_without_an_envelope_rows_stay_and_may_come_twice() -> None:
    upserted = source(1, "bids")
    assert upserted.source is not None
    item = replace(upserted, source=replace(upserted.source, envelope="none", keys=()))
    plan = explain(QUERY, relations([item], {}))
    assert "append-only" in plan
    assert "Distinct" in plan
