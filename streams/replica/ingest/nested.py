"""Reads LIST, STRUCT and MAP from JSON, and columns from nested members, by taking texts apart.

A value with parts is a JSON text whose parts are texts again: the items of an array, the
members of an object. So each level is read as messages are, by a decoder of the columns inside
it, all rows at once, and as strictly:

    LIST     `[1,2]` of many rows becomes one column of items, and the items one of values
    STRUCT   an object is a message, and the members are its columns
    MAP      an object becomes a column of names and one of texts, read as the items of a list
    scalar   `1` becomes the message `{"v":1}`

Readers return why a value is refused from where it lies inside the column on, as
`.b[3]": expected BIGINT, actual "x"`; `decode` adds the beginning. Items are counted from 1, as
in SQL.

DuckDB splits the texts, and prints a number that is not whole as the nearest double. That is
what a DOUBLE holds, too. A DECIMAL needs the digits as they are written: texts with a number
that is too long for a double (`LONG`) are read by `scan`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.plan.physical import Column
from streams.plan.source_types import decimal
from streams.replica.ingest.fields import MAX_SHOWN
from streams.replica.ingest.scan import items, members
from streams.trace.kernel.kernel import Kernel, arrow_type
from streams.trace.kernel.types import parts

LONG = r"[0-9.]{16}|[0-9.][eE]-[0-9]{3}"
"""A number that a double may not hold as it is written; also what looks so inside a string."""
TEXT = pa.schema([("x", pa.string())])
NO_TEXT = pa.scalar(None, pa.string())
ITEMS = pa.list_(pa.string())

Read = tuple[Sequence[pa.Array], pa.Array]
"""Columns, and a reason for each row that is refused; there the columns are undefined."""
Opening = Callable[[str], str]
"""The begin of a reason, given the name of the column that it is about."""


class Decodes(Protocol):
    """Decodes messages (`decode.Decoder`)."""

    def read(self, texts: pa.Array) -> Read:
        """Return the columns of objects. Shape: binary, without NULLs."""


class Make(Protocol):
    """Makes a decoder of columns, whose reasons have an opening."""

    def __call__(
        self, columns: Sequence[Column], opening: Opening, paths: Mapping[str, Sequence[str]]
    ) -> Decodes:
        """Return the decoder."""


class JsonReader(Protocol):
    """Reads JSON texts as values."""

    def read(self, texts: pa.Array) -> Read:
        """Return columns and reasons. Shape: JSON as string, NULL for no value."""


class Scalars:
    """Reads texts as values of a type without parts."""

    def __init__(self, type_: str, make: Make) -> None:
        self._decoder = make([Column("v", type_)], lambda _: "", {})

    def read(self, texts: pa.Array) -> Read:
        """See `JsonReader`."""
        return self._decoder.read(
            _messages(pc.binary_join_element_wise('{"v":', texts, "}", ""))
        )


class Lists:
    """Reads arrays as values of a LIST."""

    def __init__(self, type_: str, make: Make, split: "Split") -> None:
        inside = parts(type_)
        assert inside is not None, type_
        self._type, self._arrow, self._split = type_, arrow_type(type_), split
        self._items = reader_of(inside.types[0], make, split)

    def read(self, texts: pa.Array) -> Read:
        """See `JsonReader`."""
        texts, reasons = _framed(texts, "[", self._type)
        lists = self._split.items(texts)
        (values,), refused = self._items.read(present(lists.flatten()))
        offsets, owner = _offsets(lists), _owners(lists)
        place = pa.array(np.arange(len(owner)) - offsets[owner] + 1).cast(pa.string())
        inner = pc.binary_join_element_wise("[", place, "]", refused, "")
        column = pa.ListArray.from_arrays(
            pa.array(offsets),
            _inside(values, self._arrow.value_type),
            type=self._arrow,
            mask=lists.is_null(),
        )
        return [column], pc.coalesce(reasons, _first(inner, owner, len(texts)))


class Maps:
    """Reads objects as values of a MAP from VARCHAR."""

    def __init__(self, type_: str, make: Make, split: "Split") -> None:
        inside = parts(type_)
        assert inside is not None, type_
        self._type, self._arrow, self._split = type_, arrow_type(type_), split
        self._values = reader_of(inside.types[1], make, split)

    def read(self, texts: pa.Array) -> Read:
        """See `JsonReader`."""
        texts, reasons = _framed(texts, "{", self._type)
        names, lists = self._split.entries(texts)
        keys = names.flatten()
        (values,), refused = self._values.read(present(lists.flatten()))
        offsets, owner = _offsets(lists), _owners(lists)
        repeated = pc.if_else(_repeated(owner, keys), '": given more than once', NO_TEXT)
        refused = pc.coalesce(repeated, refused)
        inner = pc.binary_join_element_wise("['", _named(keys, refused), "']", refused, "")
        column = pa.MapArray.from_arrays(
            pa.array(offsets),
            keys,
            _inside(values, self._arrow.item_type),
            type=self._arrow,
            mask=lists.is_null(),
        )
        return [column], pc.coalesce(reasons, _first(inner, owner, len(texts)))


class Structs:
    """Reads objects as values of a STRUCT."""

    def __init__(self, type_: str, make: Make) -> None:
        inside = parts(type_)
        assert inside is not None, type_
        self._type, self._arrow = type_, arrow_type(type_)
        columns = [Column(*pair) for pair in zip(inside.names, inside.types, strict=True)]
        self._decoder = make(columns, lambda name: f".{name}", {})

    def read(self, texts: pa.Array) -> Read:
        """See `JsonReader`."""
        texts, reasons = _framed(texts, "{", self._type)
        columns, refused = self._decoder.read(_messages(texts))
        members = [_inside(*pair) for pair in zip(columns, _types(self._arrow), strict=True)]
        column = pa.StructArray.from_arrays(
            members, fields=list(self._arrow), mask=texts.is_null()
        )
        return [column], pc.coalesce(reasons, refused)


class Members:
    """Reads objects as columns, each from a member of theirs: `PATH '$.a.b'`, below `$.a`."""

    def __init__(
        self,
        columns: Sequence[Column],
        paths: Mapping[str, Sequence[str]],
        opening: Opening,
        make: Make,
    ) -> None:
        self._opening = opening(columns[0].name)
        self._decoder = make(columns, opening, paths)

    def read(self, texts: pa.Array) -> Read:
        """See `JsonReader`; reasons are whole."""
        texts, reasons = _framed(texts, "{", "an object around the column's path")
        columns, refused = self._decoder.read(_messages(texts))
        whole = pc.binary_join_element_wise(self._opening, reasons, "")
        return columns, pc.coalesce(whole, refused)


def reader_of(type_: str, make: Make, split: "Split") -> JsonReader:
    """Return what reads texts as values of a type that a source's column may have."""
    inside = parts(type_)
    match inside.kind if inside is not None else "":
        case "LIST":
            return Lists(type_, make, split)
        case "MAP":
            return Maps(type_, make, split)
        case "STRUCT":
            return Structs(type_, make)
        case _:
            return Scalars(type_, make)


