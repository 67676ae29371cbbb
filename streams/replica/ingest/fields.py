r"""What a declared column accepts from JSON, type by type.

Conversion is strict: the JSON kind must be the one of the type, and the value must be one that
the type holds exactly (floats: rounded to the nearest). JSON null and a missing member are NULL
for every type.

| declared type                        | accepts                                               |
|--------------------------------------|-------------------------------------------------------|
| TINYINT to BIGINT, UTINYINT to UBIG..| a number written without fraction and exponent (`1`,  |
|                                      | not `1.0`, `1e3`) that is in range                    |
| HUGEINT, UHUGEINT                    | a whole number that is in range                       |
| DECIMAL(p,s)                         | a number that fits without rounding (`1.50`, `15e-1`) |
| DOUBLE, FLOAT                        | a number, unless it overflows; FLOAT is rounded from  |
|                                      | the DOUBLE; -0.0 becomes 0.0 (rule 23)                |
| VARCHAR                              | a string, any characters, U+0000 among them           |
| BOOLEAN                              | `true`, `false`                                       |
| DATE                                 | a string `YYYY-MM-DD`, years 0001 to 9999             |
| TIME                                 | a string `HH:MM:SS`, then up to 6 digits of a second  |
| TIMESTAMP                            | a string: date, `T` or space, time, perhaps `Z`       |
| TIMESTAMP WITH TIME ZONE             | the same, then `Z` or an offset `+HH:MM` up to 15:59  |
| UUID                                 | a string in the form 8-4-4-4-12, either case          |
| BLOB                                 | a string of padded base64                             |
| JSON                                 | anything but null; kept as DuckDB prints it: without  |
|                                      | insignificant space, numbers in their shortest form   |

A string that holds nothing but a JSON number (`"89.73"`) is taken for that number by all
numeric types: producers quote what a double would not hold, and Flink and RisingWave read it
so. Epoch numbers are not times: declare what the producer sends, and cast in a view.

A value is converted in two stages. *Parsing* gives it the Arrow type `Field.parsed`: by
pyarrow for whole batches, by `Field.read` for an odd message; both agree wherever both
succeed. *Conversion* is `Field.sql`, DuckDB over the parsed column `{x}` (or the message
`{message}`) for all messages at once; where it is NULL but its input is not, the value is
refused.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial

import numpy as np
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.plan.source_types import decimal, is_source_type
from streams.replica.ingest.scan import NUMBER, Token, unquote

Value = int | float | Decimal | str | bool

INTEGER = re.compile(r"-?[0-9]{1,40}")
MAX_SHOWN = 64

DIGIT, HEX = "[0-9]", "[0-9a-fA-F]"
DAY = f"{DIGIT * 4}-{DIGIT * 2}-{DIGIT * 2}"
FRACTION = rf"(?:\.{DIGIT}{(DIGIT + '?') * 5})?"
CLOCK = f"(?:[01]{DIGIT}|2[0-3]):[0-5]{DIGIT}:[0-5]{DIGIT}{FRACTION}"
ZONE = f"(?:Z|[+-](?:0{DIGIT}|1[0-5]):[0-5]{DIGIT})"
BASE64 = "[A-Za-z0-9+/]"

# The accepted text of a type, and its conversion. No braces in here: the kernel reads what
# stands in them for a port.
TEXTS: dict[str, tuple[str, str]] = {
    "DATE": (DAY, "TRY_CAST({x} AS DATE)"),
    "TIME": (CLOCK, "TRY_CAST({x} AS TIME)"),
    "TIMESTAMP": (f"{DAY}[T ]{CLOCK}Z?", "TRY_CAST(rtrim({x}, 'Z') AS TIMESTAMP)"),
    "TIMESTAMP WITH TIME ZONE": (f"{DAY}[T ]{CLOCK}{ZONE}", "TRY_CAST({x} AS TIMESTAMPTZ)"),
    "UUID": (
        f"{HEX * 8}-{HEX * 4}-{HEX * 4}-{HEX * 4}-{HEX * 12}",
        "TRY_CAST({x} AS UUID)",
    ),
    "BLOB": (
        f"(?:{BASE64 * 4})*(?:{BASE64 * 2}==|{BASE64 * 3}=)?",
        "from_base64({x})",
    ),
}
JSON_TYPE = "json_type({message}, {pointer})"
TWICE = "len(list_filter(json_keys({message}), lambda k: k = {name})) > 1"
"""SQL over a message: whether the member is given more than once."""
OTHER_STRING = (
    f"({JSON_TYPE} = 'VARCHAR' AND NOT regexp_full_match("
    f"json_extract_string({{message}}, {{pointer}}), '{NUMBER}'))"
)
"""SQL over a message: whether the member is a string that does not hold a number."""
DATED = {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}


@dataclass(frozen=True, slots=True)
class Field:
    """A declared column and how JSON becomes its values.

    `name` is the member's, `opening` the begin of reasons, up to the name of the column.
    `read` gives the parsed value of a token that is not null, or None when it is refused.
    `parsed` is None for a column that parsing leaves alone. `sql` is None where the parsed
    column is already what the engine wants. `probe` is SQL over `{message}`, true where a
    message that pyarrow parsed must all the same be read by `read`; `screen` is SQL over
    `{message}` too, true where it is likely that a message is refused.
    """

    name: str
    opening: str
    type: str
    read: Callable[[Token], Value | None]
    parsed: pa.DataType | None
    sql: str | None = None
    probe: str | None = None
    screen: str | None = None

    @property
    def pointer(self) -> str:
        """The JSON pointer to the member, in SQL."""
        return literal("/" + self.name.replace("~", "~0").replace("/", "~1"))

    def render(self, sql: str, x: str, message: str) -> str:
        """Return the SQL with its operands."""
        return sql.format(x=x, message=message, pointer=self.pointer, name=literal(self.name))

    def expected(self, actual: str) -> str:
        """Return why a value is refused; `actual` is its JSON text."""
        shown = actual if len(actual) <= MAX_SHOWN else actual[:MAX_SHOWN] + "..."
        return f'{self.opening}": expected {self.type}, actual {shown}'


def literal(text: str) -> str:
    """A string literal in SQL, without the braces that the kernel would read as a port."""
    quoted = text.replace("'", "''")
    return "'" + quoted.replace("{", "'||chr(123)||'").replace("}", "'||chr(125)||'") + "'"


def text_field(name: str, opening: str, declared: str) -> Field:
    """Return a field whose values are the JSON texts of a member, to be taken apart."""
    sql = "nullif(json_extract({message}, {pointer})::VARCHAR, 'null')"
    return Field(name, opening, declared, lambda token: token.text, None, sql, TWICE)


def field(name: str, opening: str, declared: str) -> Field:
    """How to read a column of a type without parts.

    Errors: InvalidUsage for a type that JSON cannot give.
    """
    if not is_source_type(declared):
        raise InvalidUsage(f'{opening}": a source cannot have a column of type {declared}')
    if declared in SIMPLE:
        read, parsed, sql = SIMPLE[declared]
        return Field(name, opening, declared, read, parsed, sql, screen=_screen(parsed))
    if declared in HUGE:
        sql = f"TRY_CAST({{x}} AS {declared})"
        read = partial(_decimal, 39, 0)  # the conversion checks the exact range
        return Field(name, opening, declared, read, pa.decimal256(39, 0), sql, OTHER_STRING)
    if declared in TEXTS:
        sql, screen = _text_sql(declared), _screen(pa.string())
        return Field(name, opening, declared, _string, pa.string(), sql, screen=screen)
    if declared == "JSON":
        field_ = text_field(name, opening, declared)
        return replace(field_, sql=f"{field_.sql}::JSON")
    shape = decimal(declared)
    assert shape, declared
    width, scale = shape
    read = partial(_decimal, width, scale)
    return Field(name, opening, declared, read, pa.decimal128(width, scale), None, OTHER_STRING)


def _screen(parsed: pa.DataType) -> str:
    """Return a test whether the member's JSON type does not match the parsed type."""
    if pa.types.is_string(parsed):
        return f"{JSON_TYPE} NOT IN ('VARCHAR', 'NULL')"
    if pa.types.is_boolean(parsed):
        return f"{JSON_TYPE} NOT IN ('BOOLEAN', 'NULL')"
    beyond = ", 'DOUBLE', 'HUGEINT', 'UHUGEINT'" if pa.types.is_floating(parsed) else ""
    wanted = f"('BIGINT', 'UBIGINT', 'VARCHAR', 'NULL'{beyond})"
    return f"({JSON_TYPE} NOT IN {wanted} OR {OTHER_STRING})"


