"""A client of the command topics: what it sends again, and what it gives up."""

import uuid
from typing import Any

import pytest

from schemas import codec
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.log import Entry
from streams.torture.hostile.command_client import TRIES, CommandClient


class Service:
    """A producer and a tail in one: answers each command as it is told, the last for ever."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.asked: list[str] = []
        self._unread: list[Entry] = []

    def send(self, topic: Topic, value: bytes) -> tuple[int, int]:
        _, command = codec.decode(value)
        self.asked.append(command["id"])
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        response = {
            "command": command["id"],
            "origin": uuid.uuid4().hex,
            "offset": len(self.asked),
            "checksum": 0,
            "status": "REFUSED" if code else "DONE",
            "error": {"code": code, "message": code} if code else None,
            "capabilities": [],
            "current": None,
            "cut": None,
        }
        value = codec.encode("command_response", response)
        self._unread.append(Entry(topic, Offset(len(self.asked)), 0, value))
        return 0, 0

    def poll(self, wait_ms: int) -> list[Entry]:
        entries, self._unread = self._unread, []
        return entries


def drop(service: Any) -> list[dict[str, object]]:
    requester = CommandClient("sw", service, service)
    return requester.done("drop", 1.0, collection="c", capability=None)


def test_a_command_that_was_overtaken_is_sent_again_under_a_new_id() -> None:
    service = Service("Recount", "Recount", "")
    assert drop(service) == []
    assert len(set(service.asked)) == 3


@pytest.mark.parametrize(("code", "times"), [("Recount", TRIES), ("WrongRows", 1)])
def test_what_is_refused_is_said(code: str, times: int) -> None:
    service = Service(code)
    with pytest.raises(Determinate, match=code):
        drop(service)
    assert len(service.asked) == times
