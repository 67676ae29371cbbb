"""The connector of web hooks: what a receiver gets, whatever happens on the way."""

import json
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from connectors import testing, webhook
from connectors.connector import Refused
from connectors.driver import Driver
from connectors.protocol import messages
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from connectors.transport.stdio import Command
from connectors.webhook.http_client import Sender
from connectors.webhook.transactor import Cutting, RequestLimits
from schemas.blobs import Blobs
from schemas.materialize_pb2 import SpecRequest
from streams.errors import Indeterminate, InvalidUsage
from tests.support.collections import Collections
from tests.support.hook import Receiver, receiving

PRICES = (("item", "VARCHAR"), ("price", "BIGINT"))


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def collections() -> Iterator[Collections]:
    collections_ = Collections()
    collections_.create("u1", PRICES, keys=("item",))
    yield collections_
    collections_.close()


def subject(receiver: Receiver, **config: Any) -> testing.Subject:
    return testing.Subject(
        driver=Driver(Local(webhook.connector({"TOKEN": "Bearer x"}))),
        endpoint={"url": receiver.url, "retries": 0, **config},
        resource=lambda name: {"path": f"in/{name}"},
    )


def catch_up(receiver: Receiver, collections: Collections, **more: Any) -> None:
    task = {
        "task": "shop",
        "connector": "webhook",
        "config": {"url": receiver.url, "retries": 0, **more.pop("config", {})},
        "bindings": [
            {
                "collection": "u1",
                "resource": {"path": "prices"},
                "dead_letters": more.pop("dead", None),
            }
        ],
        "limits": {
            "every_ms": 0,
            "idle_ms": 0,
            "rows": more.pop("rows", 1000),
            "bytes": more.pop("bytes", 1000),
        },
    }
    runner = Runner(
        Materialization.model_validate(task),
        Driver(Local(webhook.connector({}))),
        collections.client(),
        now_ms=lambda: 1000,
        stopping=NoPauses(),
        **more,
    )
    runner.run(until_caught_up=True)


def test_a_request_says_what_it_is(receiver: Receiver) -> None:
    subject_ = subject(
        receiver, secret_headers={"Authorization": "env:TOKEN"}, batch_documents=2
    )
    task = subject_.applied("t", "u")
    with subject_.session(task) as stream:
        stream.flush(testing.checkpoint(7))
        testing.store(stream, [testing.account("a", n, n) for n in range(3)])
        assert receiver.requests == [], "nothing is sent before the commit"
        stream.commit()
        stream.finish()
    first, second = receiver.requests
    path, headers, body = first
    assert path.startswith("/in/t_")
    assert (headers["Authorization"], headers["Content-Type"]) == (
        "Bearer x",
        "application/json",
    )
    value = json.loads(body)
    assert headers["Idempotency-Key"] == value["id"] != json.loads(second[2])["id"]
    assert value["task"] == task.materialization
    assert (value["key_begin"], value["key_end"]) == ("00000000", "ffffffff")
    assert value["documents"] == [testing.account("a", n, n) for n in range(2)]
    assert (value["batch"], json.loads(second[2])["batch"]) == (0, 1)


@pytest.mark.parametrize("sizes", [[3], [1, 1, 1], [2, 1]])
def test_requests_are_cut_the_same_however_documents_come(sizes: list[int]) -> None:
    documents = [b'{"n":%d}' % n for n in range(3)]
    for limits, expected in [
        (RequestLimits(2, 1000), [documents[:2], documents[2:]]),
        (RequestLimits(9, 15), [documents[:2], documents[2:]]),
        (RequestLimits(9, 14), [documents[:2], documents[2:]]),
        (RequestLimits(9, 13), [[document] for document in documents]),
        (RequestLimits(9, 3), [[document] for document in documents]),
        (RequestLimits(9, 21), [documents]),
    ]:
        cutting, actual, start = Cutting(), [], 0
        for size in sizes:
            some = Blobs.of(documents[start : start + size])
            actual += list(cutting.add(some, limits))
            start += size
        actual += [cutting.full()] if cutting.count else []
        assert actual == [b",".join(part) for part in expected], limits


