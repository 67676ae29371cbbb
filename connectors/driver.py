"""The driver's side of the protocol: calls and streams of a connector, over any transport."""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from connectors.answer_timeouts import PATIENT, Patience
from connectors.protocol import arena_codec, messages
from connectors.protocol.call_validation import (
    check_apply_request,
    check_spec_response,
    check_validate_request,
    check_validate_response,
)
from connectors.protocol.messages import Extensions, Loaded, Request, Response
from connectors.protocol.session import Phase, StreamState
from connectors.protocol.violations import Rule, Side, broken
from schemas import materialize_pb2 as wire

Answer = TypeVar("Answer", bound=Message)


class Channel(Protocol):
    """An open transaction stream, as bytes."""

    def send(self, data: bytes) -> None:
        """Errors: ConnectorFailed if the connector is gone."""

    def receive(self) -> bytes | None:
        """The next response; None if the connector has ended. Errors: ConnectorFailed."""

    def finish(self) -> None:
        """No more requests come."""

    def close(self) -> None:
        """End at once, even if the connector hangs."""


class Transport(Protocol):
    """Opens streams and calls of a connector: a transport."""

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        """Call spec, validate or apply. Errors: ConnectorFailed."""

    def transactions(self, patience: Patience = PATIENT, /) -> Channel:
        """Errors: ConnectorFailed."""


class Driver:
    """Calls a connector, and validates requests and responses."""

    def __init__(self, transport: Transport, patience: Patience = PATIENT) -> None:
        self.transport, self.patience = transport, patience

    def spec(self, request: wire.SpecRequest) -> wire.SpecResponse:
        """Errors: Violation, ConnectorFailed."""
        response = self._call("spec", request, wire.SpecResponse())
        check_spec_response(response)
        return response

    def validate(self, request: wire.ValidateRequest) -> wire.ValidateResponse:
        """Errors: Violation, ConnectorFailed."""
        check_validate_request(request)
        response = self._call("validate", request, wire.ValidateResponse())
        check_validate_response(request, response)
        return response

    def apply(self, request: wire.ApplyRequest) -> wire.ApplyResponse:
        """Errors: Violation, ConnectorFailed."""
        check_apply_request(request)
        return self._call("apply", request, wire.ApplyResponse())

    def open(self, message: messages.Open, offered: Extensions | None = None) -> "Stream":
        """Begin to write. `offered` is what Spec said; None: ask for it.

        Errors: Violation, ConnectorFailed.
        """
        if offered is None:
            offered = arena_codec.extensions(self.spec(wire.SpecRequest()).extensions)
        stream = Stream(
            self.transport.transactions(self.patience), StreamState(Side.DRIVER, offered)
        )
        stream.open(message)
        return stream

    def _call(self, name: str, request: Message, response: Answer) -> Answer:
        data = self.transport.call(name, request.SerializeToString(), self.patience)
        try:
            response.ParseFromString(data)
        except DecodeError as error:
            what = response.DESCRIPTOR.name
            broken(Side.CONNECTOR, Rule.WIRE, f"expected a {what}: {error}")
        return response


class Stream:
    """A transaction stream; the driver's state machine checks every message."""

    def __init__(self, channel: Channel, session: StreamState) -> None:
        self.channel = channel
        self.session = session
        self.checkpoint = b""
        """The Flow checkpoint in Opened, or empty."""
        self.subranges: tuple[messages.Subrange, ...] = ()
        """In place of it, if parts of the range stand apart."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def open(self, message: messages.Open) -> None:
        """Send Open and wait for Opened, and have the state acknowledged if that is used."""
        try:
            self.send(message)
            opened = self.receive()
            assert isinstance(opened, messages.Opened), "the machine takes nothing else"
            self.checkpoint, self.subranges = opened.checkpoint, opened.subranges
        except BaseException:
            self.channel.close()
            raise

    def acknowledge(self) -> None:
        """Tell the connector that the driver's log has the last commit; wait for its answer."""
        self.send(messages.Acknowledge())
        self.receive()

    def send(self, message: Request) -> None:
        """Errors: Violation by the driver, and nothing was sent; ConnectorFailed."""
        self.session.take(message)
        for encoded in arena_codec.encode_request(message):
            self.channel.send(encoded.SerializeToString())

    def receive(self) -> Response:
        """The next response. Errors: Violation by the connector, ConnectorFailed."""
        data = self.channel.receive()
        if data is None:
            detail = f"the stream ended in {self.session.where}"
            broken(Side.CONNECTOR, Rule.END, detail)
        response = arena_codec.parse_response(data)
        self.session.take(response)
        return response

    def flush(self, checkpoint: bytes) -> tuple[list[Loaded], messages.Flushed]:
        """End the loads: the documents that are there, and the connector's checkpoint."""
        self.send(messages.Flush(checkpoint))
        return self.flushed()

    def flushed(self) -> tuple[list[Loaded], messages.Flushed]:
        """The messages after a Flush that was sent."""
        loaded = list(self._until_flushed())
        flushed = loaded.pop()
        assert isinstance(flushed, messages.Flushed), "the last is"
        return [message for message in loaded if isinstance(message, Loaded)], flushed

    def _until_flushed(self) -> Iterator[Response]:
        while self.session.phase is Phase.FLUSHING:
            yield self.receive()

    def commit(self) -> None:
        """Commit the stored documents, and wait until the endpoint has them."""
        self.send(messages.StartCommit())
        self.receive()

    def finish(self) -> None:
        """End between transactions. Errors: Violation, ConnectorFailed."""
        self.session.end()
        self.channel.finish()
        if (data := self.channel.receive()) is not None:
            self.session.take(arena_codec.parse_response(data))
            broken(
                Side.CONNECTOR, Rule.END, "expected the end of the stream, actual a response"
            )
