"""Executes the statements about materializations, and tells the service that runs them.

The catalog has them; a small table has what the service is to do (`schemas.materializations`),
and is made equal to the catalog after each statement, and again by the reconciler until it is.
Another small table, which the service writes, says how they are.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import cast

from schemas.materializations import (
    DROPPED,
    HEARTBEAT_S,
    KIND,
    SPEC_COLUMNS,
    SPECS,
    STATE_COLUMNS,
    STATES,
    Spec,
    State,
    Wanted,
    read_all,
)
from streams.adapter.alter_materialization import (
    amended_binding,
    amended_task,
    keeps_old_rows,
    refuse_reshaped,
)
from streams.adapter.catalog import Catalog, Item
from streams.adapter.catalog_log import CatalogLog, Deposed
from streams.adapter.catalog_materializations import (
    LETTER,
    Materialization,
    Materializations,
    Materialize,
    Unbind,
    Unmaterialize,
)
from streams.adapter.materialization_tasks import (
    Check,
    Json,
    bound,
    endpoint,
    needs_key,
    refuse_keyless,
    refuse_undivided,
    settings,
)
from streams.adapter.planner import Evaluate, query_of
from streams.adapter.results import Columns, Complete, Notice, Result
from streams.adapter.row_encoding import text_rows
from streams.adapter.show_materializations import COLUMNS, ShownMaterialization, row, shown
from streams.adapter.timelines import common
from streams.adapter.workers.requests import View, Viewed
from streams.errors import InvalidStatement, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.plan.sql import materializations as sql
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.small_table import SmallTable

log = logging.getLogger(__name__)

SILENT_S = 4 * HEARTBEAT_S
"""After so long without a word of it there is no service."""


class Materializing:
    """The materializations of a coordinator. Statements may come from any thread."""

    def __init__(
        self,
        catalog: CatalogLog,
        shards: Shards,
        check: Check,
        evaluate: Evaluate,
        definitions: threading.RLock,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`definitions` is held while the catalog changes, and while `beat` is called."""
        self._catalog, self._shards = catalog, shards
        self._check, self._evaluate = check, evaluate
        self._definitions, self._monotonic_s = definitions, monotonic_s
        self._specs = SmallTable(shards, SPECS, Description(SPEC_COLUMNS, kind=KIND))
        self._states = SmallTable(shards, STATES, Description(STATE_COLUMNS, kind=KIND))
        self._reading = threading.Lock()
        self._told: Materializations | None = None
        self._heard: tuple[Timestamp | None, float] = None, monotonic_s()
        self._unreadable: frozenset[str] = frozenset()
        """What was wrong with states at the last look, and is in the log."""

    def execute(self, statement: sql.MaterializationStatement, text: str) -> Iterator[Result]:
        """Yield the results of a statement. Errors: InvalidStatement."""
        match statement:
            case sql.CreateMaterialization():
                yield from self._create(statement, text)
            case sql.AlterMaterialization(name, change):
                yield from self._alter(name, change)
            case sql.DropMaterialization():
                yield from self._drop(statement)
            case sql.ShowMaterializations():
                materializations = self.shown()
                yield Columns(COLUMNS)
                yield text_rows([row(materialization) for materialization in materializations])
                yield Complete(f"SHOW {len(materializations)}")

    def _create(self, statement: sql.CreateMaterialization, text: str) -> Iterator[Result]:
        tag = "CREATE MATERIALIZATION"
        target = {
            **endpoint(statement.connector, statement.options),
            **settings(statement.settings),
        }
        refuse_name(statement.name)
        while True:
            catalog = self._catalog.sync()
            existing = catalog.materializations.find(statement.name)
            if existing is not None:
                if not statement.if_not_exists:
                    raise InvalidStatement(
                        f"materialization {existing.name} already exists",
                        hint="names are case-insensitive; drop it or choose another name",
                    )
                yield Notice(f"{existing.name} already exists and is unchanged")
                yield Complete(tag, {"id": existing.id})
                return
            bindings = yield from self._bound(statement.bindings, catalog)
            task = {"task": statement.name, **target, "bindings": bindings}
            self._refuse(task, bindings, catalog)
            with self._definitions:
                catalog = self._catalog.sync()
                materialization = Materialization(
                    id=f"{LETTER}{catalog.last_number + 1}",
                    name=statement.name,
                    statement=text,
                    task=json.dumps(task, ensure_ascii=False),
                    inputs=inputs_of(bindings),
                )
                is_new = catalog.materializations.find(materialization.name) is None
                if not (is_new and catalog.items.keys() >= set(materialization.inputs)):
                    continue
                problem = self._change(Materialize(materialization))
            yield from noticed(materialization.name, problem)
            yield Complete(tag, {"id": materialization.id})
            return

    def _alter(self, name: str, change: sql.Change) -> Iterator[Result]:
        while True:
            catalog = self._catalog.sync()
            before = known(name, catalog)
            after = yield from self._changed(before, change, catalog)
            with self._definitions:
                current = self._catalog.sync()
                is_same = current.materializations.live.get(before.id) == before
                if not (is_same and current.items.keys() >= set(after.inputs)):
                    continue
                problem = "" if after == before else self._change(Materialize(after))
            if after == before:
                yield Notice(unchanged(before, change))
            yield from noticed(before.name, problem)
            yield Complete("ALTER MATERIALIZATION", {"id": before.id})
            return

    def _changed(
        self, before: Materialization, change: sql.Change, catalog: Catalog
    ) -> Generator[Result, None, Materialization]:
        """Return the materialization after a change. Errors: InvalidStatement."""
        task: Json = json.loads(before.task)
        bindings = bindings_of(task)
        match change:
            case sql.Pause() | sql.Resume():
                return replace(before, is_paused=isinstance(change, sql.Pause))
            case sql.AmendEndpoint() | sql.AmendSettings():
                task = amended_task(task, change)
            case sql.AmendBinding(relation, amendment):
                id_ = one_bound(before, relation, catalog)
                bindings = yield from self._amended(bindings, id_, amendment, catalog)
            case sql.AddBindings(binds):
                added = yield from self._bound(binds, catalog)
                refuse_bound(before, inputs_of(added), catalog)
                bindings = [*bindings, *added]
            case sql.DropBindings(relations):
                gone = {one_bound(before, relation, catalog) for relation in relations}
                bindings = [
                    binding for binding in bindings if binding["collection"] not in gone
                ]
        if not bindings:
            raise InvalidStatement(
                f"{before.name} would bind nothing",
                hint=f"to end it, DROP MATERIALIZATION {before.name}",
            )
        task = {**task, "bindings": bindings}
        if not isinstance(change, sql.DropBindings):
            self._refuse(task, bindings, catalog)
        inputs = inputs_of(bindings)
        past = {*before.unbound, *before.inputs} - set(inputs)
        return replace(
            before,
            task=json.dumps(task, ensure_ascii=False),
            inputs=inputs,
            unbound=tuple(sorted(past)),
        )

    def _amended(
        self,
        bindings: Sequence[Json],
        id_: CollectionId,
        amendment: sql.Amendment,
        catalog: Catalog,
    ) -> Generator[Result, None, list[Json]]:
        """Return the bindings, one of them with other options. Errors: InvalidStatement."""
        item = catalog.items[id_]
        number = inputs_of(bindings).index(id_)
        after = amended_binding(bindings[number], item, amendment)
        if needs_key(after):
            after = yield from self._with_key(after, item, catalog)
        refuse_reshaped(bindings[number], after, item.name)
        if keeps_old_rows(bindings[number], after):
            yield Notice(
                f"rows of {item.name} that exist already keep their columns;"
                " raise BACKFILL to rewrite them"
            )
        return [*bindings[:number], after, *bindings[number + 1 :]]

    def _drop(self, statement: sql.DropMaterialization) -> Iterator[Result]:
        tag = "DROP MATERIALIZATION"
        with self._definitions:
            materialization = self._catalog.sync().materializations.find(statement.name)
            if materialization is None and not statement.if_exists:
                raise absent(statement.name, self._catalog.state)
            problem = (
                ""
                if materialization is None
                else self._change(Unmaterialize(materialization.id))
            )
        if materialization is None:
            yield Notice(f"materialization {statement.name} does not exist")
            yield Complete(tag)
            return
        yield from noticed(materialization.name, problem)
        yield Complete(tag, {"id": materialization.id})

    def _bound(
        self, binds: Sequence[sql.Bind], catalog: Catalog
    ) -> Generator[Result, None, list[Json]]:
        """Return bindings, with the keys that follow from definitions."""
        bindings = []
        for item, task_binding in bound(binds, catalog):
            is_keyed = not needs_key(task_binding)
            bindings.append(
                task_binding
                if is_keyed
                else (yield from self._with_key(task_binding, item, catalog))
            )
        return bindings

    def _with_key(
        self, task_binding: Json, item: Item, catalog: Catalog
    ) -> Generator[Result, None, Json]:
        """Return a binding with the key that follows from the definition, if one does."""
        keys = yield from self._key(item, catalog)
        return {**task_binding, "key": list(keys)} if keys else task_binding

    def _key(self, item: Item, catalog: Catalog) -> Generator[Result, None, tuple[str, ...]]:
        """Return the columns that identify a row of an object by its definition."""
        if item.kind == "rebase":
            item = catalog.items[item.inputs[0]]
        if item.kind != "view":
            return () if item.source is None else item.source.keys
        ended = yield from self._evaluate(View(query_of(item, catalog)))
        return Viewed.told(ended.facts).keys

    def _refuse(self, task: Json, bindings: Sequence[Json], catalog: Catalog) -> None:
        """Refuse what its connector does not take. Errors: InvalidStatement."""
        try:
            deltas = self._check(task)
        except InvalidUsage as error:
            raise InvalidStatement(str(error)) from error
        names = {str(item.id): item.name for item in catalog.items.values()}
        refuse_keyless(bindings, names, deltas)
        refuse_undivided(task, bindings, names)
        common([catalog.items[input_] for input_ in inputs_of(bindings)], catalog.items)

    def _change(self, body: Materialize | Unmaterialize) -> str:
        """Change the catalog and tell the service; return why it could not be told, if so."""
        self._catalog.change(lambda _: body)
        try:
            self._tell()
        except Deposed:
            raise
        except SlackwaterError as error:
            return str(error)
        return ""

    def beat(self) -> None:
        """Tell the service what it was not told, and forget what has ended. Errors: Deposed."""
        materializations = self._catalog.state.materializations
        try:
            self._listen(is_expected=bool(materializations.live))
            if materializations.ending:
                states = self._read()
                for id_ in materializations.ending:
                    if id_ in states and states[id_].state == DROPPED:
                        self._catalog.change(lambda _, id_=id_: Unbind(id_))  # type: ignore[misc]  # bound now
            self._tell()
        except Deposed:
            raise
        except SlackwaterError as error:
            log.warning("materializations: retrying", extra={"cause": str(error)})

    def _tell(self) -> None:
        """Make the table of specifications what the catalog says. Errors: SlackwaterError."""
        wanted = self._catalog.state.materializations
        if wanted == self._told:
            return
        rows = [spec.row() for spec in specs(wanted)]
        if rows or self._specs.find():
            if not self._specs.is_owned:
                self._specs.own()
            if set(rows) != set(self._specs.rows()):
                self._specs.write(rows)
        self._told = wanted

    def shown(self) -> tuple[ShownMaterialization, ...]:
        """Return every materialization, with what the service says of it."""
        catalog = self._catalog.state
        live = catalog.materializations.live
        if not live:
            return ()
        states = self._read()
        is_silent = self._monotonic_s() - self._heard[1] > SILENT_S
        return tuple(
            shown(
                materialization,
                states.get(materialization.id),
                catalog,
                self._upper(materialization),
                is_silent=is_silent,
            )
            for materialization in live.values()
        )

    def _listen(self, *, is_expected: bool) -> None:
        """Take note of when the service has said something; nothing is said of nothing."""
        with self._reading:
            is_there = is_expected and self._states.find()
            upper = self._states.upper if is_there else None
            if upper != self._heard[0] or not is_expected:
                self._heard = upper, self._monotonic_s()

    def _read(self) -> dict[str, State]:
        """Return what the service says, by id."""
        self._listen(is_expected=True)
        with self._reading:
            if not self._states.find():
                return {}
            states, unreadable = read_all(self._states.rows(), State.of)
        for problem in set(unreadable.values()).difference(self._unreadable):
            log.warning("an unreadable state", extra={"cause": problem})
        self._unreadable = frozenset(unreadable.values())
        failed = {
            id_: State(id=id_, state="failed", message=problem)
            for id_, problem in unreadable.items()
        }
        return {**states, **failed}

    def _upper(self, materialization: Materialization) -> Timestamp | None:
        """Return up to where all that it binds is; None if that is not known."""
        try:
            uppers = [self._shards.state(input_).upper for input_ in materialization.inputs]
        except SlackwaterError:
            return None
        return min((upper.time for upper in uppers if not upper.is_empty), default=None)


