"""The process from which Spark forks its Python workers (`spark.python.daemon.module`).

It imports everything a stage needs before the first fork, so that workers start warm and share
those pages, and then freezes the collector: PySpark's worker loop runs `gc.collect()` after
every task, 50 to 100 ms with these libraries loaded and not frozen. Nothing here may start a
thread: the children would inherit its locks without it.
"""

import gc
import importlib

PRELOADED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyarrow.json",
    "duckdb",
    "confluent_kafka",
    "pyspark.worker",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.plan_data_source_read",
    "streams.replica.source",
    "streams.replica.stage",
)


def main() -> None:
    """Import, freeze, and serve Spark until it closes our standard input."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
