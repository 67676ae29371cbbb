"""Injects faults between a driver and a connector, at the n-th message of a kind.

A `Faulty` transport stands around another one. At its message either side dies, the message
stalls or comes twice, or the driver stands still until somebody else has taken over. It strikes
once; `fired` says whether it has, since a fault that never came about shows nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from connectors.answer_timeouts import PATIENT, Patience
from connectors.driver import Channel, Transport
from connectors.protocol import arena_codec, messages
from connectors.protocol.messages import Message
from connectors.transport.errors import ConnectorFailed
from streams.errors import Determinate

PATIENCE_S = 60.0


class Act(StrEnum):
    """The kind of fault."""

    DRIVER_DIES = "driver-dies"
    """Before it has sent a request; before it has seen a response."""
    CONNECTOR_DIES = "connector-dies"
    """Before the request is seen; or after the work, before the response is sent."""
    STALL = "stall"
    REPEAT = "repeat"
    """The message comes twice."""
    ZOMBIE = "zombie"
    """The driver stands still with its message, and goes on when it was forgotten."""


REQUESTS: dict[type[Message], str] = {
    messages.Open: "open",
    messages.Load: "load",
    messages.Flush: "prepare",
    messages.Store: "store",
    messages.StartCommit: "commit",
    messages.Acknowledge: "acknowledge",
}
RESPONSES: dict[type[Message], str] = {
    messages.Opened: "opened",
    messages.Loaded: "loaded",
    messages.Flushed: "prepared",
    messages.StartedCommit: "committed",
    messages.Acknowledged: "acknowledged",
}
EVENTS = (*REQUESTS.values(), *RESPONSES.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at the n-th message of a kind, counted from 1 over all streams."""

    act: Act
    event: str
    nth: int = 1

    @property
    def is_request(self) -> bool:
        """Whether the driver sends the message."""
        return self.event in REQUESTS.values()

    def __str__(self) -> str:
        return f"{self.act} at {self.event} {self.nth}"


class DriverDied(Exception):
    """The process of the driver is gone: nothing of it handles this."""


def nothing(_: str) -> None:
    """Observe nothing."""


@dataclass(slots=True)
class Faulty:
    """A transport with one fault. `watch` is called with each kind of message that has come."""

    inner: Transport
    fault: Fault | None = None
    watch: Callable[[str], None] = nothing
    kill: Callable[[Channel], None] = lambda channel: channel.close()
    """How the connector of a stream dies."""
    fired: threading.Event = field(default_factory=threading.Event)
    resumed: threading.Event = field(default_factory=threading.Event)
    """Set: a driver that stands still goes on."""
    failures: list[str] = field(default_factory=list)
    """The texts with which the inner connector has failed since the fault."""
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        """The unwrapped connector."""
        return self.inner.call(name, request, patience)

    def transactions(self, patience: Patience = PATIENT, /) -> "FaultyChannel":
        """A stream with faults."""
        return FaultyChannel(self, self.inner.transactions(patience))

    def strikes(self, event: str) -> Act | None:
        """Apply the fault of this message."""
        if self.fault is None or event != self.fault.event:
            return None
        with self._lock:
            self._count += 1
            if self._count != self.fault.nth:
                return None
        self.fired.set()
        return self.fault.act

    def wait(self, act: Act, event: str) -> None:
        """A message is on its way for longer than it should."""
        self.watch(event)
        if act is Act.ZOMBIE:
            self.resumed.wait(PATIENCE_S)


@dataclass(slots=True)
class FaultyChannel:
    """One stream."""

    shim: Faulty
    inner: Channel
    again: list[bytes] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        """Errors: ConnectorFailed, DriverDied."""
        event = REQUESTS[type(arena_codec.parse_request(data))]
        act = self.shim.strikes(event)
        if act is not None:
            self._suffer(act, event)
        with self._failures():
            self.inner.send(data)
            if act is Act.REPEAT:
                self.inner.send(data)

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed, DriverDied."""
        if self.again:
            return self.again.pop()
        with self._failures():
            data = self.inner.receive()
        if data is None:
            return None
        event = RESPONSES[type(arena_codec.parse_response(data))]
        act = self.shim.strikes(event)
        if act is not None:
            self._suffer(act, event)
        if act is Act.REPEAT:
            self.again.append(data)
        self.shim.watch(event)
        return data

    def finish(self) -> None:
        """No more requests come."""
        with self._failures():
            self.inner.finish()

    def close(self) -> None:
        """End at once."""
        self.inner.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Keep the text of a failure of the inner connector."""
        try:
            yield
        except ConnectorFailed as failure:
            if self.shim.fired.is_set():
                self.shim.failures.append(str(failure))
            raise

    def _suffer(self, act: Act, event: str) -> None:
        match act:
            case Act.DRIVER_DIES:
                raise DriverDied(event)
            case Act.CONNECTOR_DIES:
                self.shim.kill(self.inner)
                gone = f"the connector was killed at {event}"
                raise ConnectorFailed(gone) from Determinate(gone)
            case Act.STALL | Act.ZOMBIE:
                self.shim.wait(act, event)
            case Act.REPEAT:
                pass
