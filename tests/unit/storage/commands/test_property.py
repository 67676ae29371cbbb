"""Whatever is delivered twice, killed, or run beside another: the same outcomes and effects."""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import codec
from streams.ids import CollectionId
from streams.kafka.client.transactions import Fenced
from streams.storage.commands import dedup, session
from tests.support.command_service import DESCRIPTION, NAMES, Killed, World, update
from tests.support.examples import examples

T = CollectionId("t")


@dataclass
class Model:
    """What one collection's commands come to, one after the other."""

    frontier: int | None = 0
    since: int = 0
    is_held: bool = True
    is_dropped: bool = False
    is_writing: bool = True  # the creator's, under whatever name
    is_reading: bool = True
    writers: int = 0
    readers: int = 0
    is_released: bool = False
    rows: list[tuple[str, int]] = field(default_factory=list)

    def told(self, kind: str, number: int, lower: int, upper: int) -> str:
        if self.is_dropped:
            final = {"create": "NeverReused", "drop": "DONE", "acquire": "DONE"}
            return final.get(kind, "Forgotten")
        calls: dict[str, Callable[[], str]] = {
            "create": lambda: "AlreadyBound",
            "update": lambda: self.update(number, lower, upper),
            "downgrade": lambda: self.downgrade(upper),
            "clone": self.clone,
            "transfer": self.transfer,
            "acquire": self.acquire,
            "drop": lambda: self.drop(is_write=upper - lower == 1),
        }
        return calls[kind]()

    @property
    def is_sealed(self) -> bool:
        return not (self.is_writing or self.writers)

    def not_held(self) -> str:
        return "Sealed" if self.is_sealed else "InvalidCapability"

    def update(self, number: int, lower: int, upper: int) -> str:
        if not self.is_held:
            return self.not_held()
        if lower != self.frontier:
            return "LOST"
        self.frontier = upper
        self.rows.append((f"r{number}", lower))
        return "DONE"

    def downgrade(self, to: int) -> str:
        if not self.is_reading:
            return "InvalidCapability"
        if to < self.since:
            return "NotForward"
        self.since = to
        return "DONE"

    def clone(self) -> str:
        self.writers += self.is_held
        return "DONE" if self.is_held else self.not_held()

    def acquire(self) -> str:
        self.writers += not self.is_sealed
        self.readers += 1
        return "DONE"

    def transfer(self) -> str:
        was_held, self.is_held = self.is_held, False
        return "DONE" if was_held else self.not_held()

    def drop(self, *, is_write: bool) -> str:
        """Give the collection up; it ends with the last capability that reads it."""
        if not (self.is_held if is_write else self.is_reading):
            return "DONE" if self.is_released else self.not_held()
        if self.writers or (self.is_writing and not is_write):
            return "StillWritable"
        self.is_released = True
        if is_write:
            self.is_held = self.is_writing = False
        else:
            self.is_reading = False
        self.is_dropped = not (self.readers or self.is_reading)
        return "DONE"


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["update"] * 6 + ["downgrade", "clone", "acquire", "create"])
        | st.sampled_from(["transfer", "drop", "update"]),
        st.integers(0, 3),
        st.integers(1, 2),
    ),
    max_size=12,
)
POINTS = ("read", "stored", "submitted", "decided", "answered")
FATES = st.lists(
    st.tuples(st.sampled_from(["kill", "behind"]), st.sampled_from(POINTS), st.integers(1, 3)),
    max_size=4,
)


def command(step: Step, number: int, at: int, capabilities: list[dict[str, Any]]) -> bytes:
    """The command of a step, which believes the frontier to be at `at`."""
    kind, back, by = step
    read, write = capabilities
    lower = max(0, at - (back == 3))
    fields: dict[str, tuple[str, dict[str, Any]]] = {
        "update": (
            "update_and_downgrade",
            update({**write, "frontier": lower}, lower + by, (f"r{number}", 1, lower, 1)),
        ),
        "downgrade": ("downgrade", {"capability": read, "new_frontier": by}),
        "clone": ("clone", {"capability": {**write, "frontier": at}}),
        "acquire": ("acquire_capabilities", {"collection": T, "critical": True}),
        "create": ("create", {"collection": T, "description": DESCRIPTION}),
        "transfer": ("transfer", {"capability": {**write, "frontier": at}}),
        "drop": (
            "drop",
            {"collection": T, "capability": write if by == 1 else read, "whole": True},
        ),
    }
    name, values = fields[kind]
    return codec.encode(f"command_{name}", {"id": f"s{number}", **values})


