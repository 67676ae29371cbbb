"""The directives of `tests/datadriven/commands`: clients, services, and what kills them.

A command's input lines are `field=value`; `@c1.0` is the first capability that c1 was answered
with, `@c1.0:7` the same at frontier 7, `-` nothing. `run` has a service answer all there is and
prints the responses; with `kill=POINT:N` it dies when it reaches the point for the n-th time,
with `behind=POINT:N` another one runs there, and the first goes on as a zombie.
"""

from collections import Counter
from typing import Any

from streams.ids import CollectionId
from streams.kafka.client.transactions import Fenced
from streams.storage.read.options import Options
from tests.support.command_service import DESCRIPTION, NAMES, Killed, World, stream
from tests.support.datadriven import Case

LATER = {"new_frontier", "start", "after", "until", "lease_ms"}


class CommandScript:
    """One namespace."""

    def __init__(self) -> None:
        self.world = World()
        self.shown = 0
        self.sent: dict[str, bytes] = {}

    def handle(self, case: Case) -> str:
        return {"send": self.send, "again": self.again, "run": self.run, "read": self.read}[
            case.directive
        ](case)

    def send(self, case: Case) -> str:
        fields = dict(word.split("=", 1) for words in case.lines() for word in words)
        values = {name: self.value(name, text) for name, text in fields.items()}
        if case["command"] == "create":
            values.setdefault("description", DESCRIPTION)
        if case["command"] == "update_and_downgrade":
            values = {"writes": [{"updates": None, **values}]}
        self.world.send(case["command"], id_=case["id"], **values)
        log = self.world.broker.store.log(NAMES.commands)
        self.sent[case["id"]] = log.records[-1].value or b""
        return f"at {log.end - 1}"

    def value(self, name: str, text: str) -> Any:
        if text == "-":
            return None
        if text.startswith("@"):
            place, _, at = text[1:].partition(":")
            id_, number = place.split(".")
            capability = self.world.answers()[id_]["capabilities"][int(number)]
            return {**capability, "frontier": int(at)} if at else capability
        if name == "updates":
            rows = [cells.split(",") for cells in text.split(";")]
            return stream(*[(row, 1, int(time), int(diff)) for row, time, diff in rows])
        if name == "whole":
            return text == "yes"
        return int(text) if name in LATER else text

    def again(self, case: Case) -> str:
        self.world.raw(self.sent[case["id"]])
        return f"at {self.world.broker.store.log(NAMES.commands).end - 1}"

    def run(self, case: Case) -> str:
        reached: Counter[str] = Counter()
        lines = []

        def reach(point: str) -> None:
            reached[point] += 1
            here = f"{point}:{reached[point]}"
            if here == case.get("kill"):
                raise Killed(here)
            if here == case.get("behind"):
                self.world.run()

        try:
            self.world.run(self.world.service(reach))
        except Killed as killed:
            lines.append(f"killed at {killed}")
        except Fenced:
            lines.append("fenced")
        return "\n".join([*self.news(), *lines]) or "nothing"

    def news(self) -> list[str]:
        every = self.world.responses()
        fresh, self.shown = every[self.shown :], len(every)
        return [line(answer) for answer in fresh]

    def read(self, case: Case) -> str:
        """What a client of storage reads, which knows nothing of commands."""
        storage = self.world.storage()
        read, write = storage.acquire_capabilities(CollectionId(case["of"]))
        if read.frontier.is_empty:
            return "forgotten"
        state = storage.shards.state(read.id)
        delivery = storage.subscribe_at(read, Options(snapshot=False)).poll()
        storage.drop(read)
        if not write.frontier.is_empty:
            storage.drop(write)
        rows = [] if delivery is None else delivery.updates.to_pylist()
        updates = sorted(f"{row['c0']} at {row['time']}: {row['diff']}" for row in rows)
        return "\n".join([f"since={state.since} upper={state.upper}", *updates])


def line(response: dict[str, Any]) -> str:
    words = [f"{response['offset']}", response["command"] or "-", response["status"]]
    words += [
        f"{right['right'].lower()}@{'-' if right['frontier'] is None else right['frontier']}"
        for right in response["capabilities"]
    ]
    if response["current"] is not None:
        words.append(f"current={response['current']['frontier']}")
    if response["cut"] is not None:
        pieces = [
            f"[{chunk['lower']}, {chunk['upper']})" for chunk in response["cut"]["chunks"]
        ]
        words.append(f"upper={response['cut']['upper']} {' '.join(pieces)}")
    if response["error"] is not None:
        words.append(response["error"]["code"])
    return " ".join(words)
