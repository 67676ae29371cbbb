"""`slackwater shard`: list, show, read, tail, capabilities, stats, verify, repair.

Needs Kafka and nothing else: neither coordinator nor replica. Only `repair` changes anything.
"""

import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType

from streams.adapter.results import Result, line
from streams.app.common_options import Where, placed
from streams.app.error_output import FAILED, NO_ENVIRONMENT, Refused, explain, failed
from streams.app.printer import Printer, console_for
from streams.app.service_process import now_ms
from streams.app.shard import show as screen
from streams.app.shard.attach import AttachedNamespace, attached
from streams.app.shard.batch_chart import draw
from streams.app.shard.formatting import parse_time
from streams.app.shard.repair import findings, repaired
from streams.app.shard.shard_info import facts_of, holders_of
from streams.app.signals import Stop, Stopped, noted, unfinished
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.ids import Timestamp

if TYPE_CHECKING:
    from streams.app.shard.shard_reader import Reader

app = typer.Typer(
    name="shard",
    help=(
        "Inspect shards, the durable form of collections on Kafka. Needs only the brokers,"
        " takes no capability and, except for repair, changes nothing.\n\nExit codes: 0 done,"
        " 1 failed, 2 usage, 3 no environment or no broker."
    ),
    no_args_is_help=True,
)

PICTURE_COLUMNS = 60

Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The shard's id, as 'slackwater shard list' prints it."),
]
AsOf = Annotated[
    str,
    typer.Option(
        help="A time: milliseconds, or a date with zone. Default: the latest complete time."
    ),
]


@dataclass(frozen=True, slots=True)
class Inspection:
    """An open namespace, and where its facts are shown."""

    at: AttachedNamespace
    console: Console
    as_json: bool

    def tell(self, page: RenderableType, objects: Sequence[Mapping[str, object]]) -> None:
        """Show the page to people, the objects to programs."""
        if not self.as_json:
            self.console.print(page, highlight=False)
        for object_ in objects if self.as_json else ():
            self.console.out(json.dumps(object_, ensure_ascii=False), highlight=False)

    def stream(self, results: Iterator[Result], stopping: Stop, *, ends_by: int = 0) -> None:
        """Show results as they come; the signal `ends_by` is a way to end, no other is.

        Errors: SystemExit when another signal comes before the end.
        """
        printer = Printer(self.console, as_json=self.as_json)
        try:
            for result in results:
                stopping.check()
                printer.show(json.loads(line(result)))
        except Stopped:
            printer.flush()
            if stopping.number != ends_by:
                raise unfinished(stopping.number) from None


@contextmanager
def looking(where: Where) -> Iterator[Inspection]:
    """The shards that the options name; what goes wrong becomes an answer and an exit code."""
    with ExitStack() as stack:
        try:
            at = stack.enter_context(attached(*where.resolve()))
        except (InvalidUsage, Determinate) as error:
            raise failed(error, NO_ENVIRONMENT, as_json=where.as_json) from error
        try:
            yield Inspection(at, console_for(sys.stdout.isatty()), where.as_json)
        except SlackwaterError as error:
            raise failed(error, as_json=where.as_json) from error


def reader_of(at: AttachedNamespace, id_: str, stopping: Stop) -> "Reader":
    """A reader of a shard, until it is asked to stop. Errors: as `AttachedNamespace.find`."""
    # what evaluates rows takes seconds to load: only where rows are read
    from streams.app.shard.shard_reader import Reader  # noqa: PLC0415
    from streams.trace.kernel.kernel import Kernel  # noqa: PLC0415

    return Reader(at.shards, at.find(id_), Kernel(), stopping)


def time_named(text: str) -> Timestamp | None:
    """The time of an option; None when it was not given. Errors: typer.BadParameter."""
    try:
        return parse_time(text) if text else None
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error


@app.command("list")
@placed
def list_(where: Where) -> None:
    """All shards: frontiers, batches, rows, bytes.

    Examples:
        slackwater shard list
        slackwater shard list --brokers kafka.example:9092 --namespace sw --json
    """
    with looking(where) as look:
        broken = look.at.open_all()
        rows = [
            facts_of(group, collection)
            for group in look.at.shards.groups()
            for collection in look.at.state(group).collections.values()
        ]
        rows.sort(key=lambda row: row.id)
        look.tell(screen.list_table(rows), [screen.shard_json(facts) for facts in rows])
        for group, error in broken.items():
            explain(Refused(f"group {group} cannot be read", str(error)), as_json=where.as_json)
    raise typer.Exit(FAILED if broken else 0)


@app.command()
@placed
def show(where: Where, id_: Id) -> None:
    """A shard: columns, frontiers, and its batches drawn over time and size.

    Examples:
        slackwater shard show u1
        slackwater shard show u1 --json
    """
    with looking(where) as look:
        group, _, collection = look.at.group_and_state(look.at.find(id_))
        facts, names = facts_of(group, collection), look.at.shards.names(group)
        width = max(10, min(PICTURE_COLUMNS, look.console.width - 40))
        picture = draw(collection.batches, facts.since, facts.upper, width)
        page = screen.shard_page(facts, (names.log, names.data), picture)
        topics = {"log_topic": names.log, "data_topic": names.data}
        look.tell(page, [{**screen.shard_json(facts), **topics}])