def specs(materializations: Materializations) -> Iterator[Spec]:
    """The specification of each materialization."""
    for materialization in materializations.live.values():
        yield spec_of(materialization, "pause" if materialization.is_paused else "run")
    for ending in materializations.ending.values():
        yield spec_of(ending, "drop")


def spec_of(materialization: Materialization, wanted: Wanted) -> Spec:
    """The specification of one materialization."""
    task = json.loads(materialization.task)
    return Spec(
        id=materialization.id, wanted=wanted, task=task, unbound=materialization.unbound
    )


def unchanged(materialization: Materialization, change: sql.Change) -> str:
    """The notice for a statement that changes nothing."""
    if isinstance(change, sql.Pause | sql.Resume):
        state = "paused" if materialization.is_paused else "not paused"
        return f"{materialization.name} is {state}"
    return f"{materialization.name} is unchanged"


def bindings_of(task: Json) -> list[Json]:
    """The bindings of a task."""
    return cast("list[Json]", task["bindings"])


def inputs_of(bindings: Sequence[Json]) -> tuple[CollectionId, ...]:
    """The objects that are bound."""
    return tuple(CollectionId(str(binding["collection"])) for binding in bindings)


def known(name: str, catalog: Catalog) -> Materialization:
    """Return the materialization of a name. Errors: InvalidStatement."""
    materialization = catalog.materializations.find(name)
    if materialization is None:
        raise absent(name, catalog)
    return materialization


