"""What the demo says before it begins, and what its page shows."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from streams.bench.command import app as bench
from streams.demo import run as course
from streams.demo.feed import TOPICS
from streams.demo.page import Headline, render
from streams.demo.report import DemoOptions
from streams.demo.run import ALL_VIEWS, DemoRun, refuse_remains
from streams.demo.views import SOURCES, View
from streams.demo.watch import Followed, Watch
from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.settings import ClientSettings
from streams.plan.sql import statements
from streams.plan.sql.statements import CreateSource
from streams.progress import frontier
from streams.storage.log.events import Downgrade
from streams.storage.log.outcomes import Downgraded
from streams.trace.kernel.kernel import Kernel
from tests.support.sparkless import World


def choices(brokers: str = "") -> DemoOptions:
    return DemoOptions(
        directory=Path("here"), brokers=brokers, events=1, speed=0.0, times=2, page=True
    )


@pytest.mark.parametrize(
    ("brokers", "message"),
    [("", "here has topic airlines already.*another --directory"), ("k:1", "k:1 .*--brokers")],
)
def test_topics_of_an_earlier_demo_are_refused_with_advice(
    monkeypatch, brokers, message
) -> None:
    there = {Topic("airlines"), Topic("flights"), Topic("others")}
    broker: Any = SimpleNamespace(
        topics=SimpleNamespace(names=lambda: there), close=lambda: None
    )
    monkeypatch.setattr(course, "KafkaBroker", lambda _: broker)
    with pytest.raises(InvalidUsage, match=message):
        refuse_remains(ClientSettings("k:1"), choices(brokers))
    there -= set(TOPICS)
    refuse_remains(ClientSettings("k:1"), choices(brokers))


def test_the_page_shows_the_frontiers_of_every_collection(monkeypatch) -> None:
    world = World()
    for text in SOURCES:
        (source,) = statements.parse(text)
        assert isinstance(source, CreateSource)
        columns = [(column.name, column.type) for column in source.columns]
        raw = world.raw(f"raw-{source.name}")
        world.source(source.name, columns, raw, source.keys, watermark=source.watermark)
        world.now += 1_000
    for view in ALL_VIEWS:
        world.view(view.name, view.query)
    names = [*TOPICS, *(view.name for view in ALL_VIEWS)]
    watch = Watch(world.shards, Kernel())
    watch.follow({name: CollectionId(name) for name in names})
    for view in ALL_VIEWS:  # time passes, and they hold nothing yet
        state = world.shards.state(CollectionId(view.name))
        (outcome,) = world.shards.submit(
            [
                (
                    view.name,
                    Downgrade(
                        collection=state.id,
                        capability=CapabilityId(f"{view.name}.write"),
                        frontier=frontier(state.upper.time + 100),
                    ),
                )
            ]
        )
        assert isinstance(outcome, Downgraded), outcome
    nothing: Any = SimpleNamespace(
        published=1, at_s=0, milliseconds=[], messages=SimpleNamespace(num_rows=2)
    )
    nothing.feed = nothing
    show = DemoRun(choices(), nothing, nothing, nothing, world.shards, watch.kernel, nothing)
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(show._page(nothing, watch, nothing, 0.0))
    lines = console.export_text().splitlines()
    for name in names:
        state = world.shards.state(CollectionId(name))
        frontiers = {str(state.since.time), str(state.upper.time)}
        assert any({name} | frontiers <= set(line.split()) for line in lines), name


def test_every_benchmark_has_an_example() -> None:
    helps = [
        (command.callback and command.callback.__doc__) or ""
        for command in bench.registered_commands
    ]
    assert len(helps) >= 6
    assert not [text for text in helps if "Example:" not in text]


def test_the_page_shows_a_sum_of_integers_as_a_number() -> None:
    kernel = Kernel()
    contents = kernel.query(
        "SELECT 'JFK' AS c0, 12345::HUGEINT AS c1, 0::BIGINT t, 1::BIGINT d"
    )
    view = View("v", "Sums", (), "", "total DESC")
    followed = Followed(
        CollectionId("u1"), ("origin", "total"), Timestamp(9), Timestamp(0), contents, 1
    )
    numbers = Headline(1, 1, 1.0, 1.0, 1.0, "now")
    page = io.StringIO()
    Console(file=page, width=120).print(render(numbers, [(view, followed)], [], kernel))
    assert "12345" in page.getvalue()
