"""Rounds of hostile input, and a check after each that others are unharmed.

A round sends a few inputs, then checks that every process still runs, that the honest client
gets correct answers from its collection and from its view, and that it gets them in time. The
attacker has its own collections, sources and views, whose state is not checked.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from streams.app.freshness import percentile
from streams.app.signals import Stop, Stopped
from streams.errors import SlackwaterError
from streams.torture.hostile.honest_clients import timed
from streams.torture.hostile.inputs import evidence_line
from streams.torture.hostile.scene import HostileScene
from streams.torture.hostile.surfaces import SURFACES
from streams.torture.oracle import Verdict

INPUTS = (3, 12)
REMEMBERED = 600
TIDY_EVERY = 10
MOST_BATCHES = 100
REPLACED = 0.15


@dataclass(slots=True)
class Assault:
    """One run; `tell` is given the seconds that have passed, `only` names the surfaces.

    Told to stop, it ends with what it has found so far.
    """

    scene: HostileScene
    seed: int
    tell: Callable[[float], None]
    only: Sequence[str] = tuple(SURFACES)
    stopping: Stop = field(default_factory=Stop)
    rng: Random = field(init=False)
    starts: Mapping[str, int] = field(init=False)
    figures: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    evidence: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    write_s: list[float] = field(default_factory=list)
    view_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.starts = {
            name: child.starts for name, child in self.scene.environment.children.items()
        }
        self.rng = Random(self.seed)  # noqa: S311  chance to be repeated, no secret

    def run(self, seconds: float, rounds: int) -> Verdict:
        """Rounds until time or their number is up; one wrong answer ends them."""
        began = time.monotonic()
        while not self.wrong and self.figures["rounds"] < rounds:
            if (passed := time.monotonic() - began) > seconds:
                break
            self.tell(passed)
            try:
                self.stopping.check()
                self.round()
            except Stopped:
                break
        if not self.figures["rounds"]:
            self.wrong.append("no round was completed: nothing was tested")
        return Verdict(self._figures(), tuple(self.wrong))

    def round(self) -> None:
        """Send inputs, and record the problems of the honest client."""
        scene, number = self.scene, self.figures["rounds"]
        if self.rng.random() < REPLACED:
            self._noting(scene.replace)
        for _ in range(self.rng.randint(*INPUTS)):
            self._attack(number)
        scene.view.publish()  # first: what the view takes, storage takes at the same time
        self._noting(lambda: scene.writer.write(number))
        self._note(timed(lambda: scene.writer.check(number), self.write_s))
        self._note(timed(scene.view.check, self.view_s))
        self._note(scene.told())
        self._note(scene.squatted())
        for session in scene.sessions:
            self._note(session.problem)
        if number % TIDY_EVERY == TIDY_EVERY - 1:
            self._noting(scene.tidy)
            scene.harvest()
        for name in self._ended():
            self._note(f"the {name} ended")
        if scene.writer.batches() > MOST_BATCHES and not scene.clock.is_taken:
            self._note(f"{scene.writer.batches()} batches: compaction makes no progress")
        self.figures["rounds"] += 1

    def _attack(self, number: int) -> None:
        """One surface: each input is remembered before it is sent."""
        surfaces, weights = zip(*(SURFACES[name] for name in self.only), strict=True)
        (surface,) = self.rng.choices(surfaces, weights)
        inputs = surface(self.rng, self.scene.known)
        sent = next(inputs)
        while True:
            self.evidence.append(evidence_line(number, sent))
            self.figures[f"{sent.surface} inputs"] += 1
            place = self.scene.senders.send(sent)
            try:
                sent = inputs.send(place)
            except StopIteration:
                return

    def _noting(self, do: Callable[[], None]) -> None:
        """Do it, and note how it failed."""
        try:
            do()
        except SlackwaterError as error:
            self._note(f"{type(error).__name__}: {error}")

    def _note(self, said: str) -> None:
        """Record a problem, if there is one."""
        if said:
            self.wrong.append(f"round {self.figures['rounds']}: {said}")

    def _ended(self) -> list[str]:
        """The processes that ended since the run began."""
        children = self.scene.environment.children
        return [
            name
            for name, child in children.items()
            if child.starts != self.starts[name] or child.pid is None
        ]

    def _figures(self) -> dict[str, int]:
        figures = self.figures.copy()
        for session in self.scene.sessions:
            figures.update(session.figures)
        figures["refused by the broker"] = self.scene.senders.refused
        figures["seconds that others took"] = int(self.scene.clock.taken_s)
        for answer, count in sorted(self.scene.answers.items()):
            figures[f"answers {answer}"] = count
        logs = self.scene.environment.settings.directory / "logs"
        figures["tracebacks logged"] = tracebacks(logs)
        for name, seconds in (("write", self.write_s), ("view", self.view_s)):
            figures[f"honest {name} ms p50"] = int(1000 * percentile(seconds, 0.5))
            figures[f"honest {name} ms max"] = int(1000 * max(seconds, default=0))
        return figures


def tracebacks(logs: Path) -> int:
    """The number of stack traces that the services have logged."""
    return sum(
        file.read_text(errors="replace").count("Traceback (most recent call last)")
        for file in logs.glob("*.log")
    )