def _text_sql(declared: str) -> str:
    pattern, value = TEXTS[declared]
    # The year 0000 is DuckDB's 1 BC.
    year = " AND {x} NOT LIKE '0000%'" if declared in DATED else ""
    return f"CASE WHEN regexp_full_match({{x}}, '{pattern}'){year} THEN {value} END"


def _number(token: Token) -> str | None:
    """Return the number as written, also between quotes; None if it is not a number."""
    if token.kind == "number":
        return token.text
    inside = unquote(token.text) if token.kind == "string" else ""
    return inside if re.fullmatch(NUMBER, inside) else None


def _integer(low: int, high: int, token: Token) -> int | None:
    number = _number(token)
    if number is None or not INTEGER.fullmatch(number):
        return None
    value = int(number)
    return value if low <= value <= high else None


def _decimal(width: int, scale: int, token: Token) -> Decimal | None:
    number = _number(token)
    if number is None:
        return None
    try:
        sign, digits, exponent = Decimal(number).as_tuple()
    except InvalidOperation:  # an exponent of more than 18 digits
        return None
    assert isinstance(exponent, int), "a finite number"
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    exponent += len(written) - len(significant)
    if not significant:
        return Decimal(0)
    if -exponent > scale or len(significant) + exponent > width - scale:
        return None
    return Decimal((sign, tuple(map(int, significant)), exponent))


