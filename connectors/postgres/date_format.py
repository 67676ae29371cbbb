"""Dates and times as PostgreSQL writes them: years before 1 become years BC.

Source: PostgreSQL 17 documentation, "Date/Time Types" (8.5.1) and appendix B.
"""

import pyarrow as pa
import pyarrow.compute as pc

from connectors.sql import values
from schemas.flow_columns import Elements

SIGNED = r"^(?P<sign>-?)(?P<year>\d{4,})(?P<rest>-\d\d-\d\d.*)$"


def date(elements: Elements) -> pa.Array:
    """Text of a date."""
    return in_eras(values.text(elements))


def instant(elements: Elements) -> pa.Array:
    """Text of a time, of microseconds at most. Errors: ValueError."""
    return in_eras(values.instant(elements))


def in_eras(texts: pa.Array) -> pa.Array:
    """Years of ISO 8601, where 0000 is 1 BC and -0001 is 2 BC, as PostgreSQL takes them."""
    is_early = pc.match_substring_regex(texts, r"^(-\d|0000-)")
    if not pc.any(is_early).as_py():
        return texts
    parts = pc.extract_regex(texts, SIGNED)
    year = pc.struct_field(parts, "year").cast(pa.int64())
    counted = pc.utf8_lpad(pc.add(year, 1).cast(pa.string()), 4, "0")
    early = pc.binary_join_element_wise(counted, pc.struct_field(parts, "rest"), " BC", "")
    return pc.if_else(is_early, early, texts)