class NoPauses(threading.Event):
    """Never stops, and never waits."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def fill(collections: Collections) -> None:
    collections.append("u1", 12, [(f"i{n}", n, 11, 1) for n in range(7)])


@pytest.mark.parametrize(
    ("place", "number", "size"),
    [
        ("before-commit", 1, 1000),
        ("in-commit", 0, 1000),
        ("in-commit", 0, 1),
        ("in-commit", 1, 1000),
        ("after-commit", 1, 1),
    ],
)
def test_a_crash_repeats_the_same_requests(
    receiver: Receiver, collections: Collections, place: str, number: int, size: int
) -> None:
    """Though more has come since, and limits are others."""
    fill(collections)
    if number:
        catch_up(receiver, collections)
        collections.append("u1", 14, [(f"i{n}", n, 13, -1) for n in range(3)])

    def crash(at: str) -> None:
        if at == place:
            raise Crash

    config = {"batch_documents": 2}
    with pytest.raises(Crash):
        catch_up(receiver, collections, crash=crash, config=config, bytes=size)
    collections.append("u1", 21, [("i6", 6, 15, -1), ("i6", 8, 15, 1)])
    catch_up(receiver, collections, rows=2, config={"batch_documents": 2})
    by_id: dict[str, set[bytes]] = {}
    for _, headers, body in receiver.requests:
        by_id.setdefault(headers["Idempotency-Key"], set()).add(body)
    assert all(len(bodies) == 1 for bodies in by_id.values()), "one id, one body"
    changes: Counter[Any] = Counter()
    for request in receiver.taken("prices"):
        changes[request["item"], request["price"]] += request["slackwater_diff"]
        assert request["slackwater_time"] in {11, 13, 15}
    expected = {(f"i{n}", n): 1 for n in range(3 * number, 6)} | {("i6", 8): 1}
    assert +changes == expected
    assert not -changes


def test_a_request_that_was_sent_when_the_process_dies_comes_again(
    receiver: Receiver, collections: Collections
) -> None:
    """Between two requests of one commit."""
    fill(collections)
    failures_left = [2]

    def answer(_: Any) -> Any:
        failures_left[0] -= 1
        return 200 if failures_left[0] >= 0 else None

    receiver.answer = answer
    with pytest.raises(ConnectorFailed, match=r"prices: .* in 1 tries"):
        catch_up(receiver, collections, config={"batch_documents": 2})
    sent = [body for _, _, body in receiver.requests]
    receiver.answer = lambda _: 200
    collections.append("u1", 14, [("new", 1, 13, 1)])
    catch_up(receiver, collections, config={"batch_documents": 2})
    again = [body for _, _, body in receiver.requests][2:]
    assert again[:2] == sent, "bytes and order"
    items = [document["item"] for document in receiver.taken("prices")]
    assert sorted(items) == sorted([*(f"i{n}" for n in range(7)), "new"])


class Letters:
    def __init__(self) -> None:
        self.items: list[str] = []

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        self.items.append(json.loads(value)["document"]["item"])


@pytest.mark.parametrize("place", ["", "before-commit", "in-commit", "after-letter"])
def test_refused_documents_are_left_out(
    receiver: Receiver, collections: Collections, place: str
) -> None:
    def answer(body: Any) -> Any:
        dear = [document for document in body["documents"] if document["price"] in {2, 5}]
        return (422, "too dear") if dear else 200

    failures_left = [4]

    def crash(at: str) -> None:
        failures_left[0] -= at == place
        if failures_left[0] < 0 or at == place == "after-letter":
            raise Crash

    receiver.answer = answer
    fill(collections)
    letters, config = Letters(), {"batch_documents": 2}
    if place:
        with pytest.raises(Crash):
            catch_up(
                receiver, collections, dead="dead", letters=letters, crash=crash, config=config
            )
    collections.append("u1", 14, [("new", 1, 13, 1)])
    catch_up(receiver, collections, dead="dead", letters=letters, config=config)
    documents = [document for body in receiver.bodies for document in body["documents"]]
    items = {document["item"] for document in documents}
    assert items == {"i0", "i1", "i3", "i4", "i6", "new"}, "a document is unique in its path"
    assert set(letters.items) == {"i2", "i5"}


def test_limits_change_with_the_transaction_after(
    receiver: Receiver, collections: Collections
) -> None:
    fill(collections)
    catch_up(receiver, collections, config={"batch_documents": 7})
    for time in (13, 15):
        collections.append("u1", time + 1, [(f"n{n}{time}", n, time, 1) for n in range(4)])
        catch_up(receiver, collections, config={"batch_documents": 2})
    assert [len(body["documents"]) for body in receiver.bodies] == [7, 4, 2, 2]


@pytest.mark.parametrize("status", [429, 500, 503, None])
def test_what_can_pass_is_tried_again(receiver: Receiver, status: int | None) -> None:
    answers = [status, status, 204]
    receiver.answer = lambda _: answers.pop(0)
    pauses: list[float] = []
    with sender(receiver, retries=2, pause=pauses.append) as sending:
        sending.send("p", "1", b"{}")
    assert pauses == [0.5, 1.0]
    assert [body for _, _, body in receiver.requests] == [b"{}"]


def test_who_says_when_is_asked_then(receiver: Receiver) -> None:
    answers: list[Any] = [
        (429, "", {"Retry-After": "7"}),
        (503, "", {"Retry-After": "900"}),
        200,
    ]
    receiver.answer = lambda _: answers.pop(0)
    pauses: list[float] = []
    with sender(receiver, retries=2, pause=pauses.append) as sending:
        sending.send("p", "1", b"{}")
    assert pauses == [7.0, 60.0]


def sender(receiver: Receiver, **options: Any) -> Sender:
    settings = {"url": receiver.url, "headers": {}, "timeout_s": 5.0, "retries": 0, **options}
    return Sender(**settings)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            (422, "price is negative"),
            Refused,
            "p: the endpoint answers 422 .*: price is negative",
        ),
        ((401, "who?"), InvalidUsage, "p: the endpoint answers 401 Unauthorized: who?"),
        ((302, "", {"Location": "/other"}), InvalidUsage, "p: the endpoint answers 302 Found"),
        ((500, "oops"), Indeterminate, "p: the endpoint answers 500 .*: oops, in 1 tries"),
    ],
)
def test_what_cannot_pass_says_what_the_endpoint_says(
    receiver: Receiver, answer: Any, error: type[Exception], text: str
) -> None:
    receiver.answer = lambda _: answer
    with sender(receiver) as sending, pytest.raises(error, match=text) as raised:
        sending.send("p", "1", b"{}")
    assert type(raised.value) is error


def test_nobody_listens(receiver: Receiver) -> None:
    with (
        sender(receiver, url="http://127.0.0.1:1") as sending,
        pytest.raises(Indeterminate, match=r"p: .*refused.* in 1 tries"),
    ):
        sending.send("p", "1", b"{}")


def test_tls_is_not_tried_again_with_one_that_speaks_none() -> None:
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=answer)
        answering.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Sender(url=url, headers={}, timeout_s=5.0, retries=9) as sending,
            pytest.raises(InvalidUsage, match=r"p: expected TLS .*: write http in its url"),
        ):
            sending.send("p", "1", b"{}")
        answering.join()


def test_without_tls_no_authorities_are_loaded(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the calls that begin a session has a sender."""
    monkeypatch.delattr(ssl, "create_default_context")
    with sender(receiver) as sending:
        sending.send("p", "1", b"{}")
    with pytest.raises(AttributeError, match="create_default_context"):
        sender(receiver, url="https://127.0.0.1:1")


