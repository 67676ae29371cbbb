"""`slackwater topic`: list, create, delete, produce, consume. Needs Kafka and nothing else."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from streams.app.common_options import Where, placed
from streams.app.environment_access import expect_answer
from streams.app.error_output import NO_ENVIRONMENT, failed
from streams.app.printer import console_for
from streams.app.signals import noted, unfinished
from streams.app.topic import record_output
from streams.app.topic.json_messages import LineMapping, blocks
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.client.records import records
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import TopicChoices
from streams.kafka.topics import NAME_RULE, TopicKind, TopicSpec, is_name

app = typer.Typer(
    name="topic",
    help=(
        "Create topics, and write and read their records, on any Kafka.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage, 3 no environment or no broker."
    ),
    no_args_is_help=True,
)

PARTITIONS = 4
"""The default number of partitions."""

_LINES_AT_ONCE = 5_000

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Partitions = Annotated[int, typer.Option(help="How many partitions.", min=1, max=10_000)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the broker, NAME=VALUE. May be repeated."),
]


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Connections to a cluster, and the namespace whose topics are ours."""

    settings: ClientSettings
    namespace: str
    broker: KafkaBroker
    reader: RawReader

    def is_ours(self, name: str) -> bool:
        """Whether Slackwater itself keeps the topic."""
        return name.startswith(f"{self.namespace}.")

    def expect(self, name: str) -> Topic:
        """The topic of this name. Errors: InvalidUsage when there is none."""
        topic = Topic(name)
        if self.broker.topics.describe(topic) is None:
            raise InvalidUsage(
                f"no topic {name!r} at {self.settings.bootstrap}:"
                " 'slackwater topic list' lists topics, 'slackwater topic create' creates one"
            )
        return topic

    def make(self, name: str, partitions: int) -> None:
        """Make a topic of the user's. Errors: InvalidUsage, Determinate."""
        self.broker.topics.create([TopicSpec(Topic(_named(name)), partitions, TopicKind.RAW)])

    def schema_of(self, fingerprint: bytes) -> str | None:
        """The JSON of a row's schema, as sinks publish it; None when none did."""
        topic = Topic(f"{self.namespace}.schemas")
        if self.broker.topics.describe(topic) is None:
            return None
        ends = self.reader.ends(topic)
        for partition, (low, high) in ends.items():
            records = self.reader.fetch(topic, partition, low, high)
            texts = dict(
                zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)
            )
            if text := texts.get(fingerprint):
                return str(text, errors="replace")
        return None


@contextmanager
def reaching(where: Where, chosen: TopicChoices | None = None) -> Iterator[Cluster]:
    """The cluster that the options name; what goes wrong becomes a message and an exit code."""
    with ExitStack() as stack:
        try:
            settings, namespace = where.resolve()
            broker = KafkaBroker(settings, chosen or TopicChoices())
            stack.callback(broker.close)
            expect_answer(broker.topics, settings)
        except (InvalidUsage, Determinate) as error:
            raise failed(error, NO_ENVIRONMENT, as_json=where.as_json) from error
        reader = RawReader(settings)
        stack.callback(reader.close)
        try:
            yield Cluster(settings, namespace, broker, reader)
        except SlackwaterError as error:
            raise failed(error, as_json=where.as_json) from error


def _done(where: Where, line: str, **facts: object) -> None:
    """Say what was done."""
    typer.echo(json.dumps(facts) if where.as_json else line)


def _named(name: str) -> str:
    """Errors: InvalidUsage for what no topic can be called."""
    if not is_name(name):
        raise InvalidUsage(f"topic {name!r}: {NAME_RULE}")
    return name


@app.command("list")
@placed
def list_(
    where: Where,
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="Include Slackwater's own topics.")
    ] = False,
) -> None:
    """Topics, with their partitions and how many offsets they span.

    Examples:
        slackwater topic list
        slackwater topic list --all --json
    """
    with reaching(where) as cluster:
        table = Table("topic", "partitions", "offsets", header_style="bold")
        for name in sorted(cluster.broker.topics.names()):
            if cluster.is_ours(name) and not all_:
                continue
            ends = cluster.reader.ends(name)
            facts = {
                "topic": name,
                "partitions": len(ends),
                "offsets": sum(high - low for low, high in ends.values()),
            }
            table.add_row(name, str(facts["partitions"]), f"{facts['offsets']:,}")
            if where.as_json:
                typer.echo(json.dumps(facts))
        if not where.as_json:
            console_for(sys.stdout.isatty()).print(table)


@app.command()
@placed
def create(
    where: Where, topic: Name, *, partitions: Partitions = PARTITIONS, settings: Settings = None
) -> None:
    """Create a topic; one that exists is an error, and is unchanged.

    Examples:
        slackwater topic create orders
        slackwater topic create people --partitions 1 --set cleanup.policy=compact
    """
    chosen = TopicChoices(settings={TopicKind.RAW: _pairs(settings or [])})
    with reaching(where, chosen) as cluster:
        info = cluster.broker.topics.describe(Topic(_named(topic)))
        if info is not None:
            raise InvalidUsage(f"topic {topic!r} exists, with {info.partitions} partitions")
        cluster.make(topic, partitions)
        line = f"created topic {topic} with {partitions} partitions"
        _done(where, line, topic=topic, partitions=partitions)


