"""Runs one or two actors as a process of their own, which can be killed at any moment.

Its plan has all its input; its journal records what happened.
"""

import json
import logging
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from streams.app.service_process import new_id, now_ms
from streams.errors import Determinate, Indeterminate, SlackwaterError
from streams.files import write_whole
from streams.ids import CapabilityId, CollectionId
from streams.kafka.client.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.storage import Storage
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.actors import SIMPLE, Actor, janitor
from streams.torture.journal import Event, FileJournal, Wrong
from streams.torture.writers import GUEST_LEASE_MS
from streams.trace.kernel.kernel import Kernel

LONGEST_PAUSE_S = 0.03


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of a worker. `roles` take turns; clocks are `skew_ms` off."""

    name: str
    roles: tuple[str, ...]
    seed: int
    bootstrap: str
    namespace: str
    journal: str
    skew_ms: int
    targets: tuple[Target, ...]

    def save(self, path: Path) -> None:
        """Write the plan where a worker reads it."""
        write_whole(path, json.dumps(asdict(self)))


def load(path: Path) -> Plan:
    """Load a saved plan."""
    fields = json.loads(path.read_text())
    fields["roles"] = tuple(fields["roles"])
    fields["targets"] = tuple(
        Target(
            CollectionId(target["id"]),
            target["group"],
            CapabilityId(target["read"]),
            CapabilityId(target["write"]),
        )
        for target in fields["targets"]
    )
    return Plan(**fields)


def run(plan: Plan) -> None:
    """Take turns until killed; ending in any other way is wrong."""
    name = f"{plan.name}.{new_id()[:6]}"
    journal = FileJournal(Path(plan.journal))
    try:
        take_turns(plan, name, journal)
    except Exception as defect:  # noqa: BLE001  whatever it is, it has to be known
        journal.note(Wrong(name, f"the process ended: {type(defect).__name__}: {defect}"))


def take_turns(plan: Plan, name: str, journal: FileJournal) -> None:
    """The actors' steps, without end."""
    rng = Random(f"{plan.seed} {name}")  # noqa: S311  chance, no secret
    with ExitStack() as stack:
        opened = Storage.kafka(
            plan.bootstrap,
            namespace=plan.namespace,
            lease_ms=GUEST_LEASE_MS,
            now_ms=lambda: now_ms() + plan.skew_ms,
        )
        storage = stack.enter_context(opened)
        seats = [
            ActorPlace(f"{name}.{number}", storage, rng, journal, plan.targets)
            for number in range(len(plan.roles))
        ]
        actors = [
            actor(*assignment, plan) for assignment in zip(plan.roles, seats, strict=True)
        ]
        while True:
            turn(seats[0], rng.choice(actors))
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))


def actor(role: str, seat: ActorPlace, plan: Plan) -> Actor:
    """An actor's role."""
    if role != "janitor":
        return SIMPLE[role](seat)
    records = RawReader(ClientSettings(plan.bootstrap))
    return janitor(seat, records, lambda: now_ms() + plan.skew_ms, new_id, Kernel())


def turn(seat: ActorPlace, actor: Actor) -> None:
    """Run one step; record impossible results, count failures that may happen."""
    try:
        actor.step()
    except (Determinate, Indeterminate) as error:
        logging.getLogger(__name__).info("a command failed: %s", error)
        seat.journal.note(Event(seat.name, "commands failed"))
    except SlackwaterError as error:
        seat.journal.note(Wrong(seat.name, f"{type(error).__name__}: {error}"))
