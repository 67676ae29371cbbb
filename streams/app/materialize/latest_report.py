"""What one materialization that runs without an environment says of itself."""

import os
import socket
import threading
from dataclasses import dataclass, field, replace

from connectors.runtime.runner import Status
from connectors.service.status import Rate, reported
from schemas.materializations import State
from streams.adapter.catalog_materializations import Materialization
from streams.adapter.metrics import of_materializations
from streams.adapter.show_materializations import ShownMaterialization
from streams.app.service_process import now_ms
from streams.http.metrics import exposition

READY = frozenset({"running", "done"})


@dataclass(slots=True)
class LatestReport:
    """What a runner has reported last. Thread-safe."""

    task: str
    connector: str
    state: State = field(init=False)
    _begun: State = field(init=False)
    _rate: Rate = field(default_factory=Rate)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        self.state = self._begun = State(id=self.task, owner=owner)

    def report(self, status: Status) -> None:
        """A status that differs from the one before."""
        with self._lock:
            self.state = reported(self.state, status, self._begun)

    def text(self) -> str:
        """As `streams.adapter.metrics` has those of an environment."""
        with self._lock:
            self._rate = self._rate.at(now_ms(), self.state.rows)
            state = replace(self.state, rows_per_s=self._rate.per_s)
        materialization = Materialization(
            id=self.task, name=self.task, statement="", task="", inputs=()
        )
        shown = ShownMaterialization(
            materialization, self.connector, (), state.state, state, state.behind_ms, ""
        )
        return exposition(of_materializations([shown]))

    def why_not_ready(self) -> str:
        """Empty while it follows its collections."""
        with self._lock:
            state = self.state.state
        return "" if state in READY else f"the materialization is {state}"