def absent(name: str, catalog: Catalog) -> InvalidStatement:
    """The error for an unknown materialization."""
    names = ", ".join(
        materialization.name for materialization in catalog.materializations.live.values()
    )
    return InvalidStatement(
        f"materialization {name} does not exist",
        f"there are {names}" if names else "there is none yet",
    )


def one_bound(
    materialization: Materialization, relation: str, catalog: Catalog
) -> CollectionId:
    """Return the id of a bound object by its name. Errors: InvalidStatement."""
    names = {catalog.items[input_].name.casefold(): input_ for input_ in materialization.inputs}
    if relation.casefold() not in names:
        known_names = ", ".join(catalog.items[input_].name for input_ in materialization.inputs)
        raise InvalidStatement(
            f"{materialization.name} does not bind {relation}", f"binds {known_names}"
        )
    return names[relation.casefold()]


def refuse_bound(
    materialization: Materialization, added: Sequence[CollectionId], catalog: Catalog
) -> None:
    """Errors: InvalidStatement if one is bound already."""
    for collection in added:
        if collection in materialization.inputs:
            name = catalog.items[collection].name
            raise InvalidStatement(
                f"{materialization.name} binds {name} already",
                "a materialization binds a view once",
                f"drop the binding first: ALTER MATERIALIZATION {materialization.name} DROP"
                f" BINDING {name}",
            )


def refuse_name(name: str) -> None:
    """Errors: InvalidStatement if an endpoint cannot have a task of the name."""
    is_plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    if not is_plain or len(name) > LONGEST_NAME:
        raise InvalidStatement(
            f"a materialization cannot have the name {name[:LONGEST_NAME]!r}",
            f"expected at most {LONGEST_NAME} letters, digits, _ and -: it names the task in"
            " the endpoint",
        )


LONGEST_NAME = 100


def noticed(name: str, problem: str) -> Iterator[Result]:
    """A notice for the user if the service could not be notified."""
    if problem:
        yield Notice(f"{name}: the service will be notified once brokers answer: {problem}")