def test_a_certificate_that_nobody_trusts_says_what_to_do(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        url = f"https://127.0.0.1:{server.server_port}"
        with (
            Sender(url=url, headers={}, timeout_s=5.0, retries=9) as sending,
            pytest.raises(InvalidUsage, match=r"p: expected a certificate .* in ca_file"),
        ):
            sending.send("p", "1", b"{}")
        answering.join()


def test_a_refused_document_stops_the_task_with_the_message(
    receiver: Receiver, collections: Collections
) -> None:
    receiver.answer = lambda _: (400, "no such item")
    fill(collections)
    with pytest.raises(
        ConnectorFailed, match=r"prices: the endpoint answers 400 .*no such item"
    ):
        catch_up(receiver, collections)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"url": "ftp://x"}, "url: "),
        ({"url": "http://u:p@x"}, "url: String should match"),
        ({"url": "http://token@x/in"}, "url: String should match"),
        ({"url": "http://x/in?token=y"}, "url: String should match"),
        ({"headers": {"authorization": "x"}}, "the header authorization is secret: move it"),
        ({"headers": {"Host": "x"}}, "the header Host is set by the connector"),
        ({"secret_headers": {"A": "env:GONE"}}, "environment variable GONE, actual none"),
        ({"ca_file": "/nowhere"}, "ca_file: expected certificates in /nowhere"),
        ({"batch_documents": 0}, "batch_documents: "),
    ],
)
def test_configurations_that_are_wrong(receiver: Receiver, config: Any, text: str) -> None:
    with pytest.raises(ConnectorFailed, match=text):
        subject(receiver, **config).task("t")


