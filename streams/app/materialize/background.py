"""Runs a materialization in a thread of the program's own process."""

import threading
import time
from collections.abc import Callable

from connectors.driver import Driver
from connectors.runtime.runner import Runner, Status
from connectors.runtime.task import Materialization
from streams.app.service_process import now_ms
from streams.errors import Determinate
from streams.ids import Timestamp
from streams.storage.client.shards import Shards
from streams.trace.kernel.kernel import Kernel

LOOK_EVERY_S = 0.05


class BackgroundTask:
    """A task that runs from `start` to `stop`. `report` is called in its thread."""

    def __init__(
        self,
        task: Materialization,
        driver: Driver,
        shards: Shards,
        report: Callable[[Status], None] = lambda _: None,
    ) -> None:
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._runner = Runner(
            task,
            driver,
            shards,
            now_ms=now_ms,
            stopping=self._stopping,
            report=report,
            kernel=Kernel(),
        )
        self._thread = threading.Thread(target=self._run, name="materialize")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._runner.run()
        except Exception as failure:  # noqa: BLE001  told by the thread that calls `check`
            self._failure = failure

    @property
    def status(self) -> Status:
        """The status of the materialization."""
        return self._runner.status

    def check(self) -> None:
        """Errors: whatever has ended the materialization."""
        if self._failure is not None:
            raise self._failure

    def reach(
        self, until: Timestamp, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until the endpoint holds a time.

        Errors: as both checks; Determinate if it takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while (self.status.time or 0) < until:
            check()
            self.check()
            if time.monotonic() > deadline:
                stalls = "; ".join(f"{name}: {why}" for name, why in self.status.stalls.items())
                raise Determinate(
                    f"the tables do not reach the views after {timeout_s:.0f} s:"
                    f" {self.status.state} {self.status.message or stalls}"
                )
            time.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        """Write no more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
