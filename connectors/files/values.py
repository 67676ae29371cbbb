"""Columns of Parquet files."""

from collections.abc import Mapping

import pyarrow as pa

from connectors.sql import values
from connectors.sql.columns import Kind
from schemas.flow_columns import Elements


def date(elements: Elements) -> pa.Array:
    """Days."""
    return values.text(elements).cast(pa.date32())


def timestamp(elements: Elements) -> pa.Array:
    """Microseconds of UTC; text with more digits is refused."""
    return values.text(elements).cast(pa.timestamp("us", "UTC"))


CONVERTS: Mapping[Kind, values.Convert] = dict.fromkeys(Kind, values.text) | {
    Kind.INTEGER: values.whole,
    Kind.NUMBER: values.number,
    Kind.BOOLEAN: values.boolean,
    Kind.BYTES: values.binary,
    Kind.JSON: values.json_text,
    Kind.DATE: date,
    Kind.TIMESTAMP: timestamp,
}
"""Types without a Parquet equivalent are text: exact numbers, times of day, UUIDs, JSON."""
