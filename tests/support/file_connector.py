"""A connector that keeps tables in one JSON file; run as a module, it answers one call.

It says on which request it is to fail, for tests of what the other side sees.
"""

import base64
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connectors.protocol.messages import (
    Extensions,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Store,
    Subrange,
)
from connectors.transport import stdio
from schemas import materialize_pb2 as wire
from streams.arrow_without_pandas import without_pandas

RELEASED = threading.Event()
"""Set: what hangs in this process goes on."""
HANGS_S = 120

SCHEMA = json.dumps({"type": "object", "properties": {"path": {"type": "string"}}})


class Table:
    """A stream: what was stored becomes the file with the commit."""

    def __init__(self, message: Open, config: dict[str, Any]) -> None:
        self.path, self.fail = Path(config["path"]), config.get("fail", "")
        self.state = json.loads(self.path.read_text())
        self.checkpoint = base64.b64decode(self.state["checkpoint"])
        self.subranges: Sequence[Subrange] = ()
        self.loads: list[Load] = []
        self.paths = [
            "/".join(binding.resource_path) for binding in message.materialization.bindings
        ]

    def acknowledge(self) -> None:
        self.failing("acknowledge")

    def load(self, message: Load) -> None:
        self.failing("load")
        self.loads.append(message)

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        self.failing("flush")
        for load in self.loads:
            rows = self.state["tables"][self.paths[load.binding]]
            documents = [
                rows[key.hex()].encode() for key in load.keys.packed if key.hex() in rows
            ]
            if documents:
                yield Loaded(load.binding, documents)
        self.loads = []
        self.state["checkpoint"] = base64.b64encode(message.checkpoint).decode()
        yield Flushed(b'{"flushed":1}', patch=True)

    def store(self, message: Store) -> None:
        self.failing("store")
        rows = self.state["tables"][self.paths[message.binding]]
        for key, document in zip(message.keys.packed, message.documents, strict=True):
            rows[key.hex()] = document.decode()

    def commit(self) -> None:
        self.failing("commit")
        self.path.write_text(json.dumps(self.state))

    def failing(self, name: str) -> None:
        if self.fail == name:
            raise OSError(f"no {name} today")
        if self.fail == f"die at {name}":
            os._exit(9)
        if self.fail == f"garbage at {name}":
            sys.stdout.buffer.write(b"\x03\x00\x00\x00abc")
            sys.stdout.buffer.flush()
        if self.fail == f"hang at {name}":
            RELEASED.wait(HANGS_S)


class FileConnector:
    extensions = Extensions(acknowledge=True)

    def spec(self, request: wire.SpecRequest) -> wire.SpecResponse:
        part = json.loads(request.endpoint_spec_json or "{}")
        return wire.SpecResponse(
            endpoint_spec_schema_json=SCHEMA,
            resource_spec_schema_json="{}",
            documentation_url=part.get("docs", "https://example.com"),
        )

    def validate(self, request: wire.ValidateRequest) -> wire.ValidateResponse:
        bindings = []
        for binding in request.bindings:
            constraint = wire.Constraint(type=wire.Constraint.FIELD_OPTIONAL, reason="all go")
            fields = {
                projection.field: constraint for projection in binding.collection.projections
            }
            table = json.loads(binding.resource_spec_json)["table"]
            bindings.append(
                wire.ValidateResponse.Binding(constraints=fields, resource_path=[table])
            )
        return wire.ValidateResponse(bindings=bindings)

    def apply(self, request: wire.ApplyRequest) -> wire.ApplyResponse:
        if "hang at apply" in request.materialization.endpoint_spec_json:
            RELEASED.wait(HANGS_S)
        path = Path(json.loads(request.materialization.endpoint_spec_json)["path"])
        if path.exists():
            return wire.ApplyResponse()
        tables: Any = {
            "/".join(binding.resource_path): {} for binding in request.materialization.bindings
        }
        if not request.dry_run:
            path.write_text(json.dumps({"checkpoint": "", "tables": tables}))
        return wire.ApplyResponse(action_description=f"create {path}")

    @contextmanager
    def open(self, message: Open) -> Iterator[Table]:
        yield Table(message, json.loads(message.materialization.endpoint_spec_json))


if __name__ == "__main__":
    without_pandas()
    pipes = (sys.stdin.buffer, sys.stdout.buffer)
    sys.exit(stdio.serve(FileConnector(), sys.argv[1], pipes, sys.stderr.buffer))
