"""`slackwater bench consistency`: how often the bank's books were seen to be wrong."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from streams.bench.consistency import bank
from streams.bench.consistency.bank import CHECKS, IN_TIME, Transfers
from streams.bench.consistency.books import Tally
from streams.bench.consistency.watching import Bank, Watch, observe
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import rig
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.publish import Publisher
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

TRANSACTIONS, CONFIRMATIONS = Topic("transactions"), Topic("confirmations")
PARTITIONS = 2


def consistency(console: Console, seconds: float, rate: int) -> Outcome:
    """Run the bank on an environment of its own, print the table, and give the figures."""
    with rig(lambda text: console.print(f"[dim]{text}[/]")) as bench:
        settings = bench.environment.kafka
        broker = KafkaBroker(settings)
        kinds = [
            TopicSpec(topic, PARTITIONS, TopicKind.RAW)
            for topic in (TRANSACTIONS, CONFIRMATIONS)
        ]
        broker.topics.create(kinds)
        broker.close()
        for statement in bank.sources(TRANSACTIONS, CONFIRMATIONS):
            bench.environment.sql(statement)
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("", total=seconds)

            def tell(doing: str, gone: float) -> None:
                bar.update(task, description=doing, completed=gone)

            working = working_bank(settings, TRANSACTIONS, CONFIRMATIONS, rate)
            watch = observe(bench.environment.client, working, seconds, tell)
    console.print(table(watch.subscribed, watch.selected))
    return outcome(watch, working.transfers)


def working_bank(
    settings: ClientSettings, transactions: Topic, confirmations: Topic, rate: int
) -> Bank:
    """A bank that publishes to two topics."""
    publisher = Publisher(settings)

    def publish(topic: Topic, messages: list[str]) -> None:
        publisher.publish(topic, None, pa.array(messages, pa.string()))
        publisher.flush()

    return Bank(partial(publish, transactions), partial(publish, confirmations), rate)


def table(subscribed: Mapping[str, Tally], selected: Mapping[str, Tally]) -> Table:
    """What was observed in which way, and how much of it was wrong."""
    shown = Table("", "SUBSCRIBE", "wrong", "SELECT", "wrong", title="internal consistency")
    for column in shown.columns[1:]:
        column.justify = "right"
    for name in (*CHECKS, IN_TIME):
        shown.add_row(name, *_cells(subscribed.get(name)), *_cells(selected.get(name)))
    return shown


def _cells(tally: Tally | None) -> tuple[str, str]:
    if tally is None:
        return "", ""
    colour = "red" if tally.wrong else "green"
    return f"{tally.observations:,}", f"[{colour}]{tally.wrong:,}"


def outcome(watch: Watch, transfers: Transfers) -> Outcome:
    """The figures: observations and wrong ones, in all and by way."""
    ways = {"subscribe": watch.subscribed, "select": watch.selected}
    figures = [
        Figure(
            f"consistency_{way}_observations",
            sum(tally.observations for tally in seen.values()),
        )
        for way, seen in ways.items()
    ]
    return Outcome(
        "consistency",
        (
            at_most("consistency_wrong", watch.wrong, "", 0),
            *figures,
            Figure("consistency_transfers", transfers.sent),
            Figure("consistency_unconfirmed", len(transfers.unconfirmed)),
        ),
        note="each time of a change is an observation of SUBSCRIBE, each query one of SELECT",
    )
