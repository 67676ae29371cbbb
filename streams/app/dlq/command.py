"""`slackwater dlq`: list, show and replay dead letters of sources.

They are read by the coordinator's SQL, so that a letter is seen once, and written by one Kafka
transaction, so that all of a replay are there or none.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from streams.app.client import Client, Message
from streams.app.client_options import DIRECTORY, DirectoryOption
from streams.app.dlq import letters as dlq
from streams.app.dlq.letters import Filter, Letter
from streams.app.environment_access import find
from streams.app.error_output import NO_ENVIRONMENT, failed
from streams.app.printer import console_for
from streams.errors import Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.transactions import OutRecord, Transactions
from streams.kafka.settings import ClientSettings

app = typer.Typer(
    name="dlq",
    help=(
        "List, show and replay dead letters: messages that a source could not decode.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage, 3 no environment."
    ),
    no_args_is_help=True,
)

LIMIT = 100
"""The default number of letters that `show` prints."""

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
]


@dataclass(frozen=True, slots=True, repr=False)
class Reach:
    """A running environment: its coordinator and its brokers. It may hold secrets: no repr."""

    client: Client
    kafka: ClientSettings
    namespace: str

    def sources(self) -> list[Message]:
        """Every source, as /status has it."""
        return [object_ for object_ in self.client.objects() if object_["kind"] == "source"]

    def expect_letters(self, name: str) -> str:
        """The name of a source that keeps dead letters. Errors: InvalidUsage."""
        by_name = {str(source["name"]): source for source in self.sources()}
        spelled = {key.casefold(): source for key, source in by_name.items()}
        source = spelled.get(name.casefold())
        if source is None:
            names = ", ".join(by_name) or "none"
            raise InvalidUsage(f"no source {name!r}: the environment has {names}")
        if source["dead_letters"] is None:
            keepers = [
                key for key, other in by_name.items() if other["dead_letters"] is not None
            ]
            raise InvalidUsage(
                f"source {source['name']} keeps no dead letters: set its ON ERROR with"
                f" ALTER SOURCE {source['name']} SET (ON ERROR DEAD LETTER)"
                f" (sources that keep some: {', '.join(keepers) or 'none'})"
            )
        return str(source["name"])

    def letters(self, source: str, filter_: Filter) -> list[Letter]:
        """The letters of a source. Errors: InvalidStatement, Determinate, Indeterminate."""
        (answer,) = self.client.run(filter_.query(source))
        return [dlq.letter(row) for row in answer.rows]

    def messages(self, source: str, where: str) -> list[Letter]:
        """Those that are messages, under a condition. Errors: as of `letters`."""
        letters = self.letters(source, Filter(where=where))
        return [letter for letter in letters if letter.is_message]


@contextmanager
def reaching(directory: Path, *, as_json: bool) -> Iterator[Reach]:
    """The environment of a directory; errors become a message and an exit code."""
    try:
        reach = Reach(*find(directory.absolute()))
    except InvalidUsage as error:
        raise failed(error, NO_ENVIRONMENT, as_json=as_json) from error
    try:
        yield reach
    except SlackwaterError as error:
        raise failed(error, as_json=as_json) from error


@contextmanager
def bar(text: str, total: int | None = None) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        progress.add_task(text, total=total)
        yield progress


@app.command("list")
def list_(directory: DirectoryOption = DIRECTORY, *, as_json: AsJson = False) -> None:
    """Sources that keep dead letters, with their number and the first and last time (UTC).

    A source of which none can be read yet has no numbers.

    Examples:
        slackwater dlq list
        slackwater dlq list --json
    """
    with reaching(directory, as_json=as_json) as reach:
        sources = [source for source in reach.sources() if source["dead_letters"] is not None]
        with bar("counting", len(sources)) as progress:
            counts = []
            for source in sources:
                counts.append(_count(reach.client, source))
                progress.advance(progress.task_ids[0])
        if as_json:
            for count in counts:
                typer.echo(json.dumps(count, ensure_ascii=False))
            return
        table = Table("source", "dead letters", "first", "last", header_style="bold")
        for count in counts:
            number = count["letters"]
            table.add_row(
                escape(str(count["source"])),
                f"{number:,}" if isinstance(number, int) else "not readable yet",
                dlq.moment(count["first"]),
                dlq.moment(count["last"]),
            )
        console_for(sys.stdout.isatty()).print(table)


def _count(client: Client, source: Message) -> dict[str, object]:
    """The number of a source's letters, and their times; None before it can be read."""
    name = str(source["name"])
    if source["letters"] is None:
        return {"source": name, "letters": None, "first": None, "last": None}
    query = f"SELECT count(*), min(time), max(time) FROM {dlq.relation(name)}"
    ((count, first, last),) = client.run(query)[0].rows
    return {"source": name, "letters": count, "first": first, "last": last}


