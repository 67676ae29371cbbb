"""gRPC: a connector as the service `materialize.Driver`, and a driver that calls one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Full, Queue, SimpleQueue
from threading import Thread
from typing import NoReturn

import grpc

from connectors import dispatch
from connectors.answer_timeouts import LOOK_S, NO_ANSWER, NOT_READ, PATIENT, Patience
from connectors.connector import Connector
from connectors.transport.errors import LONGEST, ConnectorFailed, text_of
from streams.errors import Determinate, Indeterminate, InvalidUsage

SERVICE = "materialize.Driver"
METHODS = {"spec": "Spec", "validate": "Validate", "apply": "Apply"}
OPTIONS = [
    ("grpc.max_receive_message_length", LONGEST),
    ("grpc.max_send_message_length", LONGEST),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 310_000),  # servers refuse pings that come every 5 minutes
    ("grpc.keepalive_timeout_ms", 20_000),
]
AHEAD = 16
"""So many requests wait to be sent; a driver that is faster waits itself."""
CALLS = 256
"""So many calls and streams at a time, each in a thread; a task has up to 64 streams."""


def server(connector: Connector, address: str) -> tuple[grpc.Server, int]:
    """A server that runs, and its port. Errors: RuntimeError if the address is taken."""
    running = grpc.server(
        ThreadPoolExecutor(CALLS), options=OPTIONS, maximum_concurrent_rpcs=CALLS
    )
    handlers = {
        METHODS[name]: grpc.unary_unary_rpc_method_handler(partial(_unary, connector, call))
        for name, call in dispatch.CALLS.items()
    }
    handlers["Transactions"] = grpc.stream_stream_rpc_method_handler(
        partial(_stream, connector)
    )
    service = grpc.method_handlers_generic_handler(SERVICE, handlers)
    running.add_generic_rpc_handlers((service,))
    port = running.add_insecure_port(address)
    running.start()
    return running, port


def _unary(
    connector: Connector, call: dispatch.Call, request: bytes, context: grpc.ServicerContext
) -> bytes:
    try:
        return call(connector, request)
    except Exception as error:
        context.abort(status_of(error), text_of(error))
        raise AssertionError("abort raises") from error


def _stream(
    connector: Connector, requests: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    try:
        yield from dispatch.transactions(connector, requests)
    except Exception as error:  # noqa: BLE001 whatever it is, the driver is told
        if context.is_active():
            context.abort(status_of(error), text_of(error))


def status_of(error: Exception) -> grpc.StatusCode:
    """The kind of a failure, as gRPC names it."""
    match error:
        case InvalidUsage():
            return grpc.StatusCode.INVALID_ARGUMENT
        case Determinate():
            return grpc.StatusCode.UNAVAILABLE
        case _:
            return grpc.StatusCode.INTERNAL


class Rpc:
    """A connector behind an address; `close` when it is not needed any more."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, options=OPTIONS)

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        """Errors: ConnectorFailed."""
        method = self.channel.unary_unary(f"/{SERVICE}/{METHODS[name]}")
        answers, future = SimpleQueue[None](), method.future(request)
        future.add_done_callback(lambda _: answers.put(None))
        try:
            patience.take(answers, f"{self.address}: no answer to {name}")
            response: bytes = future.result()
        except grpc.RpcError as error:
            fail(self.address, error)
        finally:
            future.cancel()
        return response

    def transactions(self, patience: Patience = PATIENT, /) -> "RpcStream":
        """A stream; that it cannot be reached is seen with the first response."""
        return RpcStream(self.channel, self.address, patience)

    def close(self) -> None:
        """End all streams."""
        self.channel.close()


class RpcStream:
    """One transaction stream over gRPC."""

    def __init__(self, channel: grpc.Channel, address: str, patience: Patience) -> None:
        self.address, self.patience = address, patience
        self.requests: Queue[bytes | None] = Queue(AHEAD)
        method = channel.stream_stream(f"/{SERVICE}/Transactions")
        self.responses = method(iter(self.requests.get, None))
        self.read: SimpleQueue[bytes | grpc.RpcError | None] = SimpleQueue()
        Thread(target=self._read, name="connector-read", daemon=True).start()

    def send(self, data: bytes) -> None:
        """Errors: ConnectorFailed."""
        self._put(data)

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed."""
        response = self.patience.take(self.read, f"{self.address}: {NO_ANSWER}")
        if response is None or isinstance(response, grpc.RpcError):
            self.read.put(response)
        if isinstance(response, grpc.RpcError):
            fail(self.address, response)
        return response

    def _read(self) -> None:
        try:
            for response in self.responses:
                self.read.put(response)
        except grpc.RpcError as error:
            self.read.put(error)
        else:
            self.read.put(None)

    def finish(self) -> None:
        """No more requests come."""
        self._put(None)

    def close(self) -> None:
        """Cancel the call; the thread that sends ends with it."""
        self.responses.cancel()
        while True:
            try:
                self.requests.put_nowait(None)
            except Full:
                self.requests.get_nowait()
            else:
                return

    def _put(self, data: bytes | None) -> None:
        with self.patience.waiting(f"{self.address}: {NOT_READ}") as look:
            while True:
                try:
                    self.requests.put(data, timeout=LOOK_S)
                except Full:
                    if not self.responses.is_active():
                        fail(self.address, self.responses)
                    look()
                else:
                    return


def fail(address: str, error: grpc.RpcError) -> NoReturn:
    """Raise the connector's error, from gRPC's exception.

    That nobody answers can pass. All other failures are the connector's own, of which there is
    text alone.
    """
    if not isinstance(error, grpc.Call):
        raise ConnectorFailed(f"{address}: {error}") from None
    text = f"{address}: {error.code().name}: {error.details()}"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        raise ConnectorFailed(text) from Indeterminate(text)
    raise ConnectorFailed(text) from None
