"""What authors of connectors are given: a checkpoint table, a transactor in memory."""

import base64
import json
from collections.abc import Sequence

import pytest

from connectors import sdk
from connectors.protocol.messages import Tuples
from connectors.protocol.spec_builder import Bind, Collection, FieldSpec, materialization
from connectors.protocol.violations import Violation
from connectors.testing.harness import ACCOUNTS, checkpoint
from schemas.flow_pb2 import MaterializationSpec

TASK = materialization("shop", {}, [Bind(collection=ACCOUNTS, resource={}, path=["a"])])
HALVES = ((0, 0x7FFFFFFF), (0x80000000, 0xFFFFFFFF))


def applied(version: str = "1") -> sdk.CheckpointTable:
    table = sdk.CheckpointTable()
    table.apply(sdk.ApplyRequest(materialization=TASK, version=version))
    return table


def opening(
    begin: int = 0, end: int = 0xFFFFFFFF, version: str = "1", spec: MaterializationSpec = TASK
) -> sdk.Open:
    extensions = sdk.Extensions(subranges=True)
    return sdk.Open(
        materialization=spec,
        version=version,
        key_begin=begin,
        key_end=end,
        extensions=extensions,
    )


def test_a_task_is_recorded_once() -> None:
    table, request = applied(), sdk.ApplyRequest(materialization=TASK, version="2")
    table.commit(table.open(opening()), checkpoint(5))
    assert table.apply(request).action_description == "record task shop, version 2"
    assert not table.apply(request).action_description
    assert table.open(opening(version="2")).checkpoint == checkpoint(5)


def test_a_session_of_another_version_is_refused() -> None:
    table = applied()
    with pytest.raises(Violation, match="expected version 1, which was applied, actual 2"):
        table.open(opening(version="2"))
    with pytest.raises(Violation, match="was not applied"):
        sdk.CheckpointTable().open(opening())


def test_a_newer_session_fences_and_goes_on_from_the_checkpoint() -> None:
    table = applied()
    older = table.open(opening())
    table.commit(older, checkpoint(5))
    newer = table.open(opening())
    assert newer.checkpoint == checkpoint(5)
    with pytest.raises(sdk.Fenced):
        table.commit(older, checkpoint(6))
    table.commit(newer, checkpoint(7))
    assert table.open(opening()).checkpoint == checkpoint(7)


def test_a_session_of_a_table_that_was_lost_never_commits_into_its_successor() -> None:
    lost, table = applied(), applied()
    older, newer = lost.open(opening()), table.open(opening())
    with pytest.raises(sdk.Fenced):
        table.commit(older, checkpoint(6))
    with pytest.raises(sdk.Fenced):
        sdk.CheckpointTable().commit(newer, checkpoint(6))


def test_parts_that_stand_apart_are_put_together() -> None:
    table = applied()
    left, right = (table.open(opening(*half)) for half in HALVES)
    table.commit(left, checkpoint(5))
    table.commit(right, checkpoint(6))
    whole = table.open(opening())
    assert [part.checkpoint for part in whole.subranges] == [checkpoint(5), checkpoint(6)]
    for older in (left, right):
        with pytest.raises(sdk.Fenced):
            table.commit(older, checkpoint(7))
    table.commit(whole, checkpoint(8))
    (row,) = table.tasks["shop"].ranges
    assert row.held.range == (0, 0xFFFFFFFF)
    assert table.open(opening()).checkpoint == checkpoint(8)


def test_a_session_inside_a_range_goes_on_from_it_and_fences_it() -> None:
    table = applied()
    whole = table.open(opening())
    table.commit(whole, checkpoint(5))
    left = table.open(opening(*HALVES[0]))
    assert left.checkpoint == checkpoint(5)
    with pytest.raises(sdk.Fenced):
        table.commit(whole, checkpoint(6))
    table.commit(left, checkpoint(7))
    assert [part.checkpoint for part in table.open(opening()).subranges] == [
        checkpoint(7),
        checkpoint(5),
    ]


