"""The text of metrics, read by the rules of Prometheus' text format 0.0.4."""

import re
from collections.abc import Mapping

from schemas.materializations import State
from streams.adapter.catalog_materializations import Materialization
from streams.adapter.metrics import metrics
from streams.adapter.show_materializations import STATUSES, Shown

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
LABEL = r'([a-z_][a-z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"([a-z_:][a-z0-9_:]*)\{{((?:{LABEL},?)*)\}} (\S+)")
UNQUOTED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def shown(name: str, state: State, status: str = "running") -> Shown:
    made = Materialization(id=state.id, name=name, statement="", task="{}", inputs=())
    return Shown(made, "sqlite", (), status, state, state.behind_ms, "")


def read(
    text: str,
) -> tuple[dict[str, str], dict[tuple[str, frozenset[tuple[str, str]]], float]]:
    """Types of families, and samples; each family has its two lines first, then its samples."""
    kinds: dict[str, str] = {}
    name = ""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    assert text.endswith("\n")
    lines = iter(text.removesuffix("\n").split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            name, _, help_ = line.removeprefix("# HELP ").partition(" ")
            assert help_
            kind = next(lines).removeprefix(f"# TYPE {name} ")
            assert kind in {"gauge", "counter"}
            assert (kind == "counter") == name.endswith("_total")
            assert name not in kinds, "a family is in one piece"
            kinds[name] = kind
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] == name, "samples follow their family's lines"
        labels = {
            label: re.sub(r"\\.", lambda each: UNQUOTED[each[0]], value)
            for label, value in re.findall(LABEL, match[2])
        }
        key = match[1], frozenset(labels.items())
        assert key not in samples
        samples[key] = float(match[5])
    return kinds, samples


def value(text: str, name: str, **labels: str) -> float:
    own: Mapping[str, str] = {"materialization": "shop", **labels}
    return read(text)[1][f"slackwater_materialization_{name}", frozenset(own.items())]


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


def test_several_are_samples_of_one_family() -> None:
    text = metrics([shown("shop", STATE), shown("b", State(id="m4", rows=1), "no service")])
    assert value(text, "state", materialization="b", state="no service") == 1
    assert value(text, "rows_total", materialization="b") == 1
    assert value(text, "rows_total") == 10_000_000_000


def test_what_is_not_known_has_no_sample() -> None:
    kinds, samples = read(metrics([shown("shop", State(id="m3"))]))
    assert "slackwater_materialization_lag_seconds" not in kinds
    assert {name for name, _ in samples} == kinds.keys()
    assert metrics([]) == ""


def test_labels_are_escaped() -> None:
    place = 'a "b"\\n\nc,}= é'
    text = metrics([shown("shop", State(id="m3", dead_letters={place: 5}))])
    assert value(text, "dead_letters_total", binding=place) == 5
