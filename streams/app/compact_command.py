"""`slackwater compact`: one round of compaction, on its own, with or without an environment."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from streams.app import signals
from streams.app.client_options import (
    DIRECTORY,
    NAMESPACE,
    ClientOption,
    DirectoryOption,
    NamespaceOption,
    client_settings,
    only_with,
)
from streams.app.compact_once import environment, policy_of, run
from streams.app.compaction_setup import CompactionTarget
from streams.app.error_output import FAILED, NO_ENVIRONMENT, failed
from streams.compaction.merge_execution import Compacted
from streams.compaction.runner import CompactionRequest, HeldSince, RoundResult
from streams.errors import InvalidUsage, SlackwaterError
from streams.kafka.settings import ClientSettings

FOLLOW_MS = 5_000
"""The maximum wait for the coordinator to release history that no reader needs."""


Collection = Annotated[
    str, typer.Argument(help="A collection's name or id. Default: all of them.")
]
Since = Annotated[int | None, typer.Option(help="Drop history before this time, in ms.")]
Lag = Annotated[int | None, typer.Option(help="Drop history older than this many ms.")]
Brokers = Annotated[
    str,
    typer.Option(
        envvar="SLACKWATER_BROKERS",
        help="Kafka brokers, HOST:PORT[,...], if there is no environment.",
    ),
]
Master = Annotated[str, typer.Option(help="Spark's master; implies --spark.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Merge in a Spark job.")]
Whole = Annotated[
    bool, typer.Option("--whole", help="Merge everything into one batch, at any cost.")
]
Orphans = Annotated[
    bool,
    typer.Option("--orphans", help="Reclaim chunks that nothing links; writers retry."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def compact(  # noqa: PLR0913  the options of a command, each by name
    collection: Collection = "",
    *,
    since: Since = None,
    lag: Lag = None,
    directory: DirectoryOption = DIRECTORY,
    brokers: Brokers = "",
    client: ClientOption = None,
    namespace: NamespaceOption = NAMESPACE,
    master: Master = "",
    on_spark: OnSpark = False,
    whole: Whole = False,
    orphans: Orphans = False,
    as_json: AsJson = False,
) -> None:
    """Run one round of compaction: merge batches, drop history, reclaim unused chunks.

    Safe to run beside writers, readers and other compactors, and safe to kill. History that a
    reader holds is kept. Without --whole, only merges that are worth their cost are made.

    Exit codes: 0 done, 1 something failed, 2 usage, 3 no environment answers.

    Examples:
        slackwater compact
        slackwater compact revenue --whole --since 1785000000000
        slackwater compact --brokers kafka.example:9092 --lag 3600000 --master 'local[2]'
        slackwater compact --brokers kafka.example:9092 --client @client.properties
        spark-submit streams/app/compact.py --brokers kafka.example:9092 --spark
    """
    if since is not None and lag is not None:
        raise typer.BadParameter("expected --since or --lag, actual both")
    try:
        place = _place(brokers, client_settings(client or []), namespace, directory)
    except InvalidUsage as error:
        raise failed(error, NO_ENVIRONMENT) from error
    policy = policy_of(since, lag)
    request = CompactionRequest(policy=policy, whole=whole, orphans=orphans, wait_ms=FOLLOW_MS)
    spark = master if on_spark or master else None
    with signals.noted() as stopping:
        try:
            done, failures = run(place, request, collection, spark, stopping)
        except SlackwaterError as error:
            raise failed(error) from error
        except signals.Stopped:
            raise signals.unfinished(stopping.number) from None
    show(done, failures, as_json=as_json)
    if stopping.is_set():
        raise signals.unfinished(stopping.number)
    raise typer.Exit(FAILED if failures else 0)


def main() -> None:
    """Run the command with the process's arguments."""
    typer.run(compact)


def _place(
    brokers: str, client: Mapping[str, str], namespace: str, directory: Path
) -> CompactionTarget:
    """The cluster named by the options, or the environment's."""
    only_with(brokers, client, namespace)
    if not brokers:
        return environment(directory)
    return CompactionTarget(ClientSettings(brokers, tuple(sorted(client.items()))), namespace)


def show(done: RoundResult, failures: Mapping[str, str], *, as_json: bool) -> None:
    """Print the result of a round, as text or as one JSON object."""
    if as_json:
        typer.echo(json.dumps(as_object(done, failures), ensure_ascii=False))
        return
    console = Console(soft_wrap=True, highlight=False)
    for text in [*lines(done, failures)] or ["nothing to do"]:
        console.print(text)


def lines(done: RoundResult, failures: Mapping[str, str]) -> Iterator[str]:
    """The result of a round as lines of text."""
    for hold in done.held:
        stays = f"since stays at {hold.since}, not {hold.wished}"
        yield f"{hold.collection}: {stays}: held by {', '.join(hold.by)}"
    yield from map(line, done.compacted)
    for lost in done.lost:
        yield f"{lost.collection}: {lost.reason}"
    if done.reclaimed:
        freed = sum(chunk.size for chunk in done.reclaimed)
        yield f"reclaimed {len(done.reclaimed)} chunks, {freed:,} bytes"
    for group in done.rolled_up:
        yield f"{group}: log rolled up"
    for group in done.removed:
        yield f"{group}: every collection was dropped, topics deleted"
    for what, why in failures.items():
        yield f"[red]{escape(f'{what}: {why}')}[/]"


def line(merge: Compacted) -> str:
    """A merge as a line of text."""
    sizes = f"{merge.bytes_read:,} to {merge.bytes_written:,} bytes"
    rows = f"{merge.rows_read:,} to {merge.rows_written:,} updates"
    return f"{merge.collection}: {merge.batches} batches merged into one, {sizes}, {rows}"


def as_object(done: RoundResult, failures: Mapping[str, str]) -> dict[str, object]:
    """The result of a round as a JSON object."""
    return {
        "held": [held_back(hold) for hold in done.held],
        "compacted": [merged(merge) for merge in done.compacted],
        "lost": [asdict(loss) for loss in done.lost],
        "rolled_up": done.rolled_up,
        "removed": done.removed,
        "reclaimed": {
            "chunks": len(done.reclaimed),
            "bytes": sum(chunk.size for chunk in done.reclaimed),
        },
        "failed": dict(failures),
    }


def held_back(hold: HeldSince) -> dict[str, object]:
    """A collection whose history a reader holds, as a JSON object."""
    return {
        "collection": hold.collection,
        "since": None if hold.since.is_empty else hold.since.time,
        "wished": hold.wished.time,
        "by": list(hold.by),
    }


def merged(merge: Compacted) -> dict[str, object]:
    """A merge as a JSON object; `upper` is null when the batch has no end."""
    upper = None if merge.upper.is_empty else merge.upper.time
    return {**asdict(merge), "upper": upper}