def test_the_table_is_json_that_people_can_read() -> None:
    table = applied()
    table.commit(table.open(opening()), checkpoint(5))
    text = table.model_dump_json()
    kept = sdk.parsed(sdk.CheckpointTable, "file", text)
    assert kept == table
    (row,) = json.loads(text)["tasks"]["shop"]["ranges"]
    assert json.loads(row["read_through"]) == {
        "sources": {"testing/accounts": {"readThrough": "5"}}
    }
    with pytest.raises(sdk.InvalidUsage, match=r"tasks\.shop\.version"):
        sdk.parsed(sdk.CheckpointTable, "file", '{"tasks": {"shop": {"spec": ""}}}')


def test_a_secret_of_the_configuration_is_not_in_the_table() -> None:
    """A connector elsewhere is given secrets, not where they are."""
    task, table = materialization("shop", {"password": "hunter2"}, []), sdk.CheckpointTable()
    table.apply(sdk.ApplyRequest(materialization=task, version="1"))
    (kept,) = json.loads(table.model_dump_json())["tasks"].values()
    assert b"hunter2" not in base64.b64decode(kept["spec"])
    changed = materialization("shop", {"password": "changed"}, [])
    table.open(sdk.Open(materialization=changed, version="1"))


class Endpoint:
    """Documents by key; says when it was read."""

    checkpoint, subranges = b"begin", ()

    def __init__(self) -> None:
        self.documents: dict[bytes, bytes] = {}
        self.said: list[str] = []

    def read(self, binding: int, keys: Sequence[bytes]) -> list[bytes]:
        self.said.append(f"read {binding}")
        return [self.documents[key] for key in keys if key in self.documents]

    def commit(self, checkpoint: bytes, stores: Sequence[sdk.Store]) -> None:
        self.said.append(f"commit {checkpoint.decode()}")
        for store in stores:
            self.documents |= {row.key: row.document for row in store.rows()}


def test_a_buffered_transactor_reads_what_the_commit_before_has_written() -> None:
    endpoint = Endpoint()
    transactor = sdk.BufferedTransactor(endpoint)
    keys = Tuples.of([("a",)])
    store = sdk.Store(
        binding=0, keys=keys, values=Tuples.of([()]), documents=[b"{}"], exists=[False]
    )
    assert transactor.checkpoint == b"begin"
    assert list(transactor.flush(sdk.Flush(b"1"))) == [sdk.Flushed()]
    transactor.store(store)
    transactor.load(sdk.Load(0, keys))  # of the next transaction
    transactor.commit()
    assert list(transactor.flush(sdk.Flush(b"2"))) == [sdk.Loaded(0, [b"{}"]), sdk.Flushed()]
    transactor.commit()
    assert endpoint.said == ["commit 1", "read 0", "commit 2"]


def test_rows_of_a_store_have_their_flags() -> None:
    keys = Tuples.of([("a",), ("b",)])
    store = sdk.Store(
        binding=0,
        keys=keys,
        values=Tuples.of([(), ()]),
        documents=[b"1", b"2"],
        exists=[True, False],
    )
    first, second = store.rows()
    assert first == (keys.packed[0], b"1", True, False)
    assert second == sdk.StoredDocument(
        key=keys.packed[1], document=b"2", exists=False, deletes=False
    )


def test_every_projection_of_a_document_has_a_constraint() -> None:
    fields = sdk.document_constraints(ACCOUNTS.spec())
    kinds = {name: sdk.Constraint.Type.Name(field.type) for name, field in fields.items()}
    assert kinds == {
        "branch": "LOCATION_REQUIRED",
        "id": "LOCATION_REQUIRED",
        "amount": "FIELD_OPTIONAL",
        "flow_document": "FIELD_REQUIRED",
    }
    without = Collection(name="c", keys=("a",), columns=(FieldSpec(name="a"),), document=False)
    with pytest.raises(sdk.InvalidUsage, match="expected a field of the document"):
        sdk.document_constraints(without.spec())
