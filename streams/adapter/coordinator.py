"""The coordinator: executes statements, and keeps catalog, storage and compute consistent.

One coordinator is active at a time: it opens an epoch in the catalog, which fences earlier
ones. All its state is in topics; when it starts it reads the catalog, completes what the last
one left unfinished, and sends the replicas all dataflows again.

Definitions are executed one at a time, in three moves: the catalog's record, which makes the
statement durable; the object's holds and shard (`streams.adapter.provisioning`); the command. A
failure in between is retried in the background until it succeeds. Reads run concurrently.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import assert_never

from streams.adapter import (
    bad_messages,
    ddl,
    resume_source,
    show,
    show_clusters,
    show_materializations,
    show_statements,
)
from streams.adapter.audit_verdicts import Counts, Verdicts, publisher
from streams.adapter.audits import Audits
from streams.adapter.catalog import (
    NAMES,
    Catalog,
    Create,
    Drop,
    Item,
    Retain,
)
from streams.adapter.catalog_log import CatalogLog, Deposed
from streams.adapter.cluster_definitions import changed
from streams.adapter.cluster_status import Observed
from streams.adapter.coordinator_settings import Cluster, CoordinatorSettings, catalog_topic
from streams.adapter.copies import Copies
from streams.adapter.delays import Delay, delay_of
from streams.adapter.explain_analyze import analyzed
from streams.adapter.function_definitions import create_function, drop_function
from streams.adapter.index_reads import IndexReads
from streams.adapter.instances import Instances
from streams.adapter.materialization_tasks import Check, no_connectors
from streams.adapter.materializations import Materializing
from streams.adapter.planner import (
    Evaluated,
    PlannedView,
    evaluated,
    explained,
    joined,
    meant,
    notices,
    query_of,
)
from streams.adapter.provisioning import Crash, Objects
from streams.adapter.read_errors import unreadable, with_way_out
from streams.adapter.read_holds import Guards
from streams.adapter.read_times import When
from streams.adapter.reads import Reads
from streams.adapter.reconciler import Reconciler
from streams.adapter.results import Complete, Failed, Notice, Result, failed
from streams.adapter.sessions import Session, Sessions
from streams.adapter.subscribe_replicas import by_replicas
from streams.adapter.system_reads import SystemReads
from streams.adapter.system_relations import SystemState
from streams.adapter.timelines import timeline
from streams.adapter.workers.pool import Workers
from streams.adapter.workers.requests import View
from streams.errors import InvalidStatement, InvalidUsage, SlackwaterError
from streams.ids import CollectionId
from streams.kafka.topics import TopicKind, TopicSpec
from streams.plan.sql import statements as sql
from streams.plan.sql.analyze import ExplainAnalyze
from streams.plan.sql.audit import Audit
from streams.plan.sql.bad_messages import AlterErrors
from streams.plan.sql.clusters import (
    AlterCluster,
    ClusterStatement,
    CreateCluster,
    DropCluster,
)
from streams.plan.sql.copy import CopyTo
from streams.plan.sql.emit import emits
from streams.plan.sql.index import CreateIndex
from streams.plan.sql.limits import too_deep
from streams.plan.sql.materializations import (
    AlterMaterialization,
    CreateMaterialization,
    DropMaterialization,
    ShowMaterializations,
)
from streams.plan.sql.offsets import ResumeSource
from streams.plan.sql.rebase import CreateRebase
from streams.plan.sql.select import Select
from streams.plan.sql.show import ShowClusters, ShowFunctions, ShowReplicas
from streams.plan.sql.subscribe import Subscribe
from streams.plan.sql.tokens import split, tokenize
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.policy import LagBehindUpper

log = logging.getLogger(__name__)

ObjectDefinition = (
    sql.CreateSource | sql.CreateMaterializedView | CreateRebase | sql.CreateSink | CreateIndex
)
Definition = ObjectDefinition | sql.CreateFunction
Listing = ShowFunctions | ShowClusters | ShowReplicas | sql.Show
Change = sql.Alter | ResumeSource | AlterErrors | ClusterStatement | sql.Drop | sql.DropFunction


class Coordinator:
    """One environment's coordinator. `execute` may be called from any thread.

    The caller owns and closes the workers.
    """

    def __init__(  # noqa: PLR0913  dependencies, passed by name
        self,
        settings: CoordinatorSettings,
        cluster: Cluster,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        workers: Workers,
        crash: Crash = lambda _: None,
        check: Check = no_connectors,
    ) -> None:
        """`check` judges the tasks of materializations by their connectors."""
        self._settings, self._cluster, self._crash = settings, cluster, crash
        self._workers = workers
        self._definitions = threading.RLock()
        namespace = settings.namespace
        cluster.topics.create([TopicSpec(catalog_topic(namespace), 1, TopicKind.LOG)])
        self.catalog = CatalogLog(cluster.logs, catalog_topic(namespace), new_id)
        self.epoch = epoch = self.catalog.open()
        self.shards = Shards(
            cluster.logs,
            cluster.chunks,
            cluster.topics,
            namespace=namespace,
            now_ms=now_ms,
            pump=True,
            data_partitions=settings.data_partitions,
        )
        self.guards = Guards()
        self.sessions = Sessions(time.monotonic)
        self.instances = Instances(cluster, settings, epoch, new_id)
        self._now_ms = now_ms
        self._reads = self._reader()
        self.copies = Copies(self._reads, self.catalog, settings.copy_to, self.instances)
        verdicts = Verdicts(publisher(cluster.logs, cluster.topics, namespace), now_ms)
        self.audits = Audits(self._reads, self.catalog, self.shards, verdicts)
        self._objects = Objects(
            self.catalog, self.shards, cluster.topics, now_ms, crash, self._plan
        )
        self.materializing = Materializing(
            self.catalog, self.shards, check, self._reads.evaluate, self._definitions
        )
        policy = self._policy = LagBehindUpper(settings.retain_ms)
        self._reconciler = Reconciler(self, self._objects, self._definitions, policy, now_ms)
        log.info("coordinator has opened an epoch", extra={"epoch": epoch})

    def _reader(self) -> Reads:
        indexes = IndexReads(lambda: self.catalog.state, self.instances)
        return Reads(
            self.shards,
            self.guards,
            self._workers,
            self._unmade,
            self._delay,
            indexes,
            SystemReads(self.system_state, self._now_ms),
        )

    def start(self) -> None:
        """Complete unfinished objects, send the dataflows, and start the background threads."""
        with self._definitions:
            self._reconciler.restore()
        self._reconciler.start()

    @property
    def failure(self) -> SlackwaterError | None:
        """Why this coordinator must end, if it was fenced."""
        return self._reconciler.failure

    @property
    def is_alive(self) -> bool:
        """Whether its background threads run; if not, its process must end."""
        return self._reconciler.is_alive and self.shards.defect is None

    @property
    def observed(self) -> Observed:
        """The state that replicas have reported."""
        return self.instances.observed

    @property
    def audit_counts(self) -> Counts:
        """The numbers of audits since it began."""
        return self.audits.verdicts.counts

    def stop(self) -> None:
        """Stop; unfinished work continues at the next start."""
        self._reconciler.stop()
        self.instances.close()
        self.catalog.close()
        self.shards.close()

    def execute(self, text: str, session: Session | None = None) -> Iterator[Result]:
        """Yield the results of the statements of the text, one after the other, in one session.

        A statement that fails ends the text. Raises only errors that end the coordinator.
        """
        session = session or Session()
        try:
            statements = sql.parse(text)
            texts = [text[tokens[0].start : tokens[-1].end] for tokens in split(tokenize(text))]
            for statement, part in zip(statements, texts, strict=True):
                yield from self._execute(statement, part, session)
        except Deposed:
            raise
        except SlackwaterError as error:
            yield failed(error)
        except TimeoutError as error:
            yield Failed(str(error))
        except RecursionError:
            yield failed(too_deep())

    def _execute(  # noqa: C901, PLR0912 - one case a statement
        self, statement: sql.Statement, text: str, session: Session
    ) -> Iterator[Result]:
        if isinstance(statement, Change):
            with self._definitions:
                done = self._change(statement)
            yield from done
            return
        match statement:
            case (
                sql.CreateSource()
                | sql.CreateMaterializedView()
                | CreateRebase()
                | sql.CreateSink()
                | CreateIndex()
                | sql.CreateFunction()
            ):
                yield from self._defined(statement, text)
            case ShowFunctions() | ShowClusters() | ShowReplicas() | sql.Show():
                yield from self._shown(statement)
            case Select():
                yield from self._select(statement, session)
            case Subscribe():
                yield from self._subscribe(statement, session)
            case Audit():
                yield from self.audits.execute(statement, session)
            case CopyTo():
                yield from self.copies.execute(statement, session)
            case sql.Explain(query, picture):
                catalog, evaluate = self.catalog.state, self._reads.evaluate
                yield from explained(query, catalog, evaluate, picture=picture)
            case ExplainAnalyze(name, picture):
                yield from analyzed(name, self.system_state(), picture=picture)
            case (
                CreateMaterialization()
                | AlterMaterialization()
                | DropMaterialization()
                | ShowMaterializations()
            ):
                yield from self.materializing.execute(statement, text)
            case _:
                assert_never(statement)

    def _shown(self, statement: Listing) -> Iterator[Result]:
        match statement:
            case ShowFunctions():
                return show_statements.functions(self.catalog.state)
            case ShowClusters():
                return show_clusters.results(self.clusters())
            case ShowReplicas():
                return show_statements.replicas(
                    self.observed, self.conditions(), self._now_ms()
                )
            case sql.Show(kind):
                return show_statements.objects(kind, self.conditions())
            case _:
                assert_never(statement)

    def _select(self, statement: Select, session: Session) -> Iterator[Result]:
        catalog, when = self.catalog.state, When(statement.as_of, session)
        items = [item for item in catalog.ordered() if item.has_shard]
        functions = tuple(catalog.functions.values())
        yield from self._reads.select(statement.query, when, items, functions)

    def _subscribe(self, statement: Subscribe, session: Session) -> Iterator[Result]:
        catalog = self.catalog.state
        item = ddl.readable(statement.name, catalog)
        when = When(statement.as_of, session, timeline(item, catalog.items))
        deliver = by_replicas(statement, item, self.instances)
        yield from self._reads.subscribes.subscribe(item, when, statement, deliver)

    def _defined(self, statement: Definition, text: str) -> Iterator[Result]:
        """Execute a definition; it is evaluated in a worker before, without the lock."""
        done: tuple[Result, ...] | None = None
        while done is None:  # again if another definition came in between
            catalog = self.catalog.state
            evaluation = yield from evaluated(statement, catalog, self._reads.evaluate)
            with self._definitions:
                if isinstance(statement, sql.CreateFunction):
                    done = create_function(statement, evaluation, self.catalog)
                else:
                    done = self._create(statement, text, evaluation)
        yield from done

    def _plan(self, item: Item, catalog: Catalog) -> str:
        """Return the JSON of a view's plan. Errors: InvalidStatement."""
        plan, _ = self._workers.answer(View(query_of(item, catalog), item.as_of))
        return joined([plan])

    def _unmade(self, item: Item) -> str:
        """Return why an object cannot be read yet; empty if it can.

        Errors: InvalidStatement when it was dropped.
        """
        current = self.catalog.state.items.get(item.id)
        if current is None:
            raise unreadable(item.name, None, None)
        if self._objects.is_made(current):
            return ""
        problems = self._reconciler.problems
        first = next(
            (collection for collection in (item.id, *item.inputs) if collection in problems),
            None,
        )
        return "it is being created" if first is None else problems[first]

    def _delay(self, item: Item) -> Delay | None:
        return delay_of(item, self.catalog.state, self.observed)

    def _create(
        self, statement: ObjectDefinition, text: str, evaluation: Evaluated
    ) -> tuple[Result, ...] | None:
        """Create an object; None if the catalog has changed since the evaluation."""
        existing = self.catalog.sync().find(statement.name)
        if existing is None:
            item = self._define(statement, text, evaluation)
            if item is None:
                return None
            if item.has_shard:
                self._objects.refuse_taken(item)
            if isinstance(evaluation, PlannedView) and not emits(item.query):
                self._objects.plans.keep(item.id, evaluation.plan)
            defined = Create(item)
            item = self.catalog.change(lambda _: defined).items[item.id]
            self._crash("after-catalog")
            self._reconciler.retry(item)
            done = Complete(f"CREATE {NAMES[item.kind].upper()}", {"id": item.id})
            problem = self._reconciler.problems.get(item.id)
            if problem is None:
                return (*notices(evaluation), done)
            return Notice(f"{item.name} is defined, but not created yet: {problem}"), done
        if not statement.if_not_exists:
            raise InvalidStatement(
                f"{NAMES[existing.kind]} {existing.name} already exists",
                hint="names are case-insensitive; drop it or choose another name",
            )
        return (
            Notice(f"{existing.name} already exists and is unchanged"),
            Complete(f"CREATE {NAMES[existing.kind].upper()}", {"id": existing.id}),
        )

    def _define(  # noqa: PLR0911  one case a statement
        self, statement: ObjectDefinition, text: str, evaluation: Evaluated
    ) -> Item | None:
        """Return the object to create; None if the catalog has changed since the evaluation."""
        catalog, topics = self.catalog.state, self._cluster.topics
        namespace = self._settings.namespace
        match statement, evaluation:
            case sql.CreateSource(), tuple(columns):
                return ddl.source(statement, text, catalog, topics, namespace, columns)
            case sql.CreateMaterializedView(query=query), PlannedView(meaning, _, viewed):
                if meaning != meant(query, catalog):
                    return None
                return ddl.view(statement, text, catalog, viewed, self._objects.is_healthy)
            case CreateRebase(), _:
                return ddl.rebase(statement, text, catalog)
            case sql.CreateSink(), _:
                return ddl.sink(statement, text, catalog, topics, namespace)
            case CreateIndex(), _:
                return ddl.index(statement, text, catalog)
            case _:
                return None

    def _alter(self, statement: sql.Alter) -> tuple[Result, ...]:
        item = ddl.alterable(statement, self.catalog.sync())
        policy = ddl.retention(statement.retain)
        self.catalog.change(lambda _: Retain(item.id, policy))
        return (Complete(f"ALTER {statement.kind.value}", {"id": item.id}),)

    def _resume(self, statement: ResumeSource) -> tuple[Result, ...]:
        item = resume_source.source(statement.name, self.catalog.sync())
        self.shards.sync()
        letters = item.dead_letters
        resume = resume_source.resume(
            statement,
            item,
            self._cluster.topics,
            self._settings.namespace,
            resume_source.Bindings(
                self.shards.state(item.id).source or {},
                {} if letters is None else self.shards.state(letters.id).source or {},
            ),
            self.observed.report(item).status,
        )
        item = self.catalog.change(lambda _: resume).items[item.id]
        self._crash("after-catalog-resume")
        self._reconciler.renew(item)
        return resume_source.results(item)

    def _change(self, statement: Change) -> tuple[Result, ...]:
        match statement:
            case sql.Alter():
                return self._alter(statement)
            case ResumeSource():
                return self._resume(statement)
            case AlterErrors():
                return self._alter_errors(statement)
            case CreateCluster() | AlterCluster() | DropCluster():
                return self._change_cluster(statement)
            case sql.Drop():
                return self._drop(statement)
            case sql.DropFunction():
                return drop_function(statement, self.catalog)
            case _:
                assert_never(statement)

    def _change_cluster(self, statement: ClusterStatement) -> tuple[Result, ...]:
        results = changed(statement, self.catalog)
        self._reconciler.follow_clusters()
        return results

    def _alter_errors(self, statement: AlterErrors) -> tuple[Result, ...]:
        catalog = self.catalog.sync()
        item = bad_messages.source(statement.name, catalog)
        self.shards.sync()
        bound = self.shards.state(item.id).source or {} if self._objects.is_made(item) else {}
        event = bad_messages.altered(statement, item, catalog, bound)
        item = self.catalog.change(lambda _: event).items[item.id]
        self._crash("after-catalog-errors")
        self._reconciler.renew(item)
        return (Complete("ALTER SOURCE", {"id": item.id}),)

    def _drop(self, statement: sql.Drop) -> tuple[Result, ...]:
        tag = f"DROP {statement.kind.value}"
        item = ddl.droppable(statement.kind, statement.name, self.catalog.sync())
        if item is None:
            if not statement.if_exists:
                raise InvalidStatement(f"{statement.name} does not exist")
            return (Notice(f"{statement.name} does not exist"), Complete(tag))
        self.catalog.change(lambda _: Drop(item.id))
        self._crash("after-catalog-drop")
        self._reconciler.abolish(item)
        return (Complete(tag, {"id": item.id}),)

    def clusters(self) -> list[show_clusters.ShownCluster]:
        """Return every cluster, with its live replicas."""
        return show_clusters.shown(self.catalog.state, self.observed, self._settings.buckets)

    def materialized(self) -> tuple[show_materializations.ShownMaterialization, ...]:
        """Return every materialization with what the service that runs it says."""
        return self.materializing.shown()

    def system_state(self) -> SystemState:
        """Return what is known now, for system relations."""
        instances, catalog = self.instances, self.catalog.state
        return SystemState(
            catalog,
            self.conditions(),
            instances.observed,
            self.clusters(),
            instances.plans,
            instances.open_peeks,
            self._reads.subscribes.running.now,
            self._now_ms(),
        )

    def conditions(self) -> tuple[show.ShownObject, ...]:
        """Return every object with its frontiers and what the replicas report about it."""
        states: dict[CollectionId, CollectionState] = {}
        problems = dict(self._reconciler.problems)
        for item in self.catalog.state.ordered():
            try:
                states[item.id] = self.shards.state(item.id)
            except InvalidUsage:
                continue  # a sink, or an object whose shard is still to be made
            except SlackwaterError as failure:
                problems[item.id] = with_way_out(failure, self.shards)
        return show.shown(self.catalog.state, states, self.observed, problems, self._policy)
