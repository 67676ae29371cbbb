"""`schemas/CLIENTS.md` leaves out no kind of record, no command and no code."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from schemas import codec, stream
from schemas.materializations import SPECS, STATES
from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Offset
from streams.kafka import log
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.progress import END
from streams.storage import limits
from streams.storage.client.handles import LONGEST_LEASE_MS, LONGEST_TOKEN, check_token
from streams.storage.client.reserved_names import refuse_reserved
from streams.storage.client.shards import MAXIMUM_BODY_BYTES
from streams.storage.commands import service
from streams.storage.commands.wire import LONGEST_ID, Status, decode
from streams.storage.description import Description
from streams.storage.sans_io import check_new, check_stage
from streams.storage.small_table import NotOurs, TakenOver
from streams.storage.write.arrow_types import is_accepted
from streams.trace.kernel.kernel import arrow_type

SCHEMAS = Path(__file__).parents[3] / "schemas"
PAGE = (SCHEMAS / "CLIENTS.md").read_text(encoding="utf-8")
KINDS = {re.sub(r"_\d$", "", path.stem) for path in (SCHEMAS / "avro").glob("shard_*.avsc")}
COMMANDS = {path.stem for path in (SCHEMAS / "avro").glob("command_*.avsc")}


def section(title: str) -> str:
    """What stands under a heading, up to the next of any depth."""
    match = re.search(
        rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert match is not None, title
    return match[1]


def codes(kind: type[SlackwaterError], *modules: str) -> set[str]:
    """The names of the errors of a kind that modules define."""
    names = {
        class_.__name__
        for class_ in kind.__subclasses__()
        if class_.__module__.startswith(modules)
    }
    return names.union(*(codes(class_, *modules) for class_ in kind.__subclasses__()))


def test_every_kind_of_record_has_its_rule() -> None:
    rules = set(re.findall(r"^\| (\w+) \|", section("4.2 Which records count"), re.MULTILINE))
    names = {"".join(word.title() for word in kind.split("_")[1:]) for kind in KINDS}
    assert names - {"State"} == rules - {"kind"}


def test_every_command_is_named() -> None:
    documented = set(re.findall(r"`(command_\w+)`", section("2. Commands")))
    assert documented == COMMANDS - {"command_response"}


def test_every_status_is_explained() -> None:
    for status in Status:
        assert f"| `{status.value}` |" in section("2. Commands")


@pytest.mark.parametrize("kind", [InvalidUsage, Corrupt, Determinate, Indeterminate])
def test_every_code_is_explained(kind: type[SlackwaterError]) -> None:
    documented = set(re.findall(r"`(\w+)`", section("5. Errors")))
    mine = {kind.__name__} | codes(kind, "streams.storage", log.__name__)
    mine -= {NotOurs.__name__, TakenOver.__name__}  # of tables that the service does not write
    assert mine <= documented, f"as {service.__name__} may say: {mine - documented}"


def test_no_code_is_explained_that_there_is_not() -> None:
    kinds = (InvalidUsage, Corrupt, Determinate, Indeterminate)
    codes_ = {kind.__name__ for kind in kinds}.union(
        *(codes(kind, "streams.") for kind in kinds)
    )
    first = re.findall(r"^\| ((?:`\w+`(?:, )?)+)", section("5. Errors"), re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(first)))
    assert documented <= codes_ | {"Crashed", "ReusedId", "Defect"}


def rows(title: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


LIMITS: dict[str, tuple[int, ...]] = {
    "a command, a chunk": (MAXIMUM_RECORD_BYTES >> 20,),
    "a command's id": (LONGEST_ID,),
    "a collection's id, a group's name": (limits.LONGEST_NAME,),
    "a token": (LONGEST_TOKEN,),
    "a stage's name": (limits.LONGEST_STAGE,),
    "a lease": (LONGEST_LEASE_MS, LONGEST_LEASE_MS // 86_400_000),
    "a description": (limits.LARGEST_DESCRIPTION, limits.MOST_COLUMNS),
    "rows of one collection in a command, one chunk, unpacked": (limits.LARGEST_ROWS,),
    "one row, packed by lz4 or, where that is smaller, by zstd": (MAXIMUM_BODY_BYTES,),
    "chunks of a command with `check_counts`, unpacked": (limits.LARGEST_COUNTED,),
    "record batches of a stream": (stream.MOST_BATCHES,),
    "a diff, without its sign": (limits.MOST_DIFF, 2, 53),
    "writes of a command": (limits.MOST_SHARES,),
    "chunks of a command, of a stage": (limits.MOST_CHUNKS,),
    "chunks of a cut": (limits.MOST_PIECES,),
}


def test_the_limits_are_those_of_the_code() -> None:
    page = {what: tuple(map(int, re.findall(r"\d+", most))) for what, most in rows("Limits")}
    assert page == LIMITS


ID = "a collection's id, a group's name"
HELD = {"collection": "t", "right": "READ", "frontier": 0, "name": "r", "token": ""}
TABLE = Description((("a", "INTEGER"),), kind="table")
EXAMPLES = ("", "a", "-", "A.b_c-9", "a:b", "ä", "a b", "a" * 100, "a" * 101, "é" * 100)
LONG = tuple("a" * length for length in (200, 201, 256, 257))


def takes(what: str, name: str) -> bool:
    """Whether the code takes a name."""
    try:
        if what == ID:
            check_new(CollectionId(name), TABLE, 0, "g")
            check_new(CollectionId("t"), TABLE, 0, name)
        elif what == "a command's id":
            value = codec.encode("command_heartbeat", {"id": name, "capability": HELD})
            decode(Offset(0), value)
        elif what == "a token":
            check_token(name)
        else:
            check_stage(name)
    except InvalidUsage:
        return False
    return True


def test_names_are_taken_as_the_page_says() -> None:
    values = {what: re.findall(r"`(.*?)`", text) for what, text in rows("Names and times")}
    patterns = {what: texts for what, texts in values.items() if len(texts) == 1}
    for what, (pattern,) in patterns.items():
        for name in (*EXAMPLES, *LONG):
            assert takes(what, name) == bool(re.fullmatch(pattern, name)), (what, name)
    assert len(patterns) == 4
    times = [tuple(map(int, texts)) for texts in values.values() if len(texts) > 1]
    assert times == [(0, END - 1), (0, END)]  # held by tests/unit/storage/test_bad_input.py


RESERVED = (
    *(f"{letter}{number}" for letter in "abcdefghijklmnopqrstuvwxyz" for number in (0, 17)),
    *("s", "S1", "s1x", "u1.log", "storage.ids", "storage.idss", "storageXids", "storage"),
    *("id:", "id:t", "id", "id.t", "materialize.orders", "materialize", "materialized.t"),
    *(SPECS, STATES, "materializations.x", "Materializations.x", "x.materialize.orders"),
)


def test_names_are_reserved_as_the_page_says() -> None:
    cells = [cell.replace("\\|", "|") for cell, _ in rows("Reserved names")]
    patterns = [re.compile(pattern) for cell in cells for pattern in re.findall("`(.*)`", cell)]
    assert len(patterns) == len(cells) == 4
    refused = set()
    for name in RESERVED:
        try:
            refuse_reserved(name)
        except InvalidUsage:
            refused.add(name)
    described = {
        name for name in RESERVED if any(pattern.fullmatch(name) for pattern in patterns)
    }
    assert refused == described
    assert all(any(pattern.fullmatch(name) for name in refused) for pattern in patterns)


WRITTEN: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    **{f"{u}int{n}": getattr(pa, f"{u}int{n}")() for u in ("", "u") for n in (8, 16, 32, 64)},
    "float32": pa.float32(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "time64[us]": pa.time64("us"),
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    "month_day_nano_interval": pa.month_day_nano_interval(),
}


def test_plain_types_are_written_as_the_page_says() -> None:
    compared = set()
    for names, written, *_ in rows("Types"):
        pairs = zip(
            re.findall(r"`(.*?)`", names), re.findall(r"`(.*?)`", written), strict=False
        )
        for duckdb, arrow in pairs:
            if arrow in WRITTEN and "(" not in duckdb:
                assert is_same(duckdb, WRITTEN[arrow]), duckdb
                compared.add(duckdb)
    assert len(compared) >= 20


def is_same(duckdb: str, arrow: pa.DataType) -> bool:
    """Whether a DuckDB type is written so; JSON and UUID are types of extensions over it."""
    type_ = arrow_type(duckdb)
    storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    return bool(storage == arrow) and is_accepted(arrow, type_)


@pytest.mark.parametrize(
    ("duckdb", "kind"),
    [
        ("HUGEINT", pa.opaque(pa.binary(16), "hugeint", "DuckDB")),
        ("UHUGEINT", pa.opaque(pa.binary(16), "uhugeint", "DuckDB")),
        ("DECIMAL(7, 2)", pa.decimal128(7, 2)),
        ("ENUM('a')", pa.utf8()),
        ("JSON", pa.json_(pa.utf8())),
        ("UUID", pa.uuid()),
        ("TIMETZ", pa.opaque(pa.binary(8), "time_tz", "DuckDB")),
        ("BIT", pa.opaque(pa.binary(), "bit", "DuckDB")),
        ("BIGNUM", pa.opaque(pa.binary(), "bignum", "DuckDB")),
        ("INTEGER[]", pa.list_(pa.int32())),
        ("INTEGER[3]", pa.list_(pa.int32(), 3)),
        ("STRUCT(a INTEGER)", pa.struct([("a", pa.int32())])),
        ("MAP(VARCHAR, INTEGER)", pa.map_(pa.utf8(), pa.int32())),
        ("UNION(a INT)", pa.struct([("tag", pa.uint8()), ("a", pa.int32())])),
        ("UNION(Tag INT)", pa.struct([("tag_", pa.uint8()), ("Tag", pa.int32())])),
    ],
)
def test_other_types_are_written_as_the_page_says(duckdb: str, kind: pa.DataType) -> None:
    assert arrow_type(duckdb) == kind
    documented = re.findall(r"`([A-Z]+)", section("Types"))
    assert duckdb.partition("(")[0].partition("[")[0] in {*documented, "INTEGER"}
