"""Validates chunks that clients wrote beforehand, before they are linked.

Any client may write any record to a data topic, and a reference may claim anything about it.
Once a chunk is linked, all readers, compaction and the log cleaner rely on these properties:

    reference   named once; key is the text of a UUID; rows and size are those of the record
    record      committed: the log cleaner drops records of aborted transactions
    headers     `group`, `collection`, `rows`, `crc32`, each once: the collector uses them
    body        a sound Arrow stream of bounded size, no errors, no NULL in place of a row
    rows        fit the description, in the types that we write: readers concatenate chunks
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from schemas import chunk
from schemas.stream import TooMuch, brief
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CollectionId, Topic
from streams.kafka.log import ChunkRecord, ChunkRef, Chunks, described
from streams.storage.description import Description
from streams.storage.limits import LARGEST_ROWS, TooLarge
from streams.storage.write.validation import WrongRows, conform
from streams.trace.kernel.kernel import arrow_schema

AT_ONCE = 16
"""Chunks that are fetched together, which bounds the bytes in memory."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)(?:[0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}")


class Uncommitted(InvalidUsage):
    """A chunk is in an open or aborted transaction, or behind an open one."""

    def __init__(self, collection: CollectionId, place: str) -> None:
        super().__init__(collection, place)
        self.collection, self.place = collection, place

    def __str__(self) -> str:
        return (
            f"updates of collection {self.collection}: chunk {self.place}: expected a committed"
            " record, actual one in a transaction that is open or was aborted, or behind an"
            " open one: commit first, then name it in another command"
        )


def check_refs(refs: Sequence[tuple[CollectionId, Sequence[ChunkRef]]]) -> None:
    """Check the references of one command. Errors: WrongRows."""
    seen: set[tuple[int, int]] = set()
    keys: set[str] = set()
    for id_, named in refs:
        for ref in named:
            check_ref(id_, ref)
            if (ref.partition, ref.offset) in seen or ref.key in keys:
                raise WrongRows(
                    id_, f"chunk {place(ref)}: expected each chunk once, actual twice"
                )
            seen.add((ref.partition, ref.offset))
            keys.add(ref.key)


def check_ref(id_: CollectionId, ref: ChunkRef) -> None:
    """Check a reference. Errors: WrongRows if no record can match it."""
    if ref.partition < 0 or ref.offset < 0:
        raise WrongRows(
            id_, f"chunk {place(ref)}: expected a partition and an offset from 0 on"
        )
    if not _UUID.fullmatch(ref.key):
        raise WrongRows(
            id_,
            f"chunk {place(ref)}: expected a UUID in hexadecimal digits for a key, actual"
            f" {brief(ref.key)!r}",
        )


def read_staged(
    chunks: Chunks,
    topic: Topic,
    refs: Sequence[ChunkRef],
    about: tuple[CollectionId, Description, Mapping[str, bytes]],
) -> Iterator[pa.Table]:
    """Yield the rows of chunks that the caller has written, in the engine's types, one by one.

    `about` is the collection, its description, and the headers of its chunks.

    Errors: WrongRows, also if a chunk does not match its reference; Uncommitted, TooLarge.
    """
    id_, description, headers = about
    for some in (refs[start : start + AT_ONCE] for start in range(0, len(refs), AT_ONCE)):
        for ref, record in zip(some, fetch_committed(chunks, topic, id_, some), strict=True):
            check_record(id_, ref, record, described(headers, record.body, ref.rows))
            yield rows_of(id_, ref, record.body, description)


def fetch_committed(
    chunks: Chunks, topic: Topic, id_: CollectionId, refs: Sequence[ChunkRef]
) -> list[ChunkRecord]:
    """Return the committed records. Errors: WrongRows, Uncommitted."""
    try:
        return chunks.fetch_committed(topic, refs)
    except Corrupt as cause:
        for ref in refs:
            check_committed(chunks, topic, id_, ref)
        raise WrongRows(id_, str(cause)) from cause


def check_committed(chunks: Chunks, topic: Topic, id_: CollectionId, ref: ChunkRef) -> None:
    """Errors: Uncommitted if the record is visible with read_uncommitted only.

    WrongRows if it does not exist at all.
    """
    try:
        chunks.fetch(topic, [ref])
    except Corrupt as cause:  # of the caller's making, not of the log's
        raise WrongRows(id_, str(cause)) from cause
    try:
        chunks.fetch_committed(topic, [ref])
    except Corrupt as cause:
        raise Uncommitted(id_, place(ref)) from cause


def check_record(
    id_: CollectionId, ref: ChunkRef, record: ChunkRecord, expected: Mapping[str, bytes]
) -> None:
    """Check size and headers of a record. Errors: WrongRows."""
    if len(record.body) != ref.size:
        raise WrongRows(
            id_, f"chunk {place(ref)}: expected {ref.size} bytes, actual {len(record.body)}"
        )
    for name, value in expected.items():
        values = [value for key, value in record.headers if key == name]
        if values != [value]:
            raise WrongRows(
                id_,
                f"chunk {place(ref)}: expected header {name} once, {value!r}, actual"
                f" {brief(str(values))}",
            )


def rows_of(
    id_: CollectionId, ref: ChunkRef, body: bytes, description: Description
) -> pa.Table:
    """Return the updates of a chunk: c0 .. cn, time, diff.

    Errors: WrongRows, also for a chunk with errors and for bytes that are no chunk; TooLarge.
    """
    try:
        schema, sheets = chunk.opened(body, LARGEST_ROWS)
    except TooMuch as cause:
        what = f"{cause.what} of chunk {place(ref)} of collection {id_}"
        raise TooLarge(what, cause.most, cause.actual) from cause
    except Corrupt as cause:
        raise WrongRows(id_, f"chunk {place(ref)}: {cause}") from cause
    rows = sum(sheet.num_rows for sheet in sheets)
    if rows != ref.rows:
        raise WrongRows(id_, f"chunk {place(ref)}: expected {ref.rows} rows, actual {rows}")
    if any(sheet.column("data").null_count for sheet in sheets):
        raise WrongRows(id_, f"chunk {place(ref)}: expected no NULL in column data")
    if any(sheet.column("error").null_count < sheet.num_rows for sheet in sheets):
        raise WrongRows(id_, f"chunk {place(ref)}: expected no errors, actual some")
    return conform(id_, table(id_, ref, schema, sheets, description), description)


def table(
    id_: CollectionId,
    ref: ChunkRef,
    schema: pa.Schema,
    sheets: Sequence[pa.RecordBatch],
    description: Description,
) -> pa.Table:
    """The updates under the user's column names. Errors: WrongRows for other names or types."""
    data = schema.field("data").type
    names = [field.name for field in data.fields]
    if names != list(description.names):
        raise WrongRows(
            id_,
            f"chunk {place(ref)}: expected columns {brief(str(list(description.names)))} in"
            f" data, actual {brief(str(names))}",
        )
    engine = chunk.contents_schema(data)
    wanted = arrow_schema(description.types)
    for name, actual, own in zip(names, engine.types, wanted.types, strict=False):
        if actual != chunk.uniform(own):
            raise WrongRows(
                id_,
                f"chunk {place(ref)}: column {name}: expected {own} as Slackwater writes it,"
                f" actual {brief(str(actual))}: other types are taken inline only",
            )
    parts = [part for sheet in sheets for part in chunk.engine_updates(sheet, engine)]
    return pa.Table.from_batches(parts, engine).rename_columns([*names, "time", "diff"])


def place(ref: ChunkRef) -> str:
    """Return the place of a chunk for a message."""
    return f"{ref.partition}@{ref.offset}"
