"""What a connector says in Validate and of its documents, where it is odd: a named error."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.driver import Driver
from connectors.protocol.violations import Violation
from connectors.runtime.lane import EndpointDrifted, compare
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.transport.local import Local
from schemas.materialize_pb2 import Constraint
from streams.errors import InvalidUsage
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector

FORBIDDEN, REQUIRED = Constraint.FIELD_FORBIDDEN, Constraint.LOCATION_REQUIRED


@pytest.fixture
def collections() -> Iterator[Collections]:
    fixture = Collections()
    fixture.create("u1", (("item", "VARCHAR"), ("price", "BIGINT")), keys=("item",))
    fixture.append("u1", 12, [("a", 1, 11, 1)])
    yield fixture
    fixture.close()


def catch_up(collections: Collections, path: Path, connector: Any, **binding: Any) -> None:
    task = {
        "task": "shop",
        "connector": "./connector",
        "config": {"path": str(path)},
        "bindings": [{"collection": "u1", "resource": {"table": "t"}, **binding}],
    }
    Runner(
        Materialization.model_validate(task),
        Driver(Local(connector)),
        collections.client(),
        now_ms=lambda: 1000,
        stopping=threading.Event(),
    ).run(until_caught_up=True)


class Answering:
    """A connector whose Validate is changed, the first time and the second."""

    def __init__(self, connector: Any, *changes: Any) -> None:
        self._connector, self._changes = connector, list(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connector, name)

    def validate(self, request: Any) -> Any:
        response = self._connector.validate(request)
        self._changes.pop(0)(response.bindings[0])
        return response


def as_it_is(_: Any) -> None:
    """Change nothing."""


def all_deltas(answer: Any) -> None:
    answer.delta_updates = True


def without(name: str) -> Any:
    return lambda answer: answer.constraints.pop(name)


def being(name: str, kind: Any) -> Any:
    def change(answer: Any) -> None:
        answer.constraints[name].CopyFrom(Constraint(type=kind, reason="so it is"))

    return change


@pytest.mark.parametrize(
    ("change", "select", "error"),
    [
        (without("item"), None, "t: item: the connector has no constraint for it"),
        (without("price"), ["price"], "t: price: the connector has no constraint for it"),
        (being("item", FORBIDDEN), None, "t: item: so it is"),
        (being("price", FORBIDDEN), ["price"], "t: price: so it is"),
        (being("price", REQUIRED), [], "t: price: it is to be selected too: so it is"),
    ],
)
def test_fields_are_those_that_the_connector_takes(
    collections: Collections, tmp_path: Path, change: Any, select: Any, error: str
) -> None:
    connector = Answering(FileConnector(), change)
    with pytest.raises(InvalidUsage, match=error):
        catch_up(collections, tmp_path / "file", connector, select=select)
    assert not (tmp_path / "file").exists(), "it was not applied"


@pytest.mark.parametrize("name", ["price", "flow_document"])
def test_a_field_that_nobody_asked_for_is_left_out(
    collections: Collections, tmp_path: Path, name: str
) -> None:
    connector: Any = Answering(FileConnector(), without(name))
    fields = list[Any]()
    apply = connector.apply

    def applied(request: Any) -> Any:
        fields.append(request.materialization.bindings[0].field_selection)
        return apply(request)

    connector.apply = applied
    catch_up(collections, tmp_path / "file", connector)
    (chosen,) = fields
    assert name not in {*chosen.values, chosen.document}


def test_a_connector_that_changes_its_mind_is_named(
    collections: Collections, tmp_path: Path
) -> None:
    """A binding without a key would be written as if it had one."""
    connector = Answering(FileConnector(), all_deltas, as_it_is)
    error = r"the connector broke the rule spec: .* as before, \[True\], actual \[False\]"
    with pytest.raises(Violation, match=error):
        catch_up(collections, tmp_path / "file", connector)


def test_a_document_that_is_no_text_can_be_told() -> None:
    """Half a surrogate pair is JSON: the message goes into tables and topics."""
    with pytest.raises(EndpointDrifted) as caught:
        compare("t", {b"k": b'{"a":1}'}, {b"k": b'{"a":"\\ud800"}'})
    assert str(caught.value).encode().count(b"\\ud800") == 1
