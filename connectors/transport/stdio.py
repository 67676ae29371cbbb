"""A connector that is a command: one process per call, requests on stdin, responses on stdout.

The last argument of the command is `spec`, `validate`, `apply` or `transactions`. The end of
the input is the end of the stream. A failure is an exit code other than 0 and a text on the
error output, which also takes logs.
"""

import logging
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO, NoReturn

from connectors import dispatch
from connectors.answer_timeouts import LOOK_S, NO_ANSWER, NOT_READ, PATIENT, Patience
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

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        """Errors: ConnectorFailed, Violation by the connector."""
        pipe = self.start(name, patience)
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

    def transactions(self, patience: Patience = PATIENT, /) -> "Pipe":
        """Errors: ConnectorFailed."""
        return self.start(TRANSACTIONS, patience)

    def start(self, call: str, patience: Patience) -> "Pipe":
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
        return Pipe(process, " ".join(command), patience)


def piped(stream: IO[bytes] | None) -> IO[bytes]:
    """A stream of a process that was started with pipes."""
    assert stream is not None, "it was asked for"
    return stream


class Pipe:
    """A process of a connector. Its output is read at all times, so that it never waits."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", name: str, patience: Patience
    ) -> None:
        self.process, self.name, self.patience = process, name, patience
        self.input = piped(process.stdin)
        os.set_blocking(self.input.fileno(), False)
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
            self._write(frames.framed(data))
        except (OSError, ValueError):
            raise self._failure() from None

    def _write(self, data: bytes) -> None:
        """Write to the process, which may read nothing. Errors: OSError, ValueError."""
        rest, pipe, poll = memoryview(data), self.input.fileno(), select.poll()
        poll.register(pipe, select.POLLOUT)
        with self.patience.waiting(f"{self.name}: {NOT_READ}") as look:
            while rest:
                if poll.poll(LOOK_S * 1_000):
                    rest = rest[os.write(pipe, rest) :]
                else:
                    look()

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed, Violation by the connector."""
        response: bytes | Violation | None = self.patience.take(
            self.responses, f"{self.name}: {NO_ANSWER}"
        )
        if isinstance(response, Violation):
            raise response
        if response is None:
            self.responses.put(None)
            if self._exit_code() != 0:
                raise self._failure()
        return response

    def _exit_code(self) -> int:
        """Wait until the process has ended. Errors: ConnectorFailed."""
        with self.patience.waiting(f"{self.name}: its output has ended, it has not") as look:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return self.process.wait(LOOK_S)
                look()

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
        for thread, pipe in zip(self.threads, (self.output, self.errors), strict=True):
            thread.join(GRACE_S)
            if not thread.is_alive():  # else a process of its own has the other end
                pipe.close()

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