@pytest.mark.parametrize("value", ["hunter2\n", "a\r\nb: hunter2", "hunter2 \u20ac"])
def test_a_secret_that_cannot_be_sent_is_not_shown(receiver: Receiver, value: str) -> None:
    """As one of the environment, which ends with a line break."""
    subject_ = subject(receiver, secret_headers={"Authorization": "env:TOKEN"})
    driver = Driver(Local(webhook.connector({"TOKEN": value})))
    with pytest.raises(ConnectorFailed, match="header Authorization: expected a val") as caught:
        replace(subject_, driver=driver).task("t")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", [b"7", b"[1]", b'{"a":1}', b'{"documents":"x","bytes":1}'])
def test_a_checkpoint_of_somebody_else_is_refused(receiver: Receiver, text: bytes) -> None:
    subject_ = subject(receiver)
    opened = messages.Open(
        materialization=subject_.applied("t"), version="1", driver_checkpoint=text
    )
    with pytest.raises(ConnectorFailed, match="the driver broke the rule checkpoint: Open: dr"):
        subject_.driver.open(opened)


def test_the_forms_have_titles_secrets_and_order() -> None:
    response = Driver(Local(webhook.connector({}))).spec(SpecRequest())
    for text in (response.endpoint_spec_schema_json, response.resource_spec_schema_json):
        properties = json.loads(text)["properties"]
        orders = [property_["order"] for property_ in properties.values()]
        assert orders == list(range(len(orders)))
        assert all(
            property_["title"] and property_["description"] for property_ in properties.values()
        )
    hidden = json.loads(response.endpoint_spec_schema_json)["properties"]["secret_headers"]
    assert hidden["additionalProperties"] == {"type": "string", "secret": True}


def test_it_is_a_command_too(receiver: Receiver) -> None:
    program = str(Path(sys.executable).with_name("materialize-webhook"))
    response = Driver(Command([program], {})).spec(SpecRequest())
    assert json.loads(response.resource_spec_schema_json)["title"] == "Path"


def test_a_load_is_a_violation(receiver: Receiver) -> None:
    subject_ = subject(receiver)
    with (
        subject_.session(subject_.applied("t")) as stream,
        pytest.raises(Exception, match="expected no delta updates"),
    ):
        stream.send(messages.Load(0, messages.Tuples.of([("a", 1)])))