@dataclass
class Doom:
    """Kills a service at a point, or runs another one behind its back."""

    world: World
    what: str
    point: str
    number: int
    reached: Counter[str] = field(default_factory=Counter)

    def __call__(self, here: str) -> None:
        self.reached[here] += 1
        if (here, self.reached[here]) != (self.point, self.number):
            return
        if self.what == "kill":
            raise Killed(here)
        self.world.run()


def live(world: World, fates: list[tuple[str, str, int]]) -> None:
    """Run services, each with its fate, and one without at last."""
    for what, point, number in fates:
        with contextlib.suppress(Killed, Fenced):
            world.run(world.service(Doom(world, what, point, number)))
    world.run()


@settings(examples(30), print_blob=True)
@example(
    # a creation is refused, then the collection dropped; asked again, the refusal is the same
    [("update", 0, 1), ("create", 0, 1), ("update", 0, 1), ("drop", 0, 1)],
    [("kill", "submitted", 3)],
    [],
    0,
)
@given(STEPS, FATES, st.lists(st.integers(0, 11), max_size=6), st.integers(0, 12))
def test_commands_come_to_the_same_whatever_happens(
    steps: list[Step], fates: list[tuple[str, str, int]], copies: list[int], cut: int
) -> None:
    world, model = World(), Model()
    capabilities = world.ask("create", collection=T, description=DESCRIPTION)["capabilities"]
    expected: dict[str, str] = {}
    values: list[bytes] = []
    for number, step in enumerate(steps):
        at = model.frontier or 0
        values.append(command(step, number, at, capabilities))
        lower = max(0, at - (step[1] == 3))
        upper = step[2] if step[0] == "downgrade" else lower + step[2]
        expected[f"s{number}"] = model.told(step[0], number, lower, upper)
        world.raw(values[-1])
        if number == cut:
            live(world, fates[:2])
    for number in copies:
        if number < len(values):
            world.raw(values[number])
    live(world, fates)
    answers = world.answers()
    assert {id_: told(answers[id_]) for id_ in expected} == expected
    offsets = [response["offset"] for response in world.responses()]
    assert sorted(offsets) == list(range(world.broker.store.log(NAMES.commands).end))
    carried_out = [response["offset"] for response in world.responses() if response["command"]]
    assert carried_out == sorted(carried_out)  # reports of copies hang on nothing
    check_contents(world, model)


def told(response: dict[str, Any]) -> str:
    error = response["error"]
    return str(response["status"] if error is None else error["code"])


def check_contents(world: World, model: Model) -> None:
    """What the log holds is what the commands that count came to."""
    storage = world.storage()
    read, _ = storage.acquire_capabilities(T)
    if model.is_dropped:
        assert read.frontier.is_empty
        return
    collection = storage.shards.state(T)
    linked = [batch.lower for batch in collection.batches if batch.chunks]
    assert sorted(linked) == [lower for _, lower in model.rows]
    # what is left of the creation's, what clones and acquisitions made, and this client's two
    of_creator = model.is_reading + model.is_writing
    of_others = model.readers + model.writers
    assert len(collection.capabilities) == of_creator + of_others + 2 - model.is_sealed


@settings(examples(25), print_blob=True)
@given(st.lists(st.sampled_from("abc"), max_size=14), FATES, st.integers(4, 9))
def test_groups_overtake_one_another_and_nothing_is_done_twice(
    order: list[str], fates: list[tuple[str, str, int]], span: int
) -> None:
    """What is answered out of order is known to whoever takes over, however little it reads."""
    world = World()
    writers = {
        id_: world.ask("create", collection=id_, description=DESCRIPTION)["capabilities"][1]
        for id_ in "abc"
    }
    written: Counter[str] = Counter()
    for id_ in order:
        at = written[id_]
        fields = update({**writers[id_], "frontier": at}, at + 1, (f"r{at}", 1, at, 1))
        is_counted = (at + len(id_)) % 2 == 0  # which waits, and is overtaken
        world.send("update_and_downgrade", **fields, check_counts=is_counted)
        written[id_] += 1
    with pytest.MonkeyPatch.context() as patched:
        for module in (dedup, session):
            patched.setattr(module, "SPAN", span)
        live(world, fates)
    assert {answer["status"] for answer in world.answers().values()} == {"DONE"}
    offsets = [response["offset"] for response in world.responses()]
    assert sorted(offsets) == list(range(world.broker.store.log(NAMES.commands).end))
    storage = world.storage()
    for id_, count in written.items():
        storage.acquire_capabilities(CollectionId(id_))
        batches = storage.shards.state(CollectionId(id_)).batches
        assert sorted(b.lower for b in batches if b.chunks) == list(range(count))
