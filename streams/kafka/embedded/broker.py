"""The embedded broker's process: format once, start, wait until it answers, stop.

Invariant: at most one broker runs per directory (the guard holds its lock), and only while the
process that started it lives. The same directory gives the same data, and the same port if it
is free, so that clients find it again after a restart.
"""

import logging
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.errors import Determinate, InvalidUsage
from streams.files import user_cache, write_whole
from streams.java import LEAN_HEAP, find_java
from streams.kafka.embedded import guard, properties
from streams.kafka.embedded.formatting import format_directory
from streams.kafka.embedded.jars import kafka_jars, telling_lines
from streams.kafka.embedded.security import BrokerSecurity

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.05
_STOP_TIMEOUT_S = 30
_ANSWER_TIMEOUT_S = 5
_PORT_TRIES = 3
_SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
_HEAP = (*LEAN_HEAP, "-XX:MaxRAMPercentage=25", "-XX:+ExitOnOutOfMemoryError")
"""The largest heap: 3,000 collections need more than 512 MB, few need 128 MB.

A broker out of memory exits and is restarted; one that only collects garbage would answer no
request.
"""


class EmbeddedBroker:
    """One real Kafka node under `directory`, a child of this process.

    Usable as a context manager. `cache` is where jars are kept. With `security` its clients
    need TLS, a password and rights; without, it trusts this machine.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cache: Path | None = None,
        start_timeout_s: float = 120,
        security: BrokerSecurity | None = None,
    ) -> None:
        self._directory = directory.absolute()
        self._cache = cache or user_cache()
        self._start_timeout_s = start_timeout_s
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port`. Errors: InvalidUsage when it is not running."""
        if self._process is None:
            raise InvalidUsage("embedded broker: expected running, actual stopped")
        return f"127.0.0.1:{self._port}"

    @property
    def log_file(self) -> Path:
        """The broker's log file."""
        return self._directory / "broker.log"

    def start(self) -> str:
        """Start and wait until it answers; return `bootstrap`. Restarts one that has exited.

        Errors: InvalidUsage if it is running; Determinate if Java or the jars are not
        available, if another process uses the directory, or if the broker does not start (the
        message has its output).
        """
        if self._process is not None and self._process.poll() is None:
            raise InvalidUsage("embedded broker: expected stopped, actual running")
        java = find_java()
        jars = kafka_jars(self._cache)
        self._directory.mkdir(parents=True, exist_ok=True)
        for tries_left in reversed(range(_PORT_TRIES)):
            self._launch(java, jars)
            try:
                self._await()
            except Determinate as error:
                self.stop()
                if tries_left == 0 or "Address already in use" not in str(error):
                    raise
            else:
                break
        log.info("embedded broker started", extra={"bootstrap": self.bootstrap})
        return self.bootstrap

    def wait(self) -> int:
        """Wait until it exits, by itself or by another thread's `stop`.

        Returns the exit code, or minus the signal number; 0 if it is not running.
        """
        process = self._process
        code = 0 if process is None else process.wait()
        # an exit code has 8 bits: the guard passes a signal on as 256 minus its number
        return code - 256 if code > 256 - signal.NSIG else code

    def said(self) -> str:
        """Return its output since the last start."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def stop(self) -> None:
        """Shut down cleanly: the broker closes its files. Ignored if it is stopped."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # the guard sees the end of file and ends the broker
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # and Linux kills the broker with its guard
            process.wait()

    def kill(self) -> None:
        """Kill it as a crash would: nothing is flushed or closed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.kill()  # the guard; Linux kills the broker with it
        process.wait()
        process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, java: Path, jars: Path) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # of one that has ended
        port, controller_port = self._ports()
        data, conf = self._directory / "data", self._directory / "server.properties"
        conf.touch(mode=0o600)  # it may hold passwords
        text = properties.server_properties(data, port, controller_port, self._security)
        conf.write_text(text)
        logging_conf = self._directory / "log4j2.yaml"
        logging_conf.write_text(properties.LOG4J)
        command = [str(java), *_SMALL_JVM, f"-Dlog4j2.configurationFile={logging_conf}"]
        classes = ["-cp", f"{jars}/*"]
        format_directory(data, conf, [*command, "-Xmx128m", *classes], jars)
        self._port = port
        self._process = self._guarded([*command, *_HEAP, *classes, "kafka.Kafka", str(conf)])

    def _guarded(self, command: list[str]) -> subprocess.Popen[bytes]:
        lock = self._directory / "broker.lock"
        with self.log_file.open("wb") as said:
            return subprocess.Popen(  # noqa: S603 -- our own command line, no shell
                [sys.executable, "-I", "-S", guard.__file__, str(lock), *command],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to us only: the broker outlives our clean-up
                start_new_session=True,
            )

    def _ports(self) -> tuple[int, int]:
        """Return the last ports if they are free, else new ones."""
        file = self._directory / "ports"
        text = file.read_text() if file.exists() else ""
        match = re.fullmatch(r"(\d+) (\d+)\n", text)
        port, controller_port = _free_ports(*(map(int, match.groups()) if match else (0, 0)))
        write_whole(file, f"{port} {controller_port}\n")
        return port, controller_port

    def _await(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            process = self._process
            if process is None:
                raise Determinate("embedded broker was stopped while it started")
            code = process.poll()
            if code == guard.LOCKED:
                raise Determinate(f"directory {self._directory} is used by another broker")
            if code is not None:
                raise Determinate(
                    f"embedded broker ended with code {code}: {self._last_words()}"
                )
            if self._answers():
                return
            time.sleep(_LOOK_EVERY_S)
        raise Determinate(
            f"embedded broker does not answer after {self._start_timeout_s} s: "
            f"{self._last_words()}"
        )

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._port)) != 0:
                return False
        security = self._security
        secured = {} if security is None else security.client(security.administrator)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **secured})
        try:
            return bool(admin.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers)
        except KafkaException:
            return False

    def _last_words(self) -> str:
        return telling_lines(self.said())


def _free_ports(*wanted: int) -> tuple[int, int]:
    """Return free ports: the preferred ones if all of them are free, else any."""
    try:
        first, second = _bind(wanted)
    except OSError:
        first, second = _bind((0, 0))
    return first, second


def _bind(ports: tuple[int, ...]) -> list[int]:
    sockets = [socket.socket() for _ in ports]
    try:
        for socket_, port in zip(sockets, ports, strict=True):
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            socket_.bind(("127.0.0.1", port))
        return [socket_.getsockname()[1] for socket_ in sockets]
    finally:
        for socket_ in sockets:
            socket_.close()