@app.command()
@placed
def delete(
    where: Where,
    topic: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic and all records in it, for good. Slackwater's own are dropped by SQL.

    Examples:
        slackwater topic delete orders
        slackwater topic delete orders --yes
    """
    with reaching(where) as cluster:
        name = cluster.expect(topic)
        if cluster.is_ours(name):
            raise InvalidUsage(
                f"topic {topic!r} belongs to the environment: drop the source, view or"
                " sink that it belongs to"
            )
        if not yes:
            _expect_consent(topic)
        cluster.broker.topics.delete([name])
        _done(where, f"deleted topic {topic}", topic=topic, deleted=True)


def _expect_consent(topic: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidUsage(f"deleting topic {topic!r} cannot be undone: confirm with --yes")
    typer.confirm(f"delete topic {topic} and all records in it?", abort=True)


@app.command()
@placed
def produce(
    where: Where,
    topic: Name,
    file: Annotated[
        Path | None,
        typer.Argument(help="Lines of JSON. Default: standard input.", exists=True),
    ] = None,
    *,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Use this member as the key. May be repeated."),
    ] = None,
    deletes: Annotated[
        bool, typer.Option("--delete", help="Send keys without values: deletions (tombstones).")
    ] = False,
    partitions: Partitions = PARTITIONS,
) -> None:
    """Send lines of JSON, a message each, as they come. A topic that is missing is made.

    A line that is no JSON ends it; those before it have been sent.

    Examples:
        slackwater topic produce orders orders.jsonl
        echo '{"id": 1, "amount": 12.50}' | slackwater topic produce orders
        echo '{"id": 7}' | slackwater topic produce people --key id --delete
    """
    if deletes and not key:
        raise typer.BadParameter("--delete needs --key: only the key is sent")
    with ExitStack() as stack, reaching(where) as cluster:
        if cluster.broker.topics.describe(Topic(_named(topic))) is None:
            cluster.make(topic, partitions)
            typer.echo(f"created topic {topic} with {partitions} partitions", err=True)
        stream = stack.enter_context(file.open("rb")) if file else sys.stdin.buffer
        sent = _send(
            cluster,
            Topic(topic),
            LineMapping(tuple(key or ()), deletes),
            _counted(stream, file),
        )
        _done(where, f"{sent:,} messages to {topic}", topic=topic, messages=sent)


def _counted(stream: BinaryIO, file: Path | None) -> Iterator[list[bytes]]:
    """Blocks of lines, with a bar for a file on a terminal."""
    if file is None or not sys.stderr.isatty():
        yield from blocks(stream)
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        for lines in blocks(stream):
            yield lines
            progress.advance(task, sum(map(len, lines)) + len(lines))


def _send(
    cluster: Cluster, topic: Topic, reading: LineMapping, incoming: Iterator[list[bytes]]
) -> int:
    """The number of messages sent. Errors: InvalidUsage, Indeterminate; both say how many."""
    publisher = Publisher(cluster.settings)
    sent, line = 0, 1
    try:
        for lines in incoming:
            for first in range(0, len(lines), _LINES_AT_ONCE):
                some = lines[first : first + _LINES_AT_ONCE]
                messages = reading.messages(some, line)
                publisher.publish(topic, messages.keys, messages.values)
                publisher.flush()
                sent, line = sent + len(messages.values), line + len(some)
    except InvalidUsage as error:
        raise InvalidUsage(f"{error}; {sent:,} messages of earlier lines were sent") from None
    return sent


@app.command()
@placed
def consume(
    where: Where,
    topic: Name,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new records, until Ctrl-C.")
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Start at the end of the topic, and follow.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Stop after this many records.", min=1)
    ] = None,
) -> None:
    """Print the committed records of a topic: place, time, key, value and headers.

    Rows of output topics are decoded; other values are printed as text, or in base64.

    Examples:
        slackwater topic consume orders
        slackwater topic consume revenue --follow
        slackwater topic consume revenue --limit 10 --json
    """
    with noted() as stopping, reaching(where) as cluster:
        name = cluster.expect(topic)
        ends = cluster.reader.ends(name)
        starts = {number: Offset(high if new else low) for number, (low, high) in ends.items()}
        stops = None if follow or new else {end: ends[end].high for end in ends}
        schema_of, left = record_output.cached(cluster.schema_of), limit
        for batch in records(cluster.settings, name, starts, stops):
            for record in batch[:left]:
                _print(record_output.as_object(record, schema_of), where)
            left = None if left is None else left - len(batch)
            if stopping.is_set() or (left is not None and left <= 0):
                break
    if stopping.is_set() and (stops is not None or stopping.number != signal.SIGINT):
        raise unfinished(stopping.number)


def _print(record: dict[str, object], where: Where) -> None:
    text = (
        json.dumps(record, ensure_ascii=False)
        if where.as_json
        else record_output.as_line(record)
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _pairs(texts: list[str]) -> dict[str, str]:
    """`NAME=VALUE` as settings. Errors: typer.BadParameter."""
    wrong = [option for option in texts if "=" not in option]
    if wrong:
        raise typer.BadParameter(f"--set: expected NAME=VALUE, actual {wrong[0]!r}")
    return dict(option.split("=", 1) for option in texts)
