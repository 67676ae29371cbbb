"""Each part of `slackwater bench storage`, so small that only its report counts."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from streams.bench.figures import write
from streams.bench.storage.command import PARTS
from streams.bench.storage.rig import StorageRig
from streams.kafka.embedded import EmbeddedBroker

pytestmark = pytest.mark.integration

TARGETS: dict[str, dict[str, float]] = {
    "create": {"create_s_p50": 0.3},
    "append": {"append_ms_p50": 10, "append_ms_p99": 40},
    "listen": {"listen_ms_p50": 15},
    "bulk": {
        "bulk_append_updates_per_second": 1_000_000,
        "snapshot_read_updates_per_second": 2_000_000,
    },
    "sinks": {"sink_records_per_second": 250_000},
    "cold": {"cold_open_s": 1},
    "compaction": {"compaction_stored_ratio_max": 3},
    "many": {
        "many_open_s": 5,
        "many_idle_cpu_percent": 5,
        "many_coordinator_start_s": 5,
        "many_coordinator_idle_cpu_percent": 5,
    },
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_reports_its_figures(part: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    bench = StorageRig(
        broker.bootstrap, broker.log_file.parent, 0.001, Console(file=io.StringIO())
    )
    outcome = PARTS[part](bench)
    write([outcome], tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {name: figures[f"{name}_target"] for name in TARGETS[part]} == TARGETS[part]
    for name, target in TARGETS[part].items():
        assert figures[name] >= 0
        assert figures[f"{name}_ratio"] == figures[name] / target
    assert outcome.bench == part
    assert outcome.note
    if part == "cold":
        assert figures["cold_open_events_folded"] < figures["cold_open_appends"]
    if part == "compaction":
        assert figures["compaction_stored_ratio_max"] > 1
        assert figures["compaction_rewritten_ratio"] > 0
