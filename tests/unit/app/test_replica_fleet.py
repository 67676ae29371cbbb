"""The replicas that an environment runs, by what its coordinator says of clusters."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from streams.app import replica_fleet
from streams.app.client import ClusterStatus
from streams.app.environment import Environment, Settings
from streams.app.processes import Child
from streams.app.replica_fleet import RETRY_S, ReplicaFleet, ReplicaPlace, wanted
from streams.app.restart_policy import SPARK_STABLE_S
from streams.app.service_config import RESIDENT_TASKS, read_service
from streams.errors import Determinate
from streams.kafka.settings import ClientSettings
from tests.support.processes import eventually

R2, R3 = ReplicaPlace("default", 2), ReplicaPlace("default", 3)


class Process(Child):
    """Counts its starts and stops, and starts nothing."""

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        self.is_over = True


@dataclass
class Scene:
    """A fleet that runs nothing, with the answers of its coordinator."""

    answers: list[int | Exception] = field(default_factory=list)
    made: list[tuple[ReplicaPlace, Process]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.fleet = ReplicaFleet(self.ask, self.make, lambda: self.now)

    def ask(self) -> list[ClusterStatus]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [{"name": "default", "replicas": answer, "master": None}]

    def make(self, place: ReplicaPlace) -> Child:
        process = Process(place.service, [], replica_fleet.__file__)  # type: ignore[arg-type]
        self.made.append((place, process))
        return process


@pytest.fixture
def scene(monkeypatch) -> Iterator[Scene]:
    monkeypatch.setattr(replica_fleet, "LOOK_EVERY_S", 0.01)
    scene = Scene()
    yield scene
    scene.fleet.stop()


def test_the_first_replica_is_not_of_the_fleet() -> None:
    assert wanted([{"name": "default", "replicas": 1, "master": None}]) == frozenset()
    assert wanted([{"name": "default", "replicas": 3, "master": None}]) == {R2, R3}
    other = wanted([{"name": "c", "replicas": 1, "master": None}])
    assert [(place.service, place.name) for place in other] == [("replica-c-r1", "c_r1")]


def test_replicas_are_started_and_ended_as_clusters_want(scene) -> None:
    scene.fleet.adjust([R2, R3])
    scene.fleet.adjust([R2, R3])
    assert [place for place, _ in scene.made] == [R2, R3]
    assert all(process.starts == 1 for _, process in scene.made)
    scene.fleet.adjust([R2])
    assert [process.is_over for _, process in scene.made] == [False, True]
    assert set(scene.fleet.children) == {R2}


def test_nothing_changes_while_no_coordinator_answers(scene) -> None:
    scene.answers = [3, Determinate("no"), OSError("full"), KeyError("defect"), 2]
    scene.fleet.start()
    eventually(lambda: len(scene.answers) == 1 and set(scene.fleet.children) == {R2}, 30)
    assert [place for place, _ in scene.made] == [R2, R3], "none was ended meanwhile"


def test_a_replica_that_was_given_up_is_started_again_after_a_while(scene) -> None:
    scene.fleet.adjust([R2])
    scene.made[0][1].is_over = True
    for scene.now in (1.0, RETRY_S):
        scene.fleet.adjust([R2])
    assert len(scene.made) == 1
    scene.now = RETRY_S + 1
    scene.fleet.adjust([R2])
    assert [place for place, _ in scene.made] == [R2, R2]


def test_an_environment_goes_on_without_a_replica_of_the_fleet(tmp_path) -> None:
    lines: list[str] = []
    environment = Environment(Settings(directory=tmp_path), say=lines.append)
    environment._kafka = ClientSettings("kafka:9092")
    child = environment._replica(R2)
    environment.fleet.children = {R2: child}
    child.reason = "replica-default-r2 ended with exit code 1: no memory"
    environment.check()
    environment.check()
    assert lines == [f"{child.reason}; the other replicas go on"]


def test_a_replica_of_the_fleet_has_a_name_and_a_directory_of_its_own(tmp_path) -> None:
    environment = Environment(Settings(directory=tmp_path, slice_bytes=7))
    environment._kafka = ClientSettings("kafka:9092")
    child = environment._replica(R2)
    assert child.stable_s == SPARK_STABLE_S
    assert child.command[3:] == (
        "replica",
        "--config",
        str(tmp_path / "replica-default-r2.json"),
        "--supervised",
    )
    service = read_service(tmp_path / "replica-default-r2.json")
    assert (service.instance, service.replica) == ("default", "r2")
    assert service.directory == str(tmp_path / "replica-default-r2")
    assert (service.listen, service.slice_bytes) == ("", 7)


def test_a_replica_has_the_master_of_its_cluster_or_of_the_environment(tmp_path) -> None:
    environment = Environment(Settings(directory=tmp_path, master="local[9]"))
    environment._kafka = ClientSettings("kafka:9092")
    (place,) = wanted([{"name": "c", "replicas": 1, "master": "local[1]"}])
    (away,) = wanted([{"name": "c", "replicas": 1, "master": "spark://s:7077"}])
    for replica, master in (
        (place, "local[1]"),
        (R2, "local[9]"),
        (away, "spark://s:7077"),
    ):
        environment._replica(replica)
        service = read_service(tmp_path / f"{replica.service}.json")
        assert (service.instance, service.master) == (replica.cluster, master)
        assert service.resident_tasks == RESIDENT_TASKS


def test_a_cluster_that_was_made_again_with_another_master_has_other_replicas(scene) -> None:
    for master in ("local[1]", "local[2]"):
        scene.fleet.adjust(wanted([{"name": "c", "replicas": 1, "master": master}]))
    assert [process.is_over for _, process in scene.made] == [True, False]
