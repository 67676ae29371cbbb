"""A table of specifications that a client has created: none of it is carried out.

Environments may have one from before the names were reserved.
"""

import threading
import time
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from connectors.runtime.recovery import DESCRIPTION, RecoveryLog, StoredCheckpoints
from connectors.runtime.task import Materialization
from connectors.service.service import Service
from connectors.service.supervisor import TaskEndpoint
from schemas.materializations import KIND, SPEC_COLUMNS, SPECS, STATE_COLUMNS, STATES, Spec
from streams.ids import MINIMUM_TIME, CapabilityId, CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.storage.small_table import NotOurs, SmallTable
from streams.trace.kernel.kernel import arrow_schema
from tests.support.collections import Collections

STRANGER = CapabilityId("a1")
TASK = {
    "task": "shop",
    "connector": "./program",
    "config": {"command": ["program"]},
    "bindings": [{"collection": "u1", "resource": {"table": "t1"}}],
}


def write_as_a_client(collections: Collections, row: tuple[str, ...]) -> None:
    """Create the table of specifications with a write capability of one's own, and write it."""
    client, columns = collections.client(), Description(SPEC_COLUMNS, kind=KIND)
    client.create(SPECS, SPECS, columns, MINIMUM_TIME, write=STRANGER)
    updates = pa.table(
        [*([text] for text in row), [0], [1]], schema=arrow_schema(columns.types)
    )
    part = Part(
        collection=SPECS,
        capability=STRANGER,
        lower=frontier(MINIMUM_TIME),
        upper=frontier(Timestamp(1)),
        chunks=client.write(SPECS, updates),
    )
    (outcome,) = client.submit([(SPECS, Append((part,)))])
    assert isinstance(outcome, Appended)


def test_a_specification_that_a_client_wrote_is_not_carried_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collections, stopping = Collections(), threading.Event()
    opened = list[Materialization]()

    def open_(task: Materialization) -> AbstractContextManager[TaskEndpoint]:
        opened.append(task)
        raise NotImplementedError

    write_as_a_client(collections, Spec(id="m1", wanted="run", task=TASK).row())
    now_ms = lambda: int(time.monotonic() * 1000)  # noqa: E731
    service = Service(collections.client(), open_, owner="here", now_ms=now_ms)
    thread = threading.Thread(target=service.run, args=(stopping,), daemon=True)
    try:
        thread.start()
        deadline = time.monotonic() + 60
        while "retrying" not in caplog.text:
            assert time.monotonic() < deadline, "the table was not looked at"
            time.sleep(0.02)
        assert "another client has created it" in str(caplog.records[-1].__dict__["cause"])
        assert not opened
        states = SmallTable(collections.client(), STATES, Description(STATE_COLUMNS, kind=KIND))
        assert not states.find() or not states.rows()
    finally:
        stopping.set()
        thread.join()
        collections.close()


def test_a_recovery_log_of_a_client_is_not_read_until_it_is_gone() -> None:
    collections, log = Collections(), CollectionId("materialize.orders")
    try:
        stranger = collections.client()
        stranger.create(log, log, DESCRIPTION, MINIMUM_TIME, write=STRANGER)
        with pytest.raises(NotOurs, match=r"materialize\.orders: expected the system's table"):
            RecoveryLog(collections.client(), "orders").open()
        stranger.drop(log)
        stranger.delete(log)
        checkpoints = StoredCheckpoints(b"1", b"2")
        RecoveryLog(collections.client(), "orders").write(checkpoints)
        assert RecoveryLog(collections.client(), "orders").open() == checkpoints
    finally:
        collections.close()
