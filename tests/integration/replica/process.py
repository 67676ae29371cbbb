"""A replica in a process and a process group of its own, which may be killed at any moment."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from streams.app.service_config import RESIDENT_TASKS
from streams.ids import Topic
from streams.kafka.settings import ClientSettings
from streams.log_lines import configure
from streams.replica.config import Budgets, ReplicaConfig
from streams.replica.main import Replica
from streams.replica.spark.session import SparkSettings
from streams.replica.state_files import RunStore
from tests.integration.replica.support import Bench
from tests.support.processes import signal_group

ROOT = Path(__file__).parents[3]


def start(
    bench: Bench,
    state: Path,
    points: Mapping[str, int],
    name: str = "r1",
    budgets: Mapping[str, int] = MappingProxyType({}),
    master: str = SparkSettings().master,
    environment: Mapping[str, str] = MappingProxyType({}),
    store: str = "",
) -> "subprocess.Popen[bytes]":
    facts = {
        "name": name,
        "bootstrap": bench.kafka.bootstrap,
        "commands": bench.command_topic,
        "responses": bench.response_topic,
        "state": str(state),
        "points": dict(points),
        "budgets": dict(budgets),
        "master": master,
        "store": store,
    }
    with (state.parent / f"{name}.err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.replica.process", json.dumps(facts)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def kill(process: "subprocess.Popen[bytes]") -> None:
    signal_group(process.pid, signal.SIGKILL)
    process.wait(30)
    if process.stdin is not None:
        process.stdin.close()


def main(text: str) -> None:
    facts = json.loads(text)
    configure("text", "replica", sys.stderr)

    def follow_parent() -> None:
        sys.stdin.buffer.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=follow_parent, daemon=True).start()
    Replica(
        ReplicaConfig(
            name=facts["name"],
            kafka=ClientSettings(facts["bootstrap"]),
            commands=Topic(facts["commands"]),
            responses=Topic(facts["responses"]),
            state=Path(facts["state"]),
            points=facts["points"],
            budgets=Budgets(**facts["budgets"]),
            spark=SparkSettings(master=facts["master"], resident_tasks=RESIDENT_TASKS),
            timings=True,
            store=RunStore(uri=facts["store"], folder="r1") if facts["store"] else None,
        )
    ).run()


if __name__ == "__main__":
    main(sys.argv[1])
