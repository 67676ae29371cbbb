"""Random legal traffic of a controller and its replicas while they are killed and stopped.

The seed decides what happens; what it cannot decide is which process is faster.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa

from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.compute.controller import create_topics
from streams.compute.peeks import CancelPeek, PeekOutcome
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    InitializationComplete,
    UpdateConfiguration,
)
from streams.errors import SlackwaterError
from streams.ids import CollectionId
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.settings import ClientSettings
from streams.progress import EMPTY, frontier
from streams.storage.client.shards import Shards
from streams.torture.compute.controller_process import INSTANCE, ControllerProcess
from streams.torture.compute.objects import ORDERS, TOPIC, Maintained, Objects, queries
from streams.torture.compute.questions import KEYS, Question, Questioner
from streams.torture.compute.replicas import PROGRAM, Replicas
from streams.torture.compute.subscribers import Subscribers
from streams.torture.compute.transcript import Transcript
from streams.torture.compute.truth import Truth
from streams.torture.oracle import Verdict

NAMESPACE, BUCKETS = "torture", 2
START_S, PATIENCE_S = 300.0, 300.0
STEP_S = (0.02, 0.2)
FAULT_EVERY_S = (2.0, 5.0)
STOPPED_S = (1.0, 8.0)
LATER_MS = 4000
KEPT_MS = 3000
MOST_VIEWS, MOST_INDEXES, MOST_OPEN = 5, 3, 30
FIRST_SUBSCRIBES = 4
FEW = 6
"""Number of objects of which none is dropped."""
BOLD = 0.15
"""Of the faults, those that do not wait until all replicas serve."""


@dataclass(slots=True)
class Torture:
    """One run on a broker; `tell` is given the seconds that have passed."""

    bootstrap: str
    directory: Path
    seed: int
    tell: Callable[[float], None]
    stopping: Stop = field(default_factory=Stop)
    program: Sequence[str] = PROGRAM
    figures: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    answers: dict[str, list[PeekOutcome]] = field(default_factory=dict)
    rng: Random = field(init=False)
    broker: KafkaBroker = field(init=False)
    objects: Objects = field(init=False)
    replicas: Replicas = field(init=False)
    controller: ControllerProcess = field(init=False)
    transcript: Transcript = field(init=False)
    questions: Questioner = field(init=False)
    subscribers: Subscribers = field(init=False)
    publisher: Publisher = field(init=False)
    _orders: "count[int]" = field(default_factory=count)
    _names: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)  # noqa: S311  chance to be repeated, no secret

    def run(self, seconds: float) -> Verdict:
        """Traffic and faults for so long after the replicas serve; then compare everything."""
        with self._instance():
            try:
                self._await(lambda: len(self.transcript.serving()) > 1, START_S, "no replicas")
                self._traffic(seconds)
                self._settle()
            except SlackwaterError as failure:
                self.wrong.append(f"{type(failure).__name__}: {failure}")
            self.replicas.close()
            self.controller.kill()
            self.transcript.close()
            self.wrong += self.transcript.wrong()
            self._judge()
        self.figures.update(self.replicas.figures)
        self.figures.update(self.transcript.figures())
        return Verdict(dict(sorted(self.figures.items())), tuple(self.wrong))

    @contextmanager
    def _instance(self) -> Iterator[None]:
        """A source with a view, two replicas and a controller."""
        settings = ClientSettings(self.bootstrap)
        with ExitStack() as stack:
            broker = self.broker = KafkaBroker(settings)
            stack.callback(broker.close)
            shards = Shards(
                broker.logs,
                broker.chunks,
                broker.topics,
                namespace=NAMESPACE,
                now_ms=now_ms,
                pump=True,
            )
            stack.callback(shards.close)
            create_topics(broker.topics, NAMESPACE, INSTANCE)
            self.transcript = Transcript(broker.logs, NAMESPACE, INSTANCE)
            self.transcript.start()
            self.publisher = Publisher(settings)
            self.objects = Objects(broker, shards)
            self.objects.create_source()
            self._create_view(is_sent=False)
            exports = self.directory / "exports"
            exports.mkdir()
            self.questions = Questioner(self.rng, exports)
            self.subscribers = Subscribers(self.rng, shards, {})
            self.replicas = Replicas(
                self.bootstrap, NAMESPACE, self.directory, exports, self.program
            )
            stack.callback(self.replicas.close)
            for _ in range(2):
                self.replicas.add()
            self._begin(1)
            stack.callback(self.controller.kill)
            yield

    def _begin(self, epoch: int) -> None:
        """Start a controller with the dataflows of the definitions."""
        self.controller = ControllerProcess(
            self.bootstrap,
            CreateInstance(NAMESPACE, BUCKETS),
            epoch,
            self.directory / "controller.log",
            self.answers,
            self.subscribers.delivered,
        )
        flows = [CreateDataflow(flow) for flow in self.objects.flows()]
        gone = [AllowCompaction(CollectionId(name), EMPTY) for name in self.objects.dropped]
        self.controller.start([*flows, *gone, InitializationComplete()])

    def _traffic(self, seconds: float) -> None:
        began = time.monotonic()
        self._begin_subscribes()
        next_fault = began + self.rng.uniform(*FAULT_EVERY_S)
        actions = (
            *(self._write,) * 8,
            *(self._peek,) * 16,
            *(self._cancel, self._create_view, self._create_index, self._drop, self._compact),
            self._configure,
            *(self._subscribe, self._subscribe, self._acknowledge, self._acknowledge),
            self._unsubscribe,
        )
        while (now := time.monotonic()) < began + seconds and not self.stopping.is_set():
            self.tell(now - began)
            self.rng.choice(actions)()
            self.replicas.tend()
            self.subscribers.follow()
            if now >= next_fault:
                self._fault()
                next_fault = time.monotonic() + self.rng.uniform(*FAULT_EVERY_S)
            self._check_processes()
            time.sleep(self.rng.uniform(*STEP_S))

    def _check_processes(self) -> None:
        self.wrong += self.replicas.wrong()
        if not self.controller.is_running:
            self.wrong.append(f"the controller ended: see {self.controller.log_file}")
        if self.wrong:
            self.stopping.set()

    def _send(self, *commands: Command) -> None:
        self.controller.send(commands)

    def _write(self) -> None:
        rows = [
            f'{{"id": {next(self._orders)}, "k": {self.rng.randrange(KEYS)},'
            f' "x": {self.rng.randrange(100)}}}'
            for _ in range(self.rng.choice((1, 5, 50)))
        ]
        self.publisher.publish(TOPIC, None, pa.array(rows, pa.utf8()))
        self.publisher.flush()
        self.figures["orders"] += len(rows)

    def _create_view(self, *, is_sent: bool = True) -> None:
        if len(self.objects.of_kind("view")) >= MOST_VIEWS:
            return
        query, read = self.rng.choice(list(queries(self.objects)))
        view = self.objects.create_view(f"v{next(self._names)}", query, read)
        self.figures["views created"] += 1
        if is_sent:
            self._send(CreateDataflow(view.flow))

    def _create_index(self) -> None:
        views = self.objects.of_kind("view")
        if not views or len(self.objects.of_kind("index")) >= MOST_INDEXES:
            return
        index = self.objects.create_index(f"i{next(self._names)}", self.rng.choice(views))
        self.figures["indexes created"] += 1
        self._send(CreateDataflow(index.flow))

    def _drop(self) -> None:
        free = self.objects.free()
        if len(self.objects.live) <= FEW or self.rng.random() < 0.5:  # noqa: PLR2004
            return  # a view takes seconds to be hydrated
        name = self.rng.choice(free)
        self.objects.drop(name)
        for question in self.questions.open(self.answers):
            target = question.peek.target
            if name in {target.collection, target.index}:
                self._leave(question)  # it might wait for ever
        for asked in self.subscribers.open():
            if asked.view.name == name:
                self._send(*self.subscribers.leave(asked))
        self.figures["views and indexes dropped"] += 1
        self._send(AllowCompaction(CollectionId(name), EMPTY))

    def _compact(self) -> None:
        """Allow compaction of a view up to the earliest time that is still to be read."""
        for view in self.objects.of_kind("view")[:1]:
            open_: list[int] = [
                question.peek.time for question in self.questions.open(self.answers)
            ]
            open_ += self.subscribers.held(view)
            since = min([self.objects.upper(view.name) - KEPT_MS, *open_])
            if self.objects.compact(view, since):
                self._send(AllowCompaction(view.flow.export, frontier(since)))

    def _peek(self) -> None:
        views = self.objects.of_kind("view")
        if not views or len(self.questions.open(self.answers)) >= MOST_OPEN:
            return
        advanced = [view for view in views if self.objects.upper(view.name) > view.flow.as_of]
        view, index = self.rng.choice(advanced or views), None
        indexes = [
            candidate
            for candidate in self.objects.of_kind("index")
            if view.name in candidate.reads
        ]
        if indexes and self.rng.random() < 0.7:  # noqa: PLR2004  more often than not
            index = self.rng.choice(indexes)
        least = (view if index is None else index).flow.as_of
        newest = self.objects.upper(view.name) - 1
        time_ = max(least, newest + self.rng.choice((0, 0, -500, 500, LATER_MS)))
        export = None if index is None else index.flow.export
        question = self.questions.ask(view, export, time_, self.controller.epoch)
        self.figures[question.kind] += 1
        self._send(question.peek)

    def _cancel(self) -> None:
        open_ = self.questions.open(self.answers)
        if not open_:
            return
        self._leave(self.rng.choice(open_))

    def _begin_subscribes(self) -> None:
        """A controller has a few subscribers from its start on."""
        for _ in range(FIRST_SUBSCRIBES):
            self._subscribe()

    def _subscribe(self) -> None:
        views = self.objects.of_kind("view")
        advanced = [view for view in views if self.objects.upper(view.name) > view.flow.as_of]
        if not views:
            return
        view = self.rng.choice(advanced or views)
        newest = self.objects.upper(view.name) - 1
        as_of = max(view.flow.as_of, newest + self.rng.choice((0, -500, 500)))
        self._send(*self.subscribers.ask(view, as_of, sorted(self.replicas.children)))

    def _acknowledge(self) -> None:
        self._send(*self.subscribers.acknowledge())

    def _unsubscribe(self) -> None:
        open_ = self.subscribers.open()
        if open_:
            self.figures["subscribes canceled"] += 1
            self._send(*self.subscribers.leave(self.rng.choice(open_)))

    def _configure(self) -> None:
        """Other intervals of reports, now and in later iterations."""
        values = {
            "frontiers_ms": self.rng.choice((200, 1_000, 3_000)),
            "heartbeat_ms": self.rng.choice((1_000, 2_000)),
        }
        self.figures["configurations"] += 1
        self._send(UpdateConfiguration(values))

    def _leave(self, question: Question) -> None:
        question.is_canceled = True
        self.figures["peeks canceled"] += 1
        self._send(CancelPeek(question.peek.uuid))

    def _fault(self) -> None:
        names = sorted(self.replicas.children)
        is_bold = self.rng.random() < BOLD
        if self.rng.random() < 0.15:  # noqa: PLR2004  less often than each of the others
            self._kill_controller()
        elif is_bold or self.transcript.serving().issuperset(names):
            name = self.rng.choice(names)
            match self.rng.randrange(3):
                case 0:
                    self.replicas.kill(name)
                case 1:
                    self.replicas.stop(name, self.rng.uniform(*STOPPED_S))
                case _:
                    self.replicas.replace(name)

    def _kill_controller(self) -> None:
        """`kill -9` the controller: its requests are lost, its successor starts at once."""
        self.controller.kill()
        for question in self.questions.open(self.answers):
            question.is_killed = True
        self.subscribers.lose()
        self.figures["controllers killed"] += 1
        self._begin(self.controller.epoch + 1)
        self._begin_subscribes()

    def _settle(self) -> None:
        """No more faults: all is answered, and views and subscribers get to the present."""
        self.replicas.calm()
        moment = now_ms()
        for asked in self.subscribers.open():
            if asked.subscribe.replica not in {"", *self.replicas.children}:
                self._send(*self.subscribers.leave(asked))
        self._await(lambda: not self.questions.open(self.answers), PATIENCE_S, "open peeks")
        views = [ORDERS, *(view.name for view in self.objects.of_kind("view"))]
        self._await(
            lambda: all(self.objects.upper(name) > moment for name in views),
            PATIENCE_S,
            "views that do not get to the present",
        )
        self._await(
            lambda: self._are_told(moment),
            PATIENCE_S,
            "subscribers that do not get to the present",
        )

    def _are_told(self, moment: int) -> bool:
        """Whether subscribers have come to their ends, or to a moment."""
        self.subscribers.follow()
        self._acknowledge()
        return not self.subscribers.behind(moment)

    def _await(self, done: Callable[[], bool], seconds: float, problem: str) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            self._check_processes()
            if self.wrong or time.monotonic() > deadline:
                self.wrong.append(f"{problem} within {seconds:g} s")
                return
            time.sleep(STEP_S[1])

    def _judge(self) -> None:
        """Compare each answer, and each view at each time, with the orders."""
        truth = Truth(self.objects.shards, self.objects.every(), self.directory)
        if truth.orders.num_rows != self.figures["orders"] and not self.wrong:
            self.wrong.append(f"{truth.orders.num_rows} orders were ingested")
        self.wrong += self.questions.wrong(self.answers, truth)
        self.wrong += self.subscribers.wrong(truth, self.figures)
        self.figures["answers checked"] = sum(map(len, self.answers.values()))
        for view in self.objects.every().values():
            if view.flow.kind == "view":
                self._compare(truth, view)
        for what in ("answers checked", "intervals checked", "times of views checked"):
            if not self.figures[what]:
                self.wrong.append(f"no {what}: nothing was tested")

    def _compare(self, truth: Truth, view: Maintained) -> None:
        for said in truth.wrong(view):
            if said == "checked":
                self.figures["times of views checked"] += 1
            else:
                self.wrong.append(said)