@app.command()
def show(  # noqa: PLR0913  the options of a command, each by name
    source: Source,
    *,
    partition: Annotated[int | None, typer.Option(help="Only of this partition.")] = None,
    offset: Annotated[int | None, typer.Option(help="Only at this offset.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="Only those that came at this time or later (UTC), or tell no time.",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"],
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Most letters to print.", min=1)] = LIMIT,
    directory: DirectoryOption = DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Print dead letters in the order of their offsets: place, time, key, value and reason.

    Keys and values are printed as text, or in base64 if they are no UTF-8.

    Examples:
        slackwater dlq show orders
        slackwater dlq show orders --partition 0 --offset 17
        slackwater dlq show orders --since 2026-01-31 --limit 10 --json
    """
    with reaching(directory, as_json=as_json) as reach:
        name = reach.expect_letters(source)
        with bar("reading"):
            chosen = Filter(partition, offset, since, limit=limit + 1)
            letters = reach.letters(name, chosen)
        for letter in letters[:limit]:
            text = json.dumps(letter.as_object(), ensure_ascii=False)
            typer.echo(text if as_json else letter.as_line())
        if len(letters) > limit:
            typer.echo(f"there are more than {limit:,}: --limit prints more", err=True)


@app.command()
def replay(  # noqa: PLR0913  the options of a command, each by name
    source: Source,
    *,
    to: Annotated[
        str, typer.Option(metavar="TOPIC", help="Write to this topic, partitioned by key.")
    ] = "",
    same_topic: Annotated[
        bool,
        typer.Option(
            "--same-topic", help="Write each to the topic and partition it came from."
        ),
    ] = False,
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Only those for which this condition holds.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")
    ] = False,
    directory: DirectoryOption = DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Write the keys and values of dead letters to a topic, in one Kafka transaction.

    All of them are written, or none. Headers are not kept, so they are not written. Messages
    that RESUME FROM skipped were never read, and are left out. The letters stay in
    SOURCE.errors: a second replay writes them a second time. Conditions read the
    columns topic, partition, "offset", time, key, value and reason.

    Examples:
        slackwater dlq replay orders --to orders.retry --dry-run
        slackwater dlq replay orders --to orders.retry --where "reason LIKE '%amount%'"
        slackwater dlq replay orders --same-topic --where "partition = 0"
    """
    if bool(to) == same_topic:
        raise typer.BadParameter("expected either --to TOPIC or --same-topic")
    with reaching(directory, as_json=as_json) as reach:
        name = reach.expect_letters(source)
        with bar("reading"):
            letters = reach.messages(name, where)
        if not letters:
            suffix = " for which the condition holds" if where else ""
            raise InvalidUsage(f"source {name} has no dead letters{suffix}")
        records = dlq.records(letters, None if same_topic else Topic(to))
        _expect_topics(reach, records)
        if not dry_run:
            _write(reach, name, records)
        _report(name, letters, to, dry_run=dry_run, as_json=as_json)


def _expect_topics(reach: Reach, records: Sequence[OutRecord]) -> None:
    """Errors: InvalidUsage if a record has no topic or partition to go to."""
    broker = KafkaBroker(reach.kafka)
    try:
        for topic in sorted({record.topic for record in records}):
            partitions = [r.partition or 0 for r in records if r.topic == topic]
            _expect_topic(reach, broker, topic, max(partitions))
    finally:
        broker.close()


def _expect_topic(reach: Reach, broker: KafkaBroker, topic: Topic, partition: int) -> None:
    info = broker.topics.describe(topic)
    if topic.startswith(f"{reach.namespace}."):
        raise InvalidUsage(
            f"topic {topic!r} belongs to the environment: expected one outside of the namespace"
            f" {reach.namespace}: choose another topic"
        )
    if info is None:
        raise InvalidUsage(
            f"no topic {topic!r} at {reach.kafka.bootstrap}: create it with 'slackwater topic"
            f" create {topic}'"
        )
    if partition >= info.partitions:
        raise InvalidUsage(
            f"topic {topic!r}: expected partition {partition}, which dead letters came from,"
            f" actual {info.partitions} partitions: use --to, which partitions by key"
        )


def _write(reach: Reach, source: str, records: Sequence[OutRecord]) -> None:
    """Write all records at once; a replay of the source that runs elsewhere is fenced off.

    Errors: Determinate if nothing is written, Indeterminate if that is unknown.
    """
    transactions = Transactions(reach.kafka, f"slackwater.dlq.{reach.namespace}.{source}")
    try:
        transactions.init()
        with bar("writing", len(records)) as progress:
            transactions.commit(_counted(records, progress))
    except Indeterminate as error:
        raise Indeterminate(
            f"{error}; either all dead letters are written or none: look with 'slackwater topic"
            " consume' before another replay"
        ) from error
    finally:
        transactions.close()


def _counted(records: Iterable[OutRecord], progress: Progress) -> Iterator[OutRecord]:
    for record in records:
        yield record
        progress.advance(progress.task_ids[0])


def _report(
    source: str, letters: Sequence[Letter], to: str, *, dry_run: bool, as_json: bool
) -> None:
    """Say what was written, or would be."""
    partitions = dlq.summary(letters)
    if as_json:
        facts = {
            "source": source,
            "to": to or None,
            "letters": len(letters),
            "dry_run": dry_run,
            "partitions": partitions,
        }
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    table = Table("from", "partition", "dead letters", "offsets", header_style="bold")
    for some in partitions:
        table.add_row(
            str(some["topic"]),
            str(some["partition"]),
            f"{some['letters']:,}",
            f"{some['first_offset']} to {some['last_offset']}",
        )
    console_for(sys.stdout.isatty()).print(table)
    verb = "would replay" if dry_run else "replayed"
    where = to or "the topics that they came from"
    typer.echo(f"{verb} {len(letters):,} dead letters of {source} to {where}, without headers")
