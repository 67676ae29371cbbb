"""`slackwater bench consistency`: counts inconsistent observations of the bank."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from connectors.runtime.task import Materialization
from streams.app.materialize.catalog_lookup import named
from streams.bench.consistency import bank
from streams.bench.consistency.bank import CHECKS, IN_TIME, Transfers
from streams.bench.consistency.observers import Bank, observe
from streams.bench.consistency.reader import TWO_TOTALS
from streams.bench.consistency.subscription_check import Tally
from streams.bench.consistency.tables import Tables, tables
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import rig
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

TRANSACTIONS, CONFIRMATIONS = Topic("transactions"), Topic("confirmations")
PARTITIONS = 2


def consistency(
    console: Console, seconds: float, rate: int, *, postgres: bool, by_event_time: bool
) -> Outcome:
    """Run the bank on an environment of its own, print the table, and give the figures.

    With `postgres` its views are kept in one too, and a process reads them there.
    """
    with ExitStack() as stack:
        bench = stack.enter_context(rig(lambda text: console.print(f"[dim]{text}[/]")))
        settings = bench.environment.kafka
        broker = KafkaBroker(settings)
        stack.callback(broker.close)
        kinds = [
            TopicSpec(topic, PARTITIONS, TopicKind.RAW)
            for topic in (TRANSACTIONS, CONFIRMATIONS)
        ]
        broker.topics.create(kinds)
        for statement in bank.sources(TRANSACTIONS, CONFIRMATIONS, by_event_time=by_event_time):
            bench.environment.sql(statement)

        def resolved(task: Materialization) -> Materialization:
            return named(task, broker.logs, broker.topics, bench.environment.settings.namespace)

        postgres_tables: Tables | None = None
        if postgres:
            postgres_tables = stack.enter_context(tables(bench.shards, resolved))
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("", total=seconds)

            def tell(doing: str, gone: float) -> None:
                bar.update(task, description=doing, completed=gone)

            working = working_bank(settings, TRANSACTIONS, CONFIRMATIONS, rate)
            working.by_event_time = by_event_time
            watch = observe(bench.environment.client, working, seconds, tell, postgres_tables)
    seen = {"SUBSCRIBE": watch.subscribed, "SELECT": watch.selected}
    if postgres_tables is not None:
        seen["PostgreSQL"] = postgres_tables.read
    console.print(table(seen))
    return outcome(
        seen, working.transfers, None if postgres_tables is None else postgres_tables.commits
    )


def working_bank(
    settings: ClientSettings, transactions: Topic, confirmations: Topic, rate: int
) -> Bank:
    """A bank that publishes to two topics."""
    publisher = Publisher(settings)

    def publish(topic: Topic, messages: list[str]) -> None:
        publisher.publish(topic, None, pa.array(messages, pa.string()))
        publisher.flush()

    return Bank(partial(publish, transactions), partial(publish, confirmations), rate)


Seen = Mapping[str, Mapping[str, Tally]]
"""The tallies of each check, by the way in which it was looked at."""


def table(seen: Seen) -> Table:
    """The number of observations of each kind, and of wrong ones."""
    columns = [title for way in seen for title in (way, "wrong")]
    shown = Table("", *columns, title="internal consistency")
    for column in shown.columns[1:]:
        column.justify = "right"
    for name in (*CHECKS, TWO_TOTALS, IN_TIME):
        if any(name in tallies for tallies in seen.values()):
            cells = [cell for tallies in seen.values() for cell in _cells(tallies.get(name))]
            shown.add_row(name, *cells)
    return shown


def _cells(tally: Tally | None) -> tuple[str, str]:
    if tally is None:
        return "", ""
    colour = "red" if tally.wrong else "green"
    return f"{tally.observations:,}", f"[{colour}]{tally.wrong:,}"


def outcome(seen: Seen, transfers: Transfers, commits: int | None = None) -> Outcome:
    """The figures: observations and wrong ones, in all and by way."""
    figures = [
        Figure(
            f"consistency_{way.lower()}_observations",
            sum(tally.observations for tally in tallies.values()),
        )
        for way, tallies in seen.items()
    ]
    if commits is not None:
        figures.append(Figure("consistency_postgresql_commits", commits))
    wrong = sum(tally.wrong for tallies in seen.values() for tally in tallies.values())
    return Outcome(
        "consistency",
        (
            at_most("consistency_wrong", wrong, "", 0),
            *figures,
            Figure("consistency_transfers", transfers.sent),
            Figure("consistency_unconfirmed", len(transfers.unconfirmed)),
        ),
        note="each time of a change is an observation of SUBSCRIBE, each query one of others",
    )