def has_decimal(type_: str) -> bool:
    """Tell whether a type is a DECIMAL or has one inside it."""
    inside = parts(type_)
    return decimal(type_) is not None if inside is None else any(map(has_decimal, inside.types))


class Split:
    """Takes JSON texts apart; of those with a long number by `scan`, if it is `exact`."""

    def __init__(self, kernel: Kernel, *, exact: bool) -> None:
        self._kernel, self._exact = kernel, exact

    def member(self, texts: pa.Array, extracted: pa.Array, name: str) -> pa.Array:
        """Return a member of each object, which DuckDB `extracted`; NULL if none."""
        return present(
            self._by_hand(texts, extracted, lambda text: dict(_pairs(text)).get(name))
        )

    def items(self, texts: pa.Array) -> pa.Array:
        """Return the items of each array. Shape: list of string."""
        extracted = self._run("json_extract(x, '$[*]')::VARCHAR[]", texts)
        return self._by_hand(texts, extracted, lambda text: [item.text for item in items(text)])

    def entries(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the names and the values of the members. Shape: lists of string."""
        names = self._run("json_keys(x)", texts)
        values = self._run("json_extract(x, '$.*')::VARCHAR[]", texts)
        return (
            self._by_hand(texts, names, lambda text: [name for name, _ in _pairs(text)]),
            self._by_hand(texts, values, lambda text: [value for _, value in _pairs(text)]),
        )

    def _run(self, sql: str, texts: pa.Array) -> pa.Array:
        statement = self._kernel.prepare(f"SELECT {sql} AS x FROM {{t}}", t=TEXT)
        extracted = statement.run(pa.table([texts], schema=TEXT))["x"].cast(ITEMS)
        return pa.concat_arrays([pa.array([], ITEMS), *extracted.chunks])

    def _by_hand(
        self, texts: pa.Array, extracted: pa.Array, read: Callable[[str], object]
    ) -> pa.Array:
        """Return what was found, in texts with a long number what `read` returns."""
        if not self._exact:
            return extracted
        long = pc.fill_null(pc.match_substring_regex(texts, LONG), fill_value=False)
        places = np.flatnonzero(long.to_numpy(zero_copy_only=False))
        if not len(places):
            return extracted
        values = [read(text) for text in texts.take(pa.array(places)).to_pylist()]
        index = np.arange(len(extracted))
        index[places] = len(extracted) + np.arange(len(places))
        return pa.concat_arrays([extracted, pa.array(values, extracted.type)]).take(
            pa.array(index)
        )


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, token.text) for name, token in members(text)]


def present(texts: pa.Array) -> pa.Array:
    """Return texts with NULL in place of JSON's null."""
    return pc.if_else(pc.equal(texts, "null"), NO_TEXT, texts)


def _types(struct: pa.StructType) -> list[pa.DataType]:
    return [field.type for field in struct]


def _inside(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as they travel inside others: a BOOLEAN is a byte there."""
    if values.type == kind:
        return values
    return pa.ExtensionArray.from_storage(kind, values.cast(pa.int8()))


def _messages(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "{}").view(pa.binary())


def _named(names: pa.Array, reasons: pa.Array) -> pa.Array:
    """Return the names of members that have a reason: short, without control characters."""
    of_refused = pc.if_else(reasons.is_valid(), names, NO_TEXT)
    return pc.replace_substring_regex(_cut(of_refused), r"[\x00-\x1f\x7f-\x9f]", "\ufffd")


def _cut(texts: pa.Array) -> pa.Array:
    """Return texts, long ones by their beginning."""
    beginning = pc.utf8_slice_codeunits(texts, 0, MAX_SHOWN)
    is_long = pc.greater(pc.utf8_length(texts), MAX_SHOWN)
    return pc.if_else(is_long, pc.binary_join_element_wise(beginning, "...", ""), texts)


def _framed(texts: pa.Array, mark: str, expected: str) -> tuple[pa.Array, pa.Array]:
    """Return the texts that begin with a mark, others as NULL and with a reason."""
    right = pc.fill_null(pc.starts_with(texts, mark), fill_value=True)
    if pc.all(right).as_py():
        return texts, pa.nulls(len(texts), pa.string())
    reasons = pc.binary_join_element_wise(f'": expected {expected}, actual ', _cut(texts), "")
    return pc.if_else(right, texts, NO_TEXT), pc.if_else(right, NO_TEXT, reasons)


def _offsets(lists: pa.Array) -> npt.NDArray[np.int32]:
    """Return where each list begins among all items, and at last their number."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)


def _owners(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return the position of the list of each item."""
    owners: npt.NDArray[np.int64] = pc.list_parent_indices(lists).to_numpy()
    return owners


def _first(reasons: pa.Array, owner: npt.NDArray[np.int64], count: int) -> pa.Array:
    """Return the first of the items' reasons for each of `count` lists."""
    places = np.flatnonzero(reasons.is_valid().to_numpy(zero_copy_only=False))
    index = np.full(count, -1, np.int64)
    index[owner[places[::-1]]] = places[::-1]
    return reasons.take(pa.array(index, mask=index < 0))


def _repeated(owner: npt.NDArray[np.int64], keys: pa.Array) -> pa.Array:
    """Return whether a key is in its map more than once."""
    table = pa.table({"owner": owner, "key": keys})
    counts = table.group_by(["owner", "key"]).aggregate([([], "count_all")])
    if counts.num_rows == table.num_rows:
        return pa.array(np.zeros(len(keys), np.bool_))
    twice = counts.filter(pc.greater(counts["count_all"], 1)).select(["owner", "key"])
    places = table.append_column("place", pa.array(np.arange(len(keys))))
    repeated = places.join(twice, ["owner", "key"], join_type="left semi")["place"].to_numpy()
    flags = np.zeros(len(keys), np.bool_)
    flags[repeated] = True
    return pa.array(flags)
