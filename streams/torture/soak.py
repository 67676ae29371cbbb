"""The soak on a real broker: processes that are killed, a broker that is killed, laps.

A lap makes its own collections, runs all actors on them for a while, kills the processes that
are left and reads everything to its end; then all journals are judged. A lap is short enough
that what was written fits in memory, and a soak has as many as time allows.

The seed decides who is killed, when, and what each incarnation does; what it cannot decide is
which of two processes is faster.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.kafka.embedded import EmbeddedBroker
from streams.storage import Storage
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.actors import create
from streams.torture.final_check import last_looks
from streams.torture.journal import Entry, FileJournal, read_journal
from streams.torture.oracle import Verdict, judge
from streams.torture.worker import Plan
from streams.torture.zygote import Zygote

CAST = (
    ("writer", "guest"),
    ("writer", "guest"),
    ("reader", "reader"),
    ("reader", "keeper"),
    ("janitor", "keeper"),
)
"""The actors that share a process."""

LAP_S = 30.0
KILL_EVERY_S = (1.0, 3.0)
OUTAGE_EVERY_S = (12.0, 20.0)
OUTAGE_S = (1.0, 4.0)
SKEW_MS = 6 * 3_600_000
STEP_S = 0.2


@dataclass(slots=True)
class Soak:
    """Laps on one broker under `directory`; `tell` is given the seconds that have passed."""

    broker: EmbeddedBroker
    zygote: Zygote
    directory: Path
    seed: int
    tell: Callable[[float], None]
    stopping: Stop = field(default_factory=Stop)
    rng: Random = field(init=False)
    figures: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    evidence: list[Entry] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)  # noqa: S311  chance to be repeated, no secret

    def run(self, seconds: float) -> Verdict:
        """Laps for so long; the last one may be short, and one is enough to be wrong."""
        lap = 0
        while not self.wrong and (left := seconds - self._passed()) > 0:
            if self.stopping.is_set():
                break
            verdict, entries = self.lap(lap, min(LAP_S, left))
            self.figures.update(verdict.figures)
            self.wrong += verdict.wrong
            self.evidence = entries
            lap += 1
        for what in ("appends", "reads checked"):
            if not self.figures[what]:
                self.wrong.append(f"no {what} in {seconds:g} s: nothing was tested")
        return Verdict({**self.figures, "laps": lap}, tuple(self.wrong))

    def lap(self, number: int, seconds: float) -> tuple[Verdict, list[Entry]]:
        """Run one lap; return its verdict and all journal entries."""
        place = self.directory / f"lap{number}"
        place.mkdir(parents=True)
        namespace = f"torture{number}"
        with Storage.kafka(self.broker.bootstrap, namespace=namespace) as storage:
            targets = create(storage)
            with self._loose(place, namespace, targets) as workers:
                self._afflict(workers, seconds)
            entries = self._entries(place)
            with closing(FileJournal(place / "judge.journal")) as journal:
                seat = ActorPlace("judge", storage, self.rng, journal, targets)
                last_looks(seat, entries, lambda: time.sleep(STEP_S))
        entries = self._entries(place)
        return judge(entries), entries

    @contextmanager
    def _loose(
        self, place: Path, namespace: str, targets: tuple[Target, ...]
    ) -> Iterator[dict[Path, int]]:
        """Everybody by plan, until the end of the context, which is `kill -9` for all."""
        workers: dict[Path, int] = {}
        for number, roles in enumerate(CAST):
            name = f"{roles[0]}{number}"
            plan = Plan(
                name=name,
                roles=roles,
                seed=self.rng.getrandbits(32),
                bootstrap=self.broker.bootstrap,
                namespace=namespace,
                journal=str(place / f"{name}.journal"),
                skew_ms=self.rng.randint(-SKEW_MS, SKEW_MS),
                targets=targets,
            )
            plan.save(place / f"{name}.json")
            workers[place / f"{name}.json"] = self.zygote.start(place / f"{name}.json")
        try:
            yield workers
        finally:
            for pid in workers.values():
                self.zygote.kill(pid)

    def _afflict(self, workers: dict[Path, int], seconds: float) -> None:
        """Kill processes, and sometimes the broker, for so long."""
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + self.rng.uniform(*KILL_EVERY_S)
        next_outage = time.monotonic() + self.rng.uniform(*OUTAGE_EVERY_S)
        while (now := time.monotonic()) < end and not self.stopping.is_set():
            if now >= next_kill:
                plan = self.rng.choice(sorted(workers))
                self.zygote.kill(workers[plan])
                workers[plan] = self.zygote.start(plan)
                self.figures["kills"] += 1
                next_kill = now + self.rng.uniform(*KILL_EVERY_S)
            if now >= next_outage:
                self._outage()
                next_outage = time.monotonic() + self.rng.uniform(*OUTAGE_EVERY_S)
            time.sleep(STEP_S)
            self.tell(self._passed())

    def _outage(self) -> None:
        """Stop or kill the broker for a while."""
        if self.rng.random() < 0.5:  # noqa: PLR2004  either way
            self.broker.kill()
        else:
            self.broker.stop()
        time.sleep(self.rng.uniform(*OUTAGE_S))
        self.broker.start()
        self.figures["outages"] += 1

    def _passed(self) -> float:
        return time.monotonic() - self.began

    def _entries(self, place: Path) -> list[Entry]:
        files = sorted(place.glob("*.journal"))
        return [entry for file in files for entry in read_journal(file)]


def new_seed() -> int:
    """A random seed."""
    return now_ms() % (1 << 31)
