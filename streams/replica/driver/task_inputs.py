"""What the driver gives to tasks: plans, and the descriptors of micro-batches that run."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streams.replica.tasks import descriptor
from streams.replica.tasks.descriptor import Descriptor, write_state


class TaskInputs(Protocol):
    """Keeps them until they are dropped. Errors of all methods: Determinate."""

    @property
    def place(self) -> str:
        """The text by which a task finds them and the run files (`workplace.of`)."""

    def put_plan(self, name: str, plan: str) -> None:
        """Keep a plan under the hash of its content."""

    def put_step(self, batch: Descriptor) -> None:
        """Keep the descriptor of a micro-batch."""

    def drop_step(self, step: str) -> None:
        """Forget the descriptor of a micro-batch that has ended."""


@dataclass(frozen=True, slots=True)
class DirectoryInputs:
    """Files of the state directory, which tasks share."""

    directory: Path

    @property
    def place(self) -> str:
        """The directory."""
        return str(self.directory)

    def put_plan(self, name: str, plan: str) -> None:
        """Write a plan."""
        path = self.directory / "plans" / name
        if not path.exists():
            write_state(path, plan.encode())

    def put_step(self, batch: Descriptor) -> None:
        """Write a descriptor."""
        descriptor.write(self.directory, batch)

    def drop_step(self, step: str) -> None:
        """Delete a descriptor."""
        descriptor.path_of(self.directory, step).unlink(missing_ok=True)


@dataclass(slots=True)
class ServedInputs:
    """In memory: tasks ask for them (`streams.replica.tasks.workplace`). Thread-safe."""

    place: str = field(default="", repr=False)
    """Where to ask, and how to get at run files; set once the driver listens."""
    plans: dict[str, bytes] = field(default_factory=dict, repr=False)
    steps: dict[str, bytes] = field(default_factory=dict, repr=False)

    def put_plan(self, name: str, plan: str) -> None:
        """Keep a plan."""
        self.plans[name] = plan.encode()

    def put_step(self, batch: Descriptor) -> None:
        """Keep a descriptor."""
        self.steps[batch.step] = pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)

    def drop_step(self, step: str) -> None:
        """Forget a descriptor."""
        self.steps.pop(step, None)

    def answer(self, kind: str, name: str) -> bytes | None:
        """Return a `plan` or the descriptor of a `step`; None if there is none, or no more."""
        return (self.plans if kind == "plan" else self.steps).get(name)
