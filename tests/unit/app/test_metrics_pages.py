"""The page of metrics agrees with the code."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from streams.adapter import show
from streams.adapter.audit_verdicts import Counts as AuditCounts
from streams.adapter.audit_verdicts import of_audits
from streams.adapter.metrics import of_materializations
from streams.adapter.object_metrics import of_clusters, of_objects
from streams.adapter.request_metrics import RequestCounts, of_requests
from streams.adapter.show_clusters import ShownCluster
from streams.app.compaction import Counts
from streams.app.compaction_metrics import Stored, of_compaction
from streams.app.endpoint import of_every_service
from streams.app.replica_metrics import of_replica
from streams.app.storage_metrics import of_storage
from streams.compute.protocol import Hydration
from streams.http.metrics import PREFIX, Family, of_process
from streams.ids import CollectionId
from streams.progress import frontier
from streams.replica.driver.batch_timings import LaneTotals
from streams.replica.driver.measures import DataflowMeasures, ReplicaMeasures
from streams.storage.commands.service import ServiceMeasures
from tests.unit.adapter.items import rebase, source
from tests.unit.adapter.test_metrics import STATE, shown

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "streams" / "docs"
ROW = re.compile(
    r"^\| `([a-z_]+)` \| (gauge|counter) \| ((?:`\w+`(?:, )?)*) ?\| \S", re.MULTILINE
)
MEASURES = ReplicaMeasures(
    dataflows=(
        DataflowMeasures(
            id=CollectionId("u1"),
            phase="running",
            is_failing=True,
            failures=2,
            restarts=1,
            state_bytes=7,
            arrangement_rows=3,
            arrangement_bytes=64,
            waiting=3,
        ),
    ),
    lanes={"steady": LaneTotals(2, 30, 0.1, 0.2, 0.3)},
    is_owner=True,
    skew_ms=-1500,
    state_bytes=9,
    free_bytes=10,
    disk_bytes=100,
)


class Entry(NamedTuple):
    kind: str
    labels: frozenset[str]


def families() -> Iterator[Family]:
    """All families of all services, each with a sample."""
    object_ = show.ShownObject(
        source(1, "orders"),
        frontier(0),
        frontier(1),
        "running",
        "",
        "",
        hydration=Hydration(CollectionId("s1"), 3, 7),
        late=4,
        skipped=5,
    )
    yield from of_every_service()
    timed = replace(object_, timeline="event")
    rebased = replace(object_, item=rebase(2, "orders_now"), reached=frontier(3))
    yield from of_objects([timed, rebased], 1, 10)
    yield from of_clusters([ShownCluster("default", 2, 1, 0, 2)])
    yield from of_requests(RequestCounts(), 0)
    yield from of_audits(AuditCounts(last_ms=1))
    fill: dict[str, int | str] = {"done": 2, "total": 8, "unit": "key ranges"}
    yield from of_materializations([shown("shop", replace(STATE, backfill=fill))])
    yield from of_replica(MEASURES)
    yield from of_compaction(Counts(last_ms=1, stored={"u1": Stored(3, 2, 1)}))
    yield from of_storage(ServiceMeasures({"DONE": 1}, 2, 3))


def page() -> dict[str, Entry]:
    """The metrics of the page."""
    text = (DOCS / "METRICS.md").read_text()
    rows = ROW.findall(text)
    entries = {
        name: Entry(kind, frozenset(re.findall(r"\w+", labels))) for name, kind, labels in rows
    }
    assert len(entries) == len(rows), "a metric is there twice"
    listed = len(re.findall(r"^\| `", text, re.MULTILINE))
    assert len(rows) == listed, "a row has another form"
    return entries


def in_code() -> dict[str, Entry]:
    """The metrics that services return."""
    entries = {}
    for family in families():
        assert family.samples, f"{family.name}: the test has no sample of it"
        name = f"{PREFIX}{family.name}"
        assert name not in entries, name
        (labels,) = {frozenset(labels) for labels, _ in family.samples}
        entries[name] = Entry(family.kind, labels)
    processes = re.findall(r"^# TYPE (\w+) (\w+)$", of_process(), re.MULTILINE)
    return {**entries, **{name: Entry(kind, frozenset()) for name, kind in processes}}


def test_the_page_has_every_metric_with_its_type_and_labels() -> None:
    assert page() == in_code()


def test_no_family_in_the_sources_is_left_out() -> None:
    """Else the samples of this test would hold the page to less than there is."""
    names = {name.removeprefix(PREFIX) for name in in_code()}
    written = {name for top in ("streams", "connectors") for name in names_in(ROOT / top)}
    short = {name.removeprefix("materialization_") for name in names}
    assert len(written) > 30, "the sources name their families"
    assert written <= names | short, sorted(written - names - short)


def names_in(top: Path) -> Iterator[str]:
    """The names that calls of `gauge`, `counter` and `Family` have in sources."""
    for path in top.rglob("*.py"):
        text = path.read_text()
        if "streams.http.metrics" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(
                    func=ast.Name("gauge" | "counter" | "Family"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield name
                case _:
                    pass


@pytest.mark.parametrize("name", sorted(in_code()))
def test_names_follow_prometheus(name: str) -> None:
    entry = in_code()[name]
    assert name.startswith((PREFIX, "process_"))
    assert (entry.kind == "counter") == name.endswith("_total")
    assert not re.search(r"_(ms|millis|kb|mb|minutes)\b", name), "base units"
