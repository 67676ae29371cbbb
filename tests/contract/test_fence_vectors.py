"""The fence's scripts again, by sessions in the databases: the same comes of them."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors import testing
from connectors.driver import Stream
from connectors.protocol import messages
from connectors.protocol.violations import Violation
from connectors.sql.transactor import held
from connectors.transport.errors import ConnectorFailed
from schemas.flow_pb2 import MaterializationSpec
from tests.support import datadriven
from tests.support.datadriven import Case
from tests.support.endpoints import Endpoint, on_duckdb, on_postgres, on_sqlite
from tests.support.fence_script import bounds, shown
from tests.support.materialization_tasks import NAMES

ROWS = """SELECT key_begin, key_end, fence, opened, checkpoint FROM slackwater_checkpoints
  WHERE task = '{}' ORDER BY opened, key_begin"""


class InDatabase:
    """`open`, `commit` and `rows` of sessions; `new` is a task of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.number = endpoint, 0
        self.sessions: dict[str, Stream] = {}
        self.task: MaterializationSpec | None = None

    def handle(self, case: Case) -> str:
        match case.directive:
            case "new":
                self.close()
                self.number += 1
                name = f"task{self.number}"
                self.task = self.endpoint.task(NAMES, f"t{self.number}", name=name)
                self.endpoint.apply(self.task)
                return ""
            case "open":
                apart = case.get("apart") == "yes"
                return self.open(case["name"], *bounds(case["range"]), may_be_apart=apart)
            case "commit":
                return self.commit(case["name"], case["checkpoint"].encode())
            case _:
                return "\n".join(self.rows())

    def open(self, name: str, begin: int, end: int, *, may_be_apart: bool) -> str:
        assert self.task is not None
        opened = messages.Open(
            materialization=self.task,
            version="1",
            key_begin=begin,
            key_end=end,
            extensions=replace(self.endpoint.connector.extensions, subranges=may_be_apart),
        )
        try:
            self.sessions[name] = self.endpoint.driver.open(opened)
        except ConnectorFailed as error:
            return plain(f"refused: {error.__cause__ or error}")
        written = len(self.sessions[name].subranges) + 1
        return "\n".join(self.rows()[-written:])

    def commit(self, name: str, checkpoint: bytes) -> str:
        try:
            self.sessions[name].flush(CHECKPOINTS[checkpoint])
            self.sessions[name].commit()
        except ConnectorFailed as error:
            is_fenced = "another session took the key range" in str(error)
            return "fenced" if is_fenced else f"failed: {error}"
        except Violation as error:  # it was fenced before, and its commit is still to come
            return "fenced" if "StartedCommit" in str(error) else f"failed: {error}"
        return "committed"

    def rows(self) -> list[str]:
        rows = self.endpoint.query(ROWS.format(f"task{self.number}"))
        return [shown(replace(held(row), checkpoint=named(row[4]))) for row in rows]

    def close(self) -> None:
        for stream in self.sessions.values():
            stream.channel.close()
        self.sessions = {}


CHECKPOINTS = {str(number).encode(): testing.checkpoint(number) for number in range(1, 10)}
"""A driver is not given one that is none; the scripts name them by a digit."""


def named(text: str) -> bytes:
    """The digit of a checkpoint, as it is kept; the zero checkpoint has none."""
    names = {checkpoint: name for name, checkpoint in CHECKPOINTS.items()}
    checkpoint = base64.b64decode(text)
    return names.get(checkpoint, checkpoint)


def plain(text: str) -> str:
    """A text with digits in place of checkpoints."""
    for name, checkpoint in CHECKPOINTS.items():
        text = text.replace(checkpoint.hex(), name.hex())
    return text


@pytest.mark.parametrize("make", [on_sqlite, on_duckdb, on_postgres])
@pytest.mark.parametrize("script", datadriven.scripts("fence"), ids=lambda path: path.stem)
def test_fence(script: Path, make: Any, memory_path: Path, request: Any) -> None:
    sessions = InDatabase(make(memory_path, request))
    datadriven.run(script, sessions.handle)
    sessions.close()
