"""Maps columns of a collection to the protocol: JSON types, and SQL for their values.

Values that JSON or 64 bits cannot hold without loss are text with a format: exact and large
numbers, times. Times without a zone are treated as UTC. Doubles that are not finite are text in
documents. RFC 3339 has no years before 1 and no infinite times: years are signed as in ISO
8601, where 0000 is 1 BC, and infinite times are the texts `infinity` and `-infinity`.
"""

import re
from dataclasses import dataclass

from connectors.protocol import spec_builder
from streams.storage.description import Description
from streams.trace.kernel.kernel import printed_type

TIME, DIFF = "slackwater_time", "slackwater_diff"
"""Columns of a binding of delta updates, beside the collection's own."""
META = "_meta"
"""The member of documents that says what happened, for connectors that cannot delete."""


@dataclass(frozen=True, slots=True)
class Form:
    """The wire form of values of a type. In SQL `{}` stands for the column."""

    types: tuple[str, ...]
    format: str = ""
    sql: str = "{}::VARCHAR"
    base64: bool = False
    nested: bool = False
    """`sql` gives JSON, which the protocol packs as JSON."""
    is_text: bool = False
    """A value is text that should be JSON; it was not checked."""


JSON = "to_json({})::VARCHAR"
# to_json rounds numbers of many digits; what DuckDB reads and JSON has not, as [1,], it mends
JSON_TEXT = (
    "CASE WHEN json_valid({0}) AND NOT regexp_matches({0}::VARCHAR, '[0-9.]{{17,}}')"
    " THEN to_json({0})::VARCHAR ELSE {0}::VARCHAR END"
)
ANYTHING = ("array", "boolean", "number", "object", "string")
# a product: `/` of integers has no fraction here
SECONDS = "((date_part('microsecond', {0}) % 60000000) * 0.000001)::DECIMAL(18, 6)::VARCHAR"
DURATION = (
    "'P' || date_part('year', {0}) || 'Y' || date_part('month', {0}) || 'M'"
    " || date_part('day', {0}) || 'DT' || date_part('hour', {0}) || 'H'"
    f" || date_part('minute', {{0}}) || 'M' || {SECONDS} || 'S'"
)
# from the text: of a time with a zone, DuckDB's date_part has the year without its era
BC_YEAR = "(TRY_CAST(regexp_extract({0}::VARCHAR, '^[0-9]+') AS BIGINT) - 1)"
BEFORE_CHRIST = (
    f"CASE WHEN {BC_YEAR} > 0 THEN '-' ELSE '' END || printf('%04d', {BC_YEAR})"
    " || regexp_replace(replace({0}::VARCHAR, ' (BC)', ''), '^[0-9]+', '')"
)
SIGNED = (
    f"CASE WHEN contains({{0}}::VARCHAR, '(BC)') THEN {BEFORE_CHRIST} ELSE {{0}}::VARCHAR END"
)
INSTANT = (
    f"CASE WHEN isfinite({{0}}::TIMESTAMP) THEN replace({SIGNED}, ' ', 'T') || 'Z'"
    " ELSE {0}::VARCHAR END"
)
ZONED = f"replace(regexp_replace({SIGNED}, '[+]00$', 'Z'), ' ', 'T')"

FORMS: tuple[tuple[str, Form], ...] = (
    (r".*\[\d*\]", Form(("array",), sql=JSON, nested=True)),
    (r"(STRUCT|MAP)\b.*", Form(("object",), sql=JSON, nested=True)),
    (r"JSON", Form(ANYTHING, sql=JSON_TEXT, nested=True, is_text=True)),
    (r"UNION\b.*", Form(ANYTHING, sql=JSON, nested=True)),
    (r"U?(TINYINT|SMALLINT|INTEGER)|BIGINT", Form(("integer",), sql="{}::BIGINT")),
    (r"UBIGINT|U?HUGEINT|BIGNUM", Form(("string",), "integer")),
    (r"DECIMAL.*", Form(("string",), "number")),
    (r"FLOAT|DOUBLE", Form(("number",), sql="{}::DOUBLE")),
    (r"BOOLEAN", Form(("boolean",), sql="{}")),
    (r"DATE", Form(("string",), "date", sql=SIGNED)),
    (r"TIME", Form(("string",), "time", sql="{}::VARCHAR || 'Z'")),
    (r"TIME WITH TIME ZONE", Form(("string",), "time")),
    (r"TIMESTAMP WITH TIME ZONE", Form(("string",), "date-time", sql=ZONED)),
    (r"TIMESTAMP.*", Form(("string",), "date-time", sql=INSTANT)),
    (r"INTERVAL", Form(("string",), "duration", sql=DURATION)),
    (r"UUID", Form(("string",), "uuid")),
    (r"BLOB", Form(("string",), sql="base64({})", base64=True)),
    (r".*", Form(("string",))),
)


def form_of(type_: str) -> Form:
    """The wire form of values of a DuckDB type."""
    text = printed_type(type_)
    return next(form for pattern, form in FORMS if re.fullmatch(pattern, text, re.DOTALL))


@dataclass(frozen=True, slots=True)
class Field:
    """A column by name: where it stands in updates, and how its values travel."""

    name: str
    place: int
    form: Form

    @property
    def value(self) -> str:
        """SQL for an element of a tuple."""
        return self.form.sql.format(f"c{self.place}")

    @property
    def member(self) -> str:
        """SQL for the member of the document."""
        column = f"c{self.place}"
        if self.form.nested:
            return f"({self.value})::JSON"
        if self.form.types == ("number",):
            text = f"to_json(replace({column}::VARCHAR, '-nan', 'nan'))"
            return f"CASE WHEN isfinite({column}) THEN to_json({self.value}) ELSE {text} END"
        return self.value

    @property
    def json(self) -> str:
        """SQL for the member as JSON's text."""
        if self.form.nested:
            return self.value
        return f"to_json({self.member})::VARCHAR"


def fields_of(description: Description) -> dict[str, Field]:
    """The fields of a collection by name, in the order of its columns."""
    return {
        name: Field(name, place, form_of(type_))
        for place, (name, type_) in enumerate(description.columns)
    }


def with_changes(description: Description) -> Description:
    """A collection's columns, then the time and the diff of a change."""
    columns = (*description.columns, (TIME, "BIGINT"), (DIFF, "BIGINT"))
    required = (*description.required, TIME, DIFF)
    return Description(columns, description.keys, description.kind, required)


def collection_of(
    name: str,
    description: Description,
    keys: tuple[str, ...],
    *,
    document: bool,
    is_keyed: bool = True,
) -> spec_builder.Collection:
    """The column in protocol terms. A null in a key is an error, except for delta updates."""
    never_null = {*(keys if is_keyed else ()), *description.required}
    columns = [
        spec_builder.FieldSpec(
            name=field.name,
            types=(*field.form.types, *(() if field.name in never_null else ("null",))),
            required=field.name in never_null,
            format=field.form.format,
            base64=field.form.base64,
        )
        for field in fields_of(description).values()
    ]
    return spec_builder.Collection(name=name, keys=keys, columns=columns, document=document)
