"""The queries on Flink SQL, in a cluster within this process's own JVM.

`seconds` is the job's net runtime as Flink states it: from submission to the end of all tasks,
without the JVM's start. `cpu_seconds` is what the JVM used from the submission on. Settings are
those of the Nexmark suite for Flink: mini-batches, two phases of aggregation, object reuse,
state on the heap. q5 and hop use window functions over event time: nothing is put out for a
window before it has ended.

Source: github.com/nexmark/nexmark, nexmark-flink/src/main/resources/conf; Flink documentation,
"Window TVF", "Performance tuning", "FileSystem SQL connector".
"""

import json
import os
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

COLUMNS = {
    "person": "id BIGINT, name STRING, city STRING, state STRING",
    "auction": "id BIGINT, seller BIGINT, category BIGINT,"
    " `dateTime` TIMESTAMP(3), expires TIMESTAMP(3)",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3)",
}
"""A source reads only those that a query names."""

WATERMARK = ", WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND"
_HOP = """TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`),
    INTERVAL '2' SECOND, INTERVAL '10' SECOND))"""
_COUNTS = f"""SELECT auction, window_start, window_end, COUNT(*) AS num FROM {_HOP}
    GROUP BY auction, window_start, window_end"""

QUERIES = {
    "aggregate": (
        "auction BIGINT, bids BIGINT, total BIGINT, best BIGINT",
        "SELECT auction, COUNT(*), SUM(price), MAX(price) FROM bid GROUP BY auction",
    ),
    "q3": (
        "name STRING, city STRING, state STRING, auction BIGINT",
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
            WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    "q4": (
        "category BIGINT, average DOUBLE",
        """SELECT category, AVG(CAST(final AS DOUBLE)) FROM (
                SELECT MAX(b.price) AS final, a.category
                FROM auction a JOIN bid b ON a.id = b.auction
                WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
                GROUP BY a.id, a.category)
            GROUP BY category""",
    ),
    "q5": (
        "auction BIGINT, num BIGINT",
        f"""SELECT c.auction, c.num FROM ({_COUNTS}) c JOIN (
                SELECT MAX(num) AS most, window_start, window_end FROM ({_COUNTS})
                GROUP BY window_start, window_end) m
            ON c.window_start = m.window_start AND c.window_end = m.window_end
                AND c.num = m.most""",
    ),
    "hop": (
        "auction BIGINT, `start` TIMESTAMP(3), num BIGINT",
        f"SELECT auction, window_start, num FROM ({_COUNTS})",
    ),
    "topk": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3)",
        """SELECT auction, bidder, price, `dateTime` FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY auction
                    ORDER BY price DESC, `dateTime`, bidder) AS place FROM bid)
            WHERE place <= 10""",
    ),
}


def environment(workers: str, batch: str) -> TableEnvironment:
    """A streaming environment with the settings that the module names."""
    environment_ = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "parallelism.default": workers,
        "taskmanager.numberOfTaskSlots": workers,
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": batch,
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.optimizer.distinct-agg.split.enabled": "true",
        "taskmanager.memory.network.fraction": "0.2",
    }
    for name, value in settings.items():
        environment_.get_config().set(name, value)
    return environment_


def main() -> None:
    """Run one query and say what it took."""
    query, inputs, workers, batch, *changelog = sys.argv[1:]
    tables = environment(workers, batch)
    for kind, columns in COLUMNS.items():
        late = WATERMARK if query in {"hop", "q5"} and kind == "bid" else ""
        tables.execute_sql(
            f"""CREATE TABLE {kind} ({columns}{late}) WITH ('connector' = 'filesystem',
            'path' = '{(Path(inputs) / kind).as_uri()}', 'format' = 'json',
            'json.timestamp-format.standard' = 'ISO-8601')"""
        )
    result, statement = QUERIES[query]
    sink = "'connector' = 'blackhole'"
    if changelog:
        path = Path(changelog[0]).as_uri()
        sink = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'debezium-json'"
    tables.execute_sql(f"CREATE TABLE answer ({result}) WITH ({sink})")
    before = cpu_seconds()
    submitted = tables.execute_sql(f"INSERT INTO answer {statement}")
    client = submitted.get_job_client()
    assert client is not None
    done = client.get_job_execution_result().result()
    took = done.get_net_runtime() / 1000
    print(json.dumps({"seconds": took, "cpu_seconds": cpu_seconds() - before}))  # noqa: T201


def cpu_seconds() -> float:
    """The CPU time of this process's children, the JVM among them, as the kernel counts it."""
    ticks, mine = 0, os.getpid()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == mine:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
