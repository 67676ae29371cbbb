"""`slackwater doctor`. What it looks with is loaded only when it looks."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from streams.app.client_options import TopicOption, chosen_topics
from streams.app.common_options import Where, placed
from streams.app.environment_access import url_of
from streams.app.error_output import FAILED, failed
from streams.app.printer import console_for
from streams.errors import SlackwaterError

if TYPE_CHECKING:
    from rich.console import Console

    from streams.app.doctor.collect import Target
    from streams.app.doctor.facts import Verdict

STYLES = {"ok": "green", "wrong": "red", "unknown": "yellow"}


@placed
def doctor(
    where: Where,
    *,
    topic: TopicOption = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            help="Make no topic. One is made, and deleted again, to read the broker's clock.",
        ),
    ] = False,
) -> None:
    """Check this machine, the brokers and an environment's topics: what is wrong, what to do.

    Checks Python, Java, Spark and the disk of the directory. With --brokers, or where the
    directory has an environment, also whether each broker answers, its version and clock,
    settings, partitions and copies of the topics, and the coordinator. Nothing that exists is
    changed.

    Exit codes: 0 nothing is wrong, 1 something is, 2 usage.

    Examples:
        slackwater doctor
        slackwater doctor --directory /var/lib/shop
        slackwater doctor --brokers kafka.example:9092 --namespace shop --read-only
        slackwater doctor --brokers kafka.example:9092 --client @client.properties
        slackwater doctor --brokers kafka.example:9092 --topic replication.factor=2 --json
    """
    from streams.app.doctor.collect import verdicts  # noqa: PLC0415

    console, wrong = console_for(sys.stdout.isatty()), 0
    try:
        for verdict in verdicts(target_of(where, topic or [], may_write=not read_only)):
            wrong += verdict.status == "wrong"
            show(console, verdict, as_json=where.as_json)
    except SlackwaterError as error:
        raise failed(error, as_json=where.as_json) from error
    if wrong:
        raise typer.Exit(FAILED)


def target_of(where: Where, topic: list[str], *, may_write: bool) -> "Target":
    """What to look at. Errors: InvalidUsage, typer.BadParameter."""
    from streams.app.doctor.collect import Target  # noqa: PLC0415

    directory = where.directory.absolute()
    url = "" if where.brokers else url_of(directory)
    if not where.brokers and not url:
        return Target(directory=directory)
    kafka, namespace = where.resolve()
    return Target(
        directory=directory,
        kafka=kafka,
        namespace=namespace,
        url=url,
        topics=chosen_topics(topic),
        may_write=may_write,
    )


def show(console: "Console", verdict: "Verdict", *, as_json: bool) -> None:
    """Print a verdict: a line, and below it what to do."""
    if as_json:
        text = json.dumps({"type": "check", **asdict(verdict)}, ensure_ascii=False)
        console.out(text, highlight=False)
        return
    status = f"[{STYLES[verdict.status]}]{verdict.status:<7}[/]"
    line = f"{status} {verdict.check:<15} {escape(verdict.found)}"
    console.print(line, highlight=False, soft_wrap=True)
    if verdict.do:
        console.print(f"{'':23} -> {escape(verdict.do)}", highlight=False, soft_wrap=True)