@app.command()
@placed
def capabilities(where: Where, id_: Id) -> None:
    """Who may read and write a shard, until when, and what each holds back.

    A capability holds back since (of a reader) or upper (of a writer) by as much as it would
    move if that one alone were dropped; a reader's plan keeps superseded chunks besides.

    Examples:
        slackwater shard capabilities u1
        slackwater shard capabilities u1 --json
    """
    with looking(where) as look:
        _, state, collection = look.at.group_and_state(look.at.find(id_))
        holders = holders_of(state, collection, now_ms())
        look.tell(
            screen.holders_table(holders), [screen.holder_json(holder) for holder in holders]
        )


@app.command()
@placed
def stats(
    where: Where,
    id_: Id,
    *,
    scan: Annotated[
        bool, typer.Option("--scan", help="Read the whole data topic, to find orphans.")
    ] = False,
) -> None:
    """What a shard takes up: rows, chunks, bytes, garbage, and who holds what back.

    Garbage is what compaction removed and has not reclaimed yet; with --scan also orphans,
    chunks that no event of the log names, and chunks that the log names but the topic lacks.
    Shards of one group share a data topic: its garbage is counted for all of them.

    Examples:
        slackwater shard stats u1
        slackwater shard stats u1 --scan --json
    """
    with looking(where) as look:
        id_found = look.at.find(id_)
        space = look.at.space(look.at.shards.group_of(id_found), scan=scan)
        group, state, collection = look.at.group_and_state(id_found)
        facts, holders = facts_of(group, collection), holders_of(state, collection, now_ms())
        stats_json = {
            **screen.shard_json(facts),
            "type": "stats",
            "space": screen.space_json(space),
            "capabilities": [screen.holder_json(holder) for holder in holders],
        }
        look.tell(screen.stats_page(facts, space, holders), [stats_json])


@app.command()
@placed
def read(
    where: Where,
    id_: Id,
    *,
    as_of: AsOf = "",
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for the time to be complete.", min=0)
    ] = 0,
) -> None:
    """What a shard holds at a time: each row with its multiplicity, error rows included.

    Examples:
        slackwater shard read u1
        slackwater shard read u1 --as-of 1785000000000
        slackwater shard read u1 --as-of 2026-07-25T12:00:00Z --wait 10 --json
    """
    time = time_named(as_of)
    with noted() as stopping, looking(where) as look:
        reader = reader_of(look.at, id_, stopping)
        look.stream(reader.read(time, int(wait * 1000)), stopping)


@app.command()
@placed
def tail(
    where: Where,
    id_: Id,
    *,
    as_of: AsOf = "",
    until: Annotated[
        str, typer.Option(help="Stop before this time. Default: run until Ctrl-C.")
    ] = "",
    snapshot: Annotated[
        bool, typer.Option(help="Start with the contents, or only with the changes after them.")
    ] = True,
) -> None:
    """The contents of a shard at a time, then every change at its own time.

    A line "complete before T" says that every change before T has come.

    Examples:
        slackwater shard tail u1
        slackwater shard tail u1 --no-snapshot --json
        slackwater shard tail u1 --as-of 1785000000000 --until 1785000060000
    """
    start, stop = time_named(as_of), time_named(until)
    with noted() as stopping, looking(where) as look:
        reader = reader_of(look.at, id_, stopping)
        changes = reader.tail(start, stop, snapshot=snapshot)
        look.stream(changes, stopping, ends_by=signal.SIGINT)


@app.command()
@placed
def verify(
    where: Where,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Default: all groups.")
    ] = None,
    *,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Also fetch each chunk: reads all the data.")
    ] = False,
) -> None:
    """Check logs from their start against their rollups, and say exactly what is wrong.

    Exit code 1 if anything is.

    Examples:
        slackwater shard verify
        slackwater shard verify u1 --chunks
    """
    is_sound = True
    with looking(where) as look:
        for finding in findings(look.at, tuple(groups or ()), with_chunks=chunks):
            look.tell("\n".join(finding.lines()), [finding.facts()])
            is_sound = is_sound and finding.is_sound
    raise typer.Exit(0 if is_sound else FAILED)


@app.command()
@placed
def repair(
    where: Where,
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    *,
    skip: Annotated[int, typer.Option(help="The offset to skip, as 'verify' prints it.")],
    reason: Annotated[str, typer.Option(help="The reason, recorded in the log.")] = "",
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Apply the repair; without it, only show what would happen."
        ),
    ] = False,
) -> None:
    """Have every reader of a group's log pass over a record that none of them can fold.

    It cannot be undone. Without --yes it only shows what would be skipped.

    Examples:
        slackwater shard repair u1 --skip 1234
        slackwater shard repair u1 --skip 1234 --yes --reason "a console producer"
    """
    with looking(where) as look:
        done = repaired(look.at, group, skip, reason, is_meant=yes)
        look.tell(done, [{"group": group, "skipped": skip, "done": done}])
