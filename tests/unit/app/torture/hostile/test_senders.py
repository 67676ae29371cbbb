"""An attacker's connections: what never ends, such as a SUBSCRIBE, does not keep it waiting."""

import contextlib
import socket
import threading
import time

import pytest

from streams.torture.hostile import senders
from streams.torture.hostile.inputs import Burst, Request
from streams.torture.hostile.senders import NOWHERE, Senders


class NoProducer:
    """In place of a connection to Kafka."""

    def __init__(self, *_: object) -> None:
        pass


def drip(listening: socket.socket) -> None:
    """Answer a byte now and then, for ten seconds, or as long as somebody listens."""
    connection, _ = listening.accept()
    with connection, contextlib.suppress(OSError):
        for _ in range(500):
            connection.send(b"x")
            time.sleep(0.02)


def test_sessions_are_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is answered before all have come."""
    monkeypatch.setattr(senders, "ForeignProducer", NoProducer)
    monkeypatch.setattr(senders, "LISTENS_S", 30.0)
    payloads = (b"one", b"two", b"three")
    messages: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hear() -> None:
            there = [listening.accept()[0] for _ in payloads]
            for connection in there:
                with connection:
                    messages.append(connection.recv(10))

        answering = threading.Thread(target=hear, daemon=True)
        answering.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        sender = Senders(None, url, "x")  # type: ignore[arg-type]  # no broker
        assert sender.send(Burst(surface="sessions", payloads=payloads)) == NOWHERE
        answering.join(30)
    assert sorted(messages) == sorted(payloads)


def test_an_answer_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "ForeignProducer", NoProducer)
    monkeypatch.setattr(senders, "LISTENS_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        answering = threading.Thread(target=drip, args=(listening,), daemon=True)
        answering.start()
        sender = Senders(None, f"http://127.0.0.1:{port}", "x")  # type: ignore[arg-type]  # no broker
        assert sender.send(Request(surface="sql", payload=b"SUBSCRIBE")) == NOWHERE
        answering.join(60)
