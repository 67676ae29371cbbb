"""The metrics of objects and materializations, as Prometheus' own parser reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from schemas.materializations import State
from streams.adapter import show
from streams.adapter.catalog_materializations import Materialization
from streams.adapter.metrics import of_materializations
from streams.adapter.object_metrics import of_objects
from streams.adapter.show_materializations import STATUSES, ShownMaterialization
from streams.compute.protocol import Hydration
from streams.http.metrics import exposition
from streams.ids import CollectionId
from streams.progress import EMPTY, frontier
from tests.unit.adapter.items import rebase, source

STATE = State(
    id="m3",
    behind_ms=1500,
    behind_rows=4,
    rows=10_000_000_000,
    rows_per_s=6,
    commits=2,
    errors=1,
    committed_ms=1_700_000_000_123,
    owner="host:8",
    stalls={"t2": "two rows of a key"},
    dead_letters={"t1": 3, "t2": 0},
    left_out={"t1": 1},
)


def shown(name: str, state: State, status: str = "running") -> ShownMaterialization:
    materialization = Materialization(
        id=state.id, name=name, statement="", task="{}", inputs=()
    )
    return ShownMaterialization(
        materialization, "sqlite", (), status, state, state.behind_ms, ""
    )


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples by name and labels."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in {"gauge", "counter"}
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples
            samples[key] = sample.value
    return samples


def metrics(materializations: Sequence[ShownMaterialization]) -> str:
    return exposition(of_materializations(materializations))


def value(text: str, name: str, **labels: str) -> float:
    own: Mapping[str, str] = {"materialization": "shop", **labels}
    return read(text)[f"slackwater_materialization_{name}", frozenset(own.items())]


def test_each_has_its_type_and_unit() -> None:
    text = metrics([shown("shop", STATE)])
    assert value(text, "info", id="m3", connector="sqlite", owner="host:8") == 1
    assert value(text, "lag_seconds") == 1.5
    assert value(text, "lag_rows") == 4
    assert value(text, "last_commit_timestamp_seconds") == 1_700_000_000.123
    assert value(text, "rows_per_second") == 6
    assert value(text, "rows_total") == 10_000_000_000
    assert value(text, "commits_total") == 2
    assert value(text, "errors_total") == 1
    assert value(text, "dead_letters_total", binding="t1") == 3
    assert value(text, "dead_letters_total", binding="t2") == 0
    assert value(text, "left_out_keys", binding="t1") == 1
    assert value(text, "left_out_keys", binding="t2") == 0
    assert value(text, "stalled", binding="t2") == 1
    for state in STATUSES:
        assert value(text, "state", state=state) == (state == "running")


def test_first_contents_have_a_ratio_while_they_are_written() -> None:
    fill: dict[str, int | str] = {"done": 2, "total": 8, "unit": "key ranges"}
    text = metrics([shown("shop", replace(STATE, backfill=fill), "backfilling")])
    assert value(text, "backfill_ratio") == 0.25
    assert "backfill_ratio" not in metrics([shown("shop", STATE)])


def test_several_are_samples_of_one_family() -> None:
    text = metrics([shown("shop", STATE), shown("b", State(id="m4", rows=1), "no service")])
    assert value(text, "state", materialization="b", state="no service") == 1
    assert value(text, "rows_total", materialization="b") == 1
    assert value(text, "rows_total") == 10_000_000_000


def test_what_is_not_known_has_no_sample() -> None:
    text = metrics([shown("shop", State(id="m3"))])
    assert "slackwater_materialization_lag_seconds" not in text
    assert metrics([]) == ""


def test_labels_are_escaped() -> None:
    place = 'a "b"\\n\nc,}= é'
    text = metrics([shown("shop", State(id="m3", dead_letters={place: 5}))])
    assert value(text, "dead_letters_total", binding=place) == 5


def test_objects_say_how_far_they_are() -> None:
    orders, events = source(1, "orders"), source(2, "events")
    shown_ = [
        show.ShownObject(orders, frontier(2_000), frontier(9_500), "running", "", ""),
        show.ShownObject(
            events,
            frontier(0),
            EMPTY,
            "hydrating",
            "",
            "",
            hydration=Hydration(CollectionId("s2"), 3, 7),
            late=4,
            skipped=5,
        ),
    ]
    samples = read(exposition(of_objects(shown_, 2, 10_000)))

    def of(name: str, object_: str, **labels: str) -> float | None:
        own = {"kind": "source", "name": object_, **labels}
        return samples.get((f"slackwater_{name}", frozenset(own.items())))

    assert samples["slackwater_replicas", frozenset()] == 2
    assert of("object_status", "orders", id="s1", status="running") == 1
    assert of("object_since_timestamp_seconds", "orders") == 2
    assert of("object_upper_timestamp_seconds", "orders") == 9.5
    assert of("object_lag_seconds", "orders") == 0.5
    assert of("object_lag_seconds", "events") is None, "its upper is the end of time"
    assert of("object_hydration_read", "events") == 3
    assert of("object_hydration_expected", "events") == 7
    assert of("source_event_time_lag_seconds", "orders") is None, "it has times of the clock"
    assert of("source_late_rows_total", "events") == 4
    assert of("source_skipped_messages_total", "events") == 5


@pytest.mark.parametrize(("time", "lag"), [(7_000, 3.0), (0, None)], ids=["some", "none yet"])
def test_event_time_is_behind_where_it_enters_and_where_it_is_left(
    time: int, lag: float | None
) -> None:
    clicks = show.ShownObject(
        source(1, "clicks"), frontier(0), frontier(time), "running", "", "", timeline="event"
    )
    now = replace(clicks, item=rebase(2, "now"), timeline="wall", reached=frontier(time))
    samples = read(exposition(of_objects([clicks, now], 0, 10_000)))
    own = frozenset({"kind": "source", "name": "clicks"}.items())
    assert samples.get(("slackwater_source_event_time_lag_seconds", own)) == lag
    own = frozenset({"kind": "rebase", "name": "now"}.items())
    assert samples.get(("slackwater_rebase_event_time_lag_seconds", own)) == lag
