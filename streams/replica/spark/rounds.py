"""The rounds of a micro-batch after round 0, as Spark runs them."""

from dataclasses import dataclass, field
from functools import partial

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.functions import col, pandas_udf
from pyspark.util import PythonEvalType

from streams.replica.spark.source import SCHEMA
from streams.replica.tasks.rounds import advance_round


@dataclass(slots=True)
class Rounds:
    """Adds rounds after round 0.

    `DataFrame.mapInArrow` wraps a function at every call, for 20 to 30 ms; here it is wrapped
    once for each level, with PySpark's internal classes.
    """

    session: SparkSession
    place: str = field(repr=False)
    buckets: int
    wrapped: dict[int, JavaObject] = field(default_factory=dict)

    def after(self, frame: DataFrame, depth: int) -> DataFrame:
        """Return the frame of round 0 with `depth` rounds after it."""
        for level in range(1, depth + 1):
            exchanged = frame.repartitionById(self.buckets, "bucket")
            rows = exchanged._jdf.mapInArrow(self._round(level), *_PLAINLY)  # noqa: SLF001
            frame = DataFrame(rows, self.session)
        return frame

    def _round(self, level: int) -> JavaObject:
        if level not in self.wrapped:
            advance = partial(advance_round, level, self.place)
            function = pandas_udf(advance, SCHEMA, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
            self.wrapped[level] = function(*map(col, SCHEMA.names))._jc  # noqa: SLF001
        return self.wrapped[level]


_PLAINLY = (False, None)
"""Not as a barrier stage, with no resource profile."""