def _double(token: Token) -> float | None:
    number = _number(token)
    if number is None:
        return None
    value = float(number)
    return value + 0.0 if math.isfinite(value) else None


def _float(token: Token) -> float | None:
    value = _double(token)
    if value is None:
        return None
    with np.errstate(over="ignore"):
        return value if math.isfinite(np.float32(value)) else None


def _string(token: Token) -> str | None:
    return unquote(token.text) if token.kind == "string" else None


def _boolean(token: Token) -> bool | None:
    return token.text == "true" if token.kind == "boolean" else None


def _integers() -> dict[str, tuple[Callable[[Token], Value | None], pa.DataType, None]]:
    widths = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
    signed, unsigned = (
        {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()},
        {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()},
    )
    return {
        **{
            name: (
                partial(_integer, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
                signed[bits],
                None,
            )
            for name, bits in widths.items()
        },
        **{
            f"U{name}": (partial(_integer, 0, 2**bits - 1), unsigned[bits], None)
            for name, bits in widths.items()
        },
    }


SIMPLE: dict[str, tuple[Callable[[Token], Value | None], pa.DataType, str | None]] = {
    **_integers(),
    "DOUBLE": (_double, pa.float64(), None),
    "FLOAT": (_float, pa.float64(), "CAST({x} AS FLOAT)"),
    "VARCHAR": (_string, pa.string(), None),
    "BOOLEAN": (_boolean, pa.bool_(), "{x}"),
}
HUGE = {"HUGEINT", "UHUGEINT"}
