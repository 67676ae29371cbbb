"""The rules of the compute protocol hold over what is said, whatever happens to it."""

from random import Random

import pytest

from streams.compute import subscribe_session
from streams.compute.protocol import Status, replica_of
from streams.compute.reconciliation import structure
from streams.ids import CollectionId
from streams.progress import frontier
from streams.replica import main
from streams.torture.compute.protocol_rules import check_commands, check_responses
from tests.model.protocol_world import COMMANDS, Coordinator, Replica, World

STEPS = 300
KINDS = ("write", "output")
SEEDS = [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 300))]


class Run:
    """One world at random."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = Random(seed)
        self.world = World(self.rng)
        self.monkeypatch = monkeypatch
        self.replicas = [Replica(self.world, "a"), Replica(self.world, "b")]
        self.coordinator = Coordinator(self.world, {}, set(), {}, 1)
        self.zombies: list[Coordinator] = []
        self.ghosts: list[Replica] = []
        """Processes that go on, though others have taken their places."""

    def step(self) -> None:
        self.world.now += self.rng.choice((0.05, 0.5, 3.0))
        chance = self.rng.random()
        if chance < 0.03:
            self.succeed()
        elif chance < 0.35:
            self.coordinator.act()
        elif chance < 0.35 + 0.1 * self.world.weather.zombie and self.zombies:
            self.rng.choice(self.zombies).act()
        elif chance < 0.45:
            self.coordinator.poll()
        elif chance < 0.47:
            self.replace(self.rng.randrange(len(self.replicas)))
        elif chance < 0.7:
            for at in range(len(self.replicas)):
                if self.rng.random() > self.world.weather.deaf:
                    self.hear(at)
            self.ghosts = [ghost for ghost in self.ghosts if self.serve(ghost)]
        else:
            self.rng.choice([*self.replicas, *self.ghosts]).progress()

    def succeed(self) -> None:
        """Another coordinator takes over, and the one before does not know it yet."""
        before = self.coordinator
        catalog, dropped, sinces = (
            dict(before.catalog),
            set(before.dropped),
            dict(before.sinces),
        )
        self.zombies = [before]
        self.coordinator = Coordinator(self.world, catalog, dropped, sinces, before.epoch + 1)
        self.coordinator.start()

    def replace(self, at: int, *, is_dead: bool = False) -> None:
        name = "ab"[at] if self.rng.random() < 0.8 else self.world.name("c")
        if not is_dead and self.rng.random() < self.world.weather.zombie:
            self.ghosts = [self.replicas[at]]
        self.replicas[at] = Replica(self.world, name)

    def hear(self, at: int) -> None:
        if not self.serve(self.replicas[at]):
            self.replace(at, is_dead=True)

    def serve(self, replica: Replica) -> bool:
        self.monkeypatch.setattr(main, "assemble", lambda *_: replica.parts)
        self.monkeypatch.setattr(main, "POLL_MS", 0)
        return replica.hear()

    def check(self) -> None:
        answers = check_responses(self.world.responses(), check_commands(self.world.commands()))
        for replica in self.replicas:
            said = answers[replica.process, replica.server.session.nonce]
            told = {(key, kind) for key in replica.scheduler.flows for kind in KINDS}
            assert said.frontiers.keys() >= told, "frontiers are reported again"
        for message in self.world.responses():
            response = message.response
            if isinstance(response, Status):
                assert response.state != "failed", response
                assert response.id != CollectionId(COMMANDS), response

    def calm(self) -> None:
        """Nothing goes wrong any more, and nothing new begins: all come to agree."""
        self.world.logs.is_calm = True
        self.zombies.clear()
        self.ghosts.clear()
        chance = self.rng.random()
        if chance < 0.4:
            self.succeed()
            self.zombies.clear()
        elif chance < 0.7:  # what is open has nobody but those who join
            for at in range(len(self.replicas)):
                self.replace(at, is_dead=True)
        names = {replica_of(replica.process) for replica in self.replicas}
        clients = self.coordinator.clients
        for uuid, (peek, _) in list(clients.asked.items()):
            if peek.replica not in {"", *names}:
                clients.leave(uuid)
        subscribers = self.coordinator.subscribers
        for uuid, one in list(subscribers.open.items()):
            if one.subscribe.replica not in {"", *names}:
                subscribers.leave(uuid)
        for _ in range(12):
            self.world.now += 2.0
            if not self.coordinator.is_told:
                self.coordinator.start()
            late, self.coordinator.late = self.coordinator.late, []
            for again in late:
                again()
            self.coordinator.poll()
            for at, replica in enumerate(self.replicas):
                self.hear(at)
                replica.start()
            subscribers.acknowledge()
        self.coordinator.poll()
        self.agree()

    def agree(self) -> None:
        coordinator = self.coordinator
        coordinator.clients.check()
        coordinator.subscribers.check()
        assert coordinator.dropped == set()
        for replica in self.replicas:
            running = replica.server.session.running
            assert running.keys() == coordinator.catalog.keys()
            assert replica.scheduler.flows.keys() == running.keys()
            for key, flow in coordinator.catalog.items():
                assert running[key].name == flow.name
                assert structure(running[key]) == structure(flow)
                runs = replica.scheduler.flows[key].description
                assert structure(runs) == structure(flow)
                assert runs.as_of == running[key].as_of
        observed = coordinator.controller.observed
        for key in coordinator.catalog:
            write = observed.conditions[key].write
            assert write is not None
            assert write.precedes(frontier(self.world.uppers[key]))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_keeps_the_rules(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_session, "MOST_ATTEMPTS", 2)
    run = Run(seed, monkeypatch)
    for _ in range(STEPS):
        run.step()
    run.calm()
    run.check()
