"""The demo's course: environment, feed, views, page, proof."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.text import Text

from streams.app.embedded_postgres import EmbeddedPostgres
from streams.app.environment import Environment, Settings
from streams.app.freshness import Freshness, percentile
from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.demo import departures
from streams.demo import feed as feeds
from streams.demo.check import History, Verdict, verify
from streams.demo.page import Headline, render
from streams.demo.postgres import InPostgres, in_postgres
from streams.demo.replay import Replay, moment
from streams.demo.report import DemoOptions, PostgresOutput, Report
from streams.demo.totals import compared, judged, lags_ms
from streams.demo.views import EVENT_VIEWS, FEEDS, SOURCES, VIEWS
from streams.demo.watch import Watch, loaded
from streams.errors import Determinate, InvalidUsage
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import Antichain, frontier
from streams.storage import description
from streams.storage.client.id_registry import Directory
from streams.storage.client.shards import Shards
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel

PARTITIONS = 2
SETTLE_TIMEOUT_S = 300.0
PAGE_EVERY_S = 0.5
SAY_EVERY_S = 5.0
BUSY = frozenset({Topic("flights"), Topic("plane_state")})
INGESTED = tuple(topic for topic in feeds.TOPICS if topic != departures.TOPIC)
"""The topics whose sources have times of ingestion: they hold all that was published."""

ALL_VIEWS = (*VIEWS, *EVENT_VIEWS)


def run(choices: DemoOptions, console: Console, stopping: Stop) -> Report:
    """The whole demo.

    Errors: Stopped when stopping is requested; InvalidUsage when it cannot begin here;
    SlackwaterError when something does not come up.
    """

    def say(text: str) -> None:
        console.print(Text(text, "dim"))

    settings = Settings(directory=choices.directory, brokers=choices.brokers)
    if choices.brokers:  # before a coordinator of ours takes over from another
        refuse_remains(ClientSettings(choices.brokers), choices)
    with ExitStack() as stack:
        server: EmbeddedPostgres | None = None
        if choices.postgres:
            say("starting PostgreSQL")
            server = stack.enter_context(EmbeddedPostgres())
        environment = stack.enter_context(Environment(settings, say, stopping))
        if not choices.brokers:
            refuse_remains(environment.kafka, choices)
        say("reading a year of flights")
        kernel = Kernel()
        feed = feeds.load(kernel).first(choices.events)
        broker = KafkaBroker(environment.kafka)
        stack.callback(broker.close)
        shards = Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=settings.namespace,
            now_ms=now_ms,
            pump=True,
        )
        stack.callback(shards.close)
        show = DemoRun(choices, console, environment, broker, shards, kernel, feed)
        return show.play(server)


def refuse_remains(kafka: ClientSettings, choices: DemoOptions) -> None:
    """The demo begins with topics of its own: what others wrote there would be counted too.

    Errors: InvalidUsage when some are there already; Determinate.
    """
    broker = KafkaBroker(kafka)
    try:
        there = sorted(broker.topics.names() & frozenset(feeds.TOPICS))
    finally:
        broker.close()
    if not there:
        return
    if choices.brokers:
        advice = (
            f"delete topics {', '.join(feeds.TOPICS)} and those that begin with 'sw.', or give"
            " --brokers of another cluster"
        )
    else:
        advice = "choose another --directory, or delete this one"
    where = choices.brokers or choices.directory
    raise InvalidUsage(f"{where} has topic {there[0]} already, of an earlier demo: {advice}")


@dataclass(slots=True)
class DemoRun:
    """One demo on a running environment."""

    choices: DemoOptions
    console: Console
    environment: Environment
    broker: KafkaBroker
    shards: Shards
    kernel: Kernel
    feed: feeds.Feed
    ids: dict[str, CollectionId] = field(default_factory=dict)
    tables: InPostgres | None = None

    def play(self, server: EmbeddedPostgres | None = None) -> Report:
        """Create, replay, watch, check."""
        self._create()
        with ExitStack() as stack:
            if server is not None:
                postgres = in_postgres(self.shards, server.config, self.ids)
                self.tables = stack.enter_context(postgres)
            return self._play()

    def _play(self) -> Report:
        watch = Watch(self.shards, self.kernel)
        watch.follow(self.ids)
        freshness = self._freshness()
        raw = RawReader(self.environment.kafka)
        publisher = Publisher(self.environment.kafka)

        def flushed(counts: Mapping[Topic, int]) -> None:
            for topic in BUSY & counts.keys():
                ends = {part: high for part, (_, high) in raw.ends(topic).items()}
                freshness.mark(self.ids[topic], ends)

        replay = Replay(self.feed, publisher, self.choices.speed, flushed)
        began = time.monotonic()
        try:
            replay.begin()
            if self.tables is not None:
                self._ingest(raw)  # a flight of an airline that comes later would not count yet
                self.tables.start()
            replay.start()
            self._watch(replay, watch, freshness, began)
            if replay.failure is not None:
                raise replay.failure
            self._settle(raw)
            self._await_watermark()
        finally:
            replay.stop()
            freshness.close()
        seconds = time.monotonic() - began
        verdicts, problems = self._prove()
        return Report(
            events=replay.published,
            views=len(ALL_VIEWS),
            verdicts=verdicts,
            seconds=seconds,
            freshness_p50_ms=percentile(freshness.milliseconds, 0.5),
            freshness_p90_ms=percentile(freshness.milliseconds, 0.9),
            problems=problems,
            kept=self._kept(),
        )

    def _create(self) -> None:
        topics = [TopicSpec(Topic(name), PARTITIONS, TopicKind.RAW) for name in feeds.TOPICS]
        self.broker.topics.create(topics)
        statements = [*SOURCES, *(view.statement for view in ALL_VIEWS)]
        with Progress(console=self.console, transient=True) as progress:
            for statement in progress.track(statements, description="creating views"):
                self.environment.sql(statement)
        for row in self._conditions():
            self.ids[str(row["name"])] = CollectionId(str(row["id"]))
        directory = Directory(self.shards)
        for id_ in self.ids.values():
            directory.find(id_)
        with self.console.status("waiting for Spark to start"):
            self._await_running()

    def _await_running(self) -> None:
        """Wait until the replica steps every source and view: it has a JVM to start.

        A view of event times has no time to begin at before the first message.
        """
        waiting = {view.name for view in EVENT_VIEWS}
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while any(
            row["status"] != "running" and row["name"] not in waiting
            for row in self._conditions()
        ):
            if time.monotonic() > deadline:
                raise Determinate(self._stuck("the replica does not run all views"))
            time.sleep(PAGE_EVERY_S)

    def _conditions(self) -> list[dict[str, object]]:
        return [
            row
            for kind in ("SOURCES", "MATERIALIZED VIEWS")
            for row in self.environment.sql(f"SHOW {kind}")[0].dicts()
        ]

    def _freshness(self) -> Freshness:
        ids = self.ids
        feeds_by_id = {
            ids[source]: tuple(ids[view] for view in views) for source, views in FEEDS.items()
        }
        return Freshness(self.shards, feeds_by_id)

    def _check(self) -> None:
        self.environment.check()
        if self.tables is not None:
            self.tables.check()

    def _watch(self, replay: Replay, watch: Watch, freshness: Freshness, began: float) -> None:
        if not self.choices.page:
            said_s = began
            while not replay.is_done:
                self._check()
                if self.tables is not None and time.monotonic() - said_s > SAY_EVERY_S:
                    said_s = time.monotonic()
                    self.console.print(Text(self.tables.seen().text, "dim"))
                time.sleep(PAGE_EVERY_S)
            return
        with Live(console=self.console, refresh_per_second=4, screen=True) as live:
            while not replay.is_done:
                self._check()
                live.update(self._page(replay, watch, freshness, began))
                time.sleep(PAGE_EVERY_S)

    def _page(
        self, replay: Replay, watch: Watch, freshness: Freshness, began: float
    ) -> RenderableType:
        recent = freshness.milliseconds[-200:]
        numbers = Headline(
            published=replay.published,
            total=self.feed.messages.num_rows,
            per_second=replay.published / max(time.monotonic() - began, 0.1),
            freshness_p50_ms=percentile(recent, 0.5),
            freshness_p90_ms=percentile(recent, 0.9),
            moment=moment(replay.at_s),
        )
        shown = [(view, watch.refresh(view.name)) for view in ALL_VIEWS]
        sources = [watch.frontiers(name) for name in feeds.TOPICS]
        collections = [*sources, *(frontier for _, frontier in shown)]
        tables = None if self.tables is None else self.tables.seen()
        return render(numbers, shown, collections, self.kernel, tables=tables)

    def _ingest(self, raw: RawReader) -> list[Antichain]:
        """Wait until the sources have every message; return how far they are."""
        bound = {
            self.ids[topic]: {part: high for part, (_, high) in raw.ends(Topic(topic)).items()}
            for topic in INGESTED
        }

        def ingested() -> bool:
            return all(
                dict(self.shards.state(source).source or {}) == ends
                for source, ends in bound.items()
                if any(ends.values())
            )

        if not self.environment.wait(self.shards, ingested, SETTLE_TIMEOUT_S):
            raise Determinate(self._stuck("the sources do not take in all messages"))
        return [self.shards.state(source).upper for source in bound]

    def _settle(self, raw: RawReader) -> None:
        """Wait until every message is readable in every view, and in every table."""
        uppers = self._ingest(raw)
        views = [self.ids[view.name] for view in VIEWS]

        def readable() -> bool:
            return all(
                upper.precedes(self.shards.state(view).upper)
                for view in views
                for upper in uppers
            )

        if not self.environment.wait(self.shards, readable, SETTLE_TIMEOUT_S):
            raise Determinate(self._stuck("the views do not reach the sources"))
        if self.tables is not None:
            until = Timestamp(max(upper.time for upper in uppers) - 1)
            self.tables.finish(until, self.environment.check, SETTLE_TIMEOUT_S)

    def _await_watermark(self) -> None:
        """Wait until the views of event times have all that the watermark can pass."""
        times = departures.event_times(self.feed.messages, self.kernel)
        upper = departures.final_upper(times, self.kernel)
        ids = [self.ids[name] for name in (departures.TOPIC, *(v.name for v in EVENT_VIEWS))]

        def passed() -> bool:
            return all(frontier(upper).precedes(self.shards.state(id_).upper) for id_ in ids)

        if not self.environment.wait(self.shards, passed, SETTLE_TIMEOUT_S):
            raise Determinate(self._stuck("the watermark does not pass the departures"))

    def _stuck(self, what: str) -> str:
        rows = self._conditions()
        statuses = "; ".join(f"{r['name']}: {r['status']} {r['detail']}" for r in rows)
        return f"{what} after {SETTLE_TIMEOUT_S:.0f} s: {statuses}"

    def _prove(self) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
        sources = [self._history(name) for name in feeds.TOPICS]
        problems = [
            f"{source.name}: {count} error rows" for source, count in sources if count
        ] + self._missing([name for name, _ in sources])
        inputs = [name for name, _ in sources]
        verdicts: list[Verdict] = []
        total = len(ALL_VIEWS) * self.choices.times
        with Progress(console=self.console, transient=True) as progress:
            task = progress.add_task("checking against DuckDB", total=total)
            for view in ALL_VIEWS:
                self.environment.check()
                history, errors = self._history(view.name)
                if errors:
                    problems.append(f"{view.name}: {errors} error rows")
                checked = {view.name: (view.query, history)}
                needed = [history for history in inputs if history.name in view.reads]
                needed += [self._history(n)[0] for n in view.reads if n not in feeds.TOPICS]
                for verdict in verify(checked, needed, self.kernel, self.choices.times):
                    verdicts.append(verdict)
                    progress.advance(task)
        if self.tables is not None:
            verdicts += self._prove_tables(self.tables)
        problems += [
            f"{v.view} at {v.time}: {v.wrong} of {v.rows} rows differ"
            for v in verdicts
            if v.wrong
        ]
        return tuple(verdicts), tuple(problems)

    def _prove_tables(self, tables: InPostgres) -> Iterator[Verdict]:
        """Each commit's totals, and the tables as they are now."""
        inputs = ("flights", "airlines", "plane_state")
        histories = {name: self._history(name)[0] for name in inputs}
        yield from judged(tables.commits(), histories, self.kernel)
        for view in VIEWS:
            history, _ = self._history(view.name)
            rows = tables.rows(view.name, history.names)
            yield compared(history, tables.time, rows, self.kernel)

    def _kept(self) -> PostgresOutput | None:
        if self.tables is None:
            return None
        commits = self.tables.commits()
        half, most = lags_ms(commits)
        rows = self.tables.seen().written
        return PostgresOutput(commits=len(commits), rows=rows, lag_p50_ms=half, lag_p90_ms=most)

    def _history(self, name: str) -> tuple[History, int]:
        """A collection read back from since to upper, and how many error rows it holds."""
        collection = self.ids[name]
        state = self.shards.state(collection)
        since, upper = state.since.time, state.upper.time
        names = description.loads(state.description).names
        wanted = read.snapshot_pieces(state, Timestamp(upper - 1))
        updates, errors = loaded(self.shards, collection, wanted)
        return History(name, names, updates, since, upper), errors.num_rows

    def _missing(self, sources: list[History]) -> list[str]:
        """The append-only sources hold exactly as many rows as messages were published."""
        published = {
            str(row["topic"]): row["n"]
            for row in self.kernel.query(
                "SELECT topic, count(*) AS n FROM messages GROUP BY topic",
                messages=self.feed.messages,
            ).to_pylist()
        }
        upper = self.shards.state(self.ids[departures.TOPIC]).upper.time
        times = departures.event_times(self.feed.messages, self.kernel)
        published[departures.TOPIC] = departures.below(times, upper, self.kernel)
        return [
            f"{source.name}: {source.updates.num_rows} rows, "
            f"expected {published.get(source.name, 0)}"
            for source in sources
            if source.name != "plane_state"
            and source.updates.num_rows != published.get(source.name, 0)
        ]
