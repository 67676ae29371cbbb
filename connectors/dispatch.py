"""The connector's side: decodes requests, calls the connector, encodes responses."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack

from google.protobuf.message import DecodeError, Message

from connectors.connector import Connector, Transactor
from connectors.protocol import arena_codec, messages
from connectors.protocol.call_validation import (
    check_apply_request,
    check_spec_response,
    check_validate_request,
    check_validate_response,
)
from connectors.protocol.messages import Request, Response
from connectors.protocol.session import StreamState
from connectors.protocol.violations import Rule, Side, broken
from schemas import materialize_pb2 as wire

Call = Callable[[Connector, bytes], bytes]


def spec(connector: Connector, data: bytes) -> bytes:
    """Errors: Violation; whatever the connector raises."""
    request = wire.SpecRequest()
    parse(request, data)
    response = connector.spec(request)
    response.extensions.CopyFrom(arena_codec.encode_extensions(connector.extensions))
    check_spec_response(response)
    return response.SerializeToString()


def validate(connector: Connector, data: bytes) -> bytes:
    """Errors: Violation; whatever the connector raises."""
    request = wire.ValidateRequest()
    parse(request, data)
    check_validate_request(request)
    response = connector.validate(request)
    check_validate_response(request, response)
    return response.SerializeToString()


def apply(connector: Connector, data: bytes) -> bytes:
    """Errors: Violation; whatever the connector raises."""
    request = wire.ApplyRequest()
    parse(request, data)
    check_apply_request(request)
    return connector.apply(request).SerializeToString()


def parse(request: Message, data: bytes) -> None:
    """Errors: Violation by the driver if the bytes are no such message."""
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        broken(Side.DRIVER, Rule.WIRE, f"expected a {request.DESCRIPTOR.name}: {error}")


CALLS: Mapping[str, Call] = {"spec": spec, "validate": validate, "apply": apply}


def transactions(connector: Connector, data: Iterable[bytes]) -> Iterator[bytes]:
    """The responses to a stream of requests, each as soon as it is there.

    Errors: Violation; whatever the connector raises. The session is over then.
    """
    for response in serve(connector, map(arena_codec.parse_request, data)):
        for message in arena_codec.encode_response(response):
            yield message.SerializeToString()


def serve(connector: Connector, requests: Iterable[Request]) -> Iterator[Response]:
    """Like `transactions`, over decoded messages."""
    session = StreamState(Side.CONNECTOR, connector.extensions)
    with ExitStack() as stack:
        transactor: Transactor | None = None
        for request in requests:
            session.take(request)
            if isinstance(request, messages.Open):
                transactor = stack.enter_context(connector.open(request))
            assert transactor is not None, "the first request is an Open"
            for response in answer(transactor, request):
                session.take(response)
                yield response
        session.end()


def opened(transactor: Transactor) -> messages.Opened:
    """The checkpoint of the range, or those of its parts if they stand apart."""
    subranges = tuple(transactor.subranges)
    return messages.Opened(b"" if subranges else transactor.checkpoint, subranges)


def answer(transactor: Transactor, request: Request) -> Iterator[Response]:
    """The transactor's responses to a validated request."""
    match request:
        case messages.Open():
            yield opened(transactor)
        case messages.Acknowledge():
            transactor.acknowledge()
            yield messages.Acknowledged()
        case messages.Load():
            transactor.load(request)
        case messages.Flush():
            yield from transactor.flush(request)
        case messages.Store():
            transactor.store(request)
        case messages.StartCommit():
            transactor.commit()
            yield messages.StartedCommit()
