"""The driver's side of connections that tasks make: each is served in a thread of its own.

A task proves that it knows the token of the door
(`streams.replica.tasks.authenticated_frames`), and so does the driver.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyspark import SparkContext

from streams.replica.tasks.authenticated_frames import HANDSHAKE_S, Door, Frames

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 32

LOST_S = 0.2
MOST_STRANGERS = 8
"""Connections that may be about to prove who they are."""


@dataclass(slots=True)
class TaskRpcServer:
    """Listens where executors reach the driver; `serve` is called with each connection.

    A connection is closed when `serve` returns, whose OSErrors are those of its connection.
    After `stopping` no task is let in.
    """

    name: str
    serve: Callable[[Frames], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    _address: tuple[str, int] = ("", 0)
    _threads: list[threading.Thread] = field(default_factory=list)
    _connections: set[Frames] = field(default_factory=set)
    _strangers: threading.Semaphore = field(
        default_factory=partial(threading.Semaphore, MOST_STRANGERS)
    )

    def start(self, listened: str, reached: str) -> Door:
        """Listen at an address, which executors reach by another name. Errors: OSError."""
        listener = socket.create_server((listened, 0))
        self._address = listener.getsockname()[:2]
        door = Door(reached, self._address[1], secrets.token_bytes(TOKEN_BYTES))
        self._run(partial(self._listen, listener, door), f"{self.name}-door")
        return door

    def stop(self) -> None:
        """Refuse new connections, and end the open ones; `join` waits."""
        self.stopping.set()
        with suppress(OSError):  # it ends the wait of the thread that listens
            socket.create_connection(self._address, HANDSHAKE_S).close()
        self.end_connections()

    def end_connections(self) -> None:
        """End the open connections; others may be made."""
        for frames in tuple(self._connections):
            frames.end()

    def join(self, until: float) -> bool:
        """Wait for all threads until a time of the monotonic clock; whether all have ended."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: socket.socket, door: Door) -> None:
        with listener:
            while not self.stopping.is_set():
                try:
                    self._accept(listener, door)
                except (OSError, RuntimeError) as error:  # too many files, or threads
                    log.warning("a connection was lost", extra={"cause": str(error)})
                    self.stopping.wait(LOST_S)

    def _accept(self, listener: socket.socket, door: Door) -> None:
        connected, _ = listener.accept()
        if self.stopping.is_set() or not self._strangers.acquire(blocking=False):
            connected.close()
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        try:
            self._run(partial(self._welcome, Frames(connected), door), self.name)
        except BaseException:
            self._strangers.release()
            connected.close()
            raise

    def _welcome(self, frames: Frames, door: Door) -> None:
        """Let a task in, and serve it."""
        with frames:
            try:
                frames.admit(door.token)
            except OSError as refused:
                log.warning("a connection was refused", extra={"cause": str(refused)})
                return
            finally:
                self._strangers.release()
            self._connections.add(frames)
            try:
                if not self.stopping.is_set():
                    self.serve(frames)
            except OSError as lost:
                log.debug("a task left", extra={"cause": str(lost)})
            finally:
                self._connections.discard(frames)


def addresses(context: SparkContext) -> tuple[str, str]:
    """Return where the driver listens, and where its executors reach it: as for Spark's own."""
    if context.master.startswith("local"):
        return LOOPBACK, LOOPBACK
    settings = context.getConf()
    reached = settings.get("spark.driver.host") or socket.gethostname()
    return settings.get("spark.driver.bindAddress") or reached, reached
