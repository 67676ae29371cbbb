"""A connector that is a command: one process per call, requests on stdin, responses on stdout.

The last argument of the command is `spec`, `validate`, `apply` or `transactions`. The end of
the input is the end of the stream. A failure is an exit code other than 0 and a text on the
error output, which also takes logs.
"""

import logging
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from queue import SimpleQueue
from threading import Thread
from typing import IO, NoReturn

from connectors import dispatch
from connectors.connector import Connector
from connectors.protocol.violations import Side, Violation
from connectors.transport import frames
from connectors.transport.errors import ConnectorFailed, text_of

log = logging.getLogger(__name__)

TRANSACTIONS = "transactions"
CALLS = (*dispatch.CALLS, TRANSACTIONS)
LAST_LINES = 20
GRACE_S = 5.0
"""How long a process may take to end after its input has ended."""


def serve(
    connector: Connector, call: str, pipes: tuple[IO[bytes], IO[bytes]], errors: IO[bytes]
) -> int:
    """Answer one call on two pipes; the exit code of the process."""
    reading, writing = pipes
    try:
        if call == TRANSACTIONS:
            requests = frames.read_all(reading, Side.DRIVER)
            for response in dispatch.transactions(connector, requests):
                frames.write(writing, response)
        else:
            request = frames.read(reading, Side.DRIVER)
            frames.write(writing, dispatch.CALLS[call](connector, request or b""))
    except Exception as error:  # noqa: BLE001 whatever it is, it is the process's last word
        errors.write(f"{text_of(error)}\n".encode())
        errors.flush()
        return 1
    return 0


def main(connector: Connector, arguments: Sequence[str] | None = None) -> NoReturn:
    """Be the command of a connector: answer the call that is the last argument, and exit.

    `arguments`: those after the command's name; left out: those of this process. What is
    printed meanwhile goes to the error output, since the output has the responses.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or given[0] not in CALLS:
        sys.exit(f"expected one argument of {', '.join(CALLS)}, actual {' '.join(given)!r}")
    pipes = (sys.stdin.buffer, sys.stdout.buffer)
    with redirect_stdout(sys.stderr):
        code = serve(connector, given[0], pipes, sys.stderr.buffer)
    sys.exit(code)


class Command:
    """A connector behind a command. `environment` is all that its processes are given."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.command = command
        self.environment = environment

    def call(self, name: str, request: bytes) -> bytes:
        """Errors: ConnectorFailed, Violation by the connector."""
        pipe = self.start(name)
        try:
            pipe.send(request)
            pipe.finish()
            response = pipe.receive()
            more = pipe.receive() if response is not None else None
        finally:
            pipe.close()
        if response is None or more is not None:
            raise ConnectorFailed(f"{pipe}: expected one answer to {name}")
        return response

    def transactions(self) -> "Pipe":
        """Errors: ConnectorFailed."""
        return self.start(TRANSACTIONS)

    def start(self, call: str) -> "Pipe":
        """A process for one call. Errors: ConnectorFailed if it cannot be started."""
        command = [*self.command, call]
        try:
            process = subprocess.Popen(  # noqa: S603 the command is the user's
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
            )
        except OSError as error:
            raise ConnectorFailed(f"cannot start {' '.join(command)}: {error}") from error
        return Pipe(process, " ".join(command))


def piped(stream: IO[bytes] | None) -> IO[bytes]:
    """A stream of a process that was started with pipes."""
    assert stream is not None, "it was asked for"
    return stream


class Pipe:
    """A process of a connector. Its output is read at all times, so that it never waits."""

    def __init__(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        self.process, self.name = process, name
        self.input = piped(process.stdin)
        self.output, self.errors = piped(process.stdout), piped(process.stderr)
        self.said: deque[str] = deque(maxlen=LAST_LINES)
        self.responses: SimpleQueue[bytes | Violation | None] = SimpleQueue()
        self.threads = [
            Thread(target=target, daemon=True) for target in (self._read, self._log)
        ]
        for thread in self.threads:
            thread.start()

    def __str__(self) -> str:
        return self.name

    def send(self, data: bytes) -> None:
        """Errors: ConnectorFailed."""
        try:
            frames.write(self.input, data)
        except (OSError, ValueError):
            raise self._failure() from None

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed, Violation by the connector."""
        response = self.responses.get()
        if isinstance(response, Violation):
            raise response
        if response is None:
            self.responses.put(None)
            if self.process.wait() != 0:
                raise self._failure()
        return response

    def finish(self) -> None:
        """Close the input of the process."""
        try:
            self.input.close()
        except OSError:
            raise self._failure() from None

    def close(self) -> None:
        """End the process, by force if it does not end with its input."""
        try:
            self.input.close()
        except OSError:
            log.debug("connector closed its input first", extra={"connector": self.name})
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self.threads:
            thread.join()
        self.output.close()
        self.errors.close()

    def _read(self) -> None:
        try:
            for response in frames.read_all(self.output, Side.CONNECTOR):
                self.responses.put(response)
        except Violation as violation:
            self.responses.put(violation)
        self.responses.put(None)

    def _log(self) -> None:
        for line in self.errors:
            text = line.decode(errors="replace").rstrip()
            self.said.append(text)
            log.info("connector", extra={"connector": self.name, "line": text})

    def _failure(self) -> ConnectorFailed:
        """The last output of a process that has ended or is about to.

        It is all that is known: that a pipe was closed is no cause.
        """
        try:
            code: int | None = self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            code = None
        self.threads[1].join(GRACE_S)
        said = "\n".join(self.said) or "it said nothing"
        return ConnectorFailed(f"{self.name} ended with exit code {code}: {said}")
