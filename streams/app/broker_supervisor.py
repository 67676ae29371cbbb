"""An embedded broker that is started again when it ends, as an environment's services are.

It keeps its port, so that its clients find it again. One that ends three times in the same way
(`streams.app.restart_policy`) is given up.
"""

import logging
import threading
import time

from streams.app.restart_policy import End, Ends, Excuse, last_error, none
from streams.errors import SlackwaterError
from streams.kafka.embedded import EmbeddedBroker

log = logging.getLogger(__name__)


class BrokerKeeper:
    """Keeps one embedded broker running from `start` to `stop`.

    `reason` says why the broker was given up; it is empty until then. While `excuse` finds that
    something else is to blame, it is not given up.
    """

    def __init__(self, broker: EmbeddedBroker, excuse: Excuse = none) -> None:
        self._broker = broker
        self._excuse = excuse
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keep-broker", daemon=True)
        self._bootstrap = ""
        self.reason = ""

    def start(self) -> str:
        """Start the broker; returns its `bootstrap`. Errors: as `EmbeddedBroker.start`."""
        self._bootstrap = self._broker.start()
        self._thread.start()
        return self._bootstrap

    def stop(self) -> None:
        """Stop the broker for good. Passed over when it was never started."""
        self._stopping.set()
        self._broker.stop()
        if self._thread.is_alive():
            self._thread.join()
            self._broker.stop()  # it may have been on its way up when it was stopped first

    def _keep(self) -> None:
        ends, end = Ends(), self._until_it_ends()
        while not self._stopping.is_set():
            said = f"broker {end} (log: {self._broker.log_file})"
            if ends.is_last(end, self._excuse):
                self.reason = f"{said}, {ends.alike} times in a row; giving up"
                return
            log.warning("%s; %s", said, ends.outlook)
            if not self._stopping.wait(ends.pause_s):
                end = self._run_again()

    def _run_again(self) -> End:
        try:
            bootstrap = self._broker.start()
        except (SlackwaterError, OSError) as cause:
            return End(1, str(cause), 0)
        if bootstrap == self._bootstrap:
            return self._until_it_ends()
        self._broker.stop()
        return End(1, f"its clients look for it at {self._bootstrap}: that port is taken", 0)

    def _until_it_ends(self) -> End:
        began = time.monotonic()
        code = self._broker.wait()
        return End(code, last_error(self._broker.said()), time.monotonic() - began)
