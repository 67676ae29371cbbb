"""How far upper of each object was, all the while, as SHOW says."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from tests.e2e.containers import Environment

EVERY_S = 0.5
SHOWN = ("SOURCES", "MATERIALIZED VIEWS", "SINKS")
Uppers = Mapping[str, list[tuple[float, int | None]]]
"""By object, in the order of the clock: seconds of this clock, and upper in milliseconds then.
None where nobody answered."""


class Frontiers:
    """A thread that asks, and what it was told."""

    def __init__(self, ask: Callable[[], Mapping[str, int]]) -> None:
        self._ask = ask
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.uppers: dict[str, list[tuple[float, int | None]]] = {}

    def begin(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def end(self) -> None:
        """Ask no more."""
        self._ending.set()
        self._thread.join(30)

    def _work(self) -> None:
        while not self._ending.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Ask once."""
        try:
            uppers = self._ask()
        except Exception:  # noqa: BLE001  the coordinator is away, in whatever way
            uppers = {}
        now = time.time()
        for name in self.uppers.keys() | uppers.keys():
            self.uppers.setdefault(name, []).append((now, uppers.get(name)))


def shown(environment: Environment) -> Mapping[str, int]:
    """Upper of each object that has one."""
    answers: Iterable[dict[str, object]] = (
        row for kind in SHOWN for row in environment.client.run(f"SHOW {kind}")[0].dicts()
    )
    return {
        str(row["name"]): int(str(row["upper"])) for row in answers if row["upper"] is not None
    }
