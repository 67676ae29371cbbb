"""The messages of a transaction stream, named by phase.

A transaction is: loads, a flush that ends them, stores, a commit, and the acknowledgement that
the driver's log has committed too. A request is answered by its participle; Load and Store are
not answered one by one. What the protocol of 2021 calls Prepare and Commit is Flush and
StartCommit here, as in the protocol of today: where each checkpoint travels differs, and is the
business of a codec.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.blobs import Blobs
from schemas.flow_columns import Elements, pack_columns, unpack_columns
from schemas.flow_pb2 import MaterializationSpec
from schemas.flow_tuple import Element


@dataclass(frozen=True, slots=True)
class Extensions:
    """Extensions of the 2021 protocol."""

    acknowledge: bool = False
    delete: bool = False
    subranges: bool = False

    def beyond(self, other: "Extensions") -> list[str]:
        """The names of those that `other` does not have."""
        names = ("acknowledge", "delete", "subranges")
        return [name for name in names if getattr(self, name) and not getattr(other, name)]


class Tuples:
    """Packed tuples, and their elements, which are unpacked once."""

    __slots__ = ("_columns", "packed")

    def __init__(self, packed: Sequence[bytes]) -> None:
        self.packed = Blobs.of(packed)
        self._columns: list[Elements] | None = None

    @classmethod
    def of(cls, rows: Sequence[Sequence[Element]]) -> "Tuples":
        """Pack rows of one width. Errors: MalformedTuple."""
        return cls.of_columns(list(map(Elements.of, zip(*rows, strict=True))), len(rows))

    @classmethod
    def of_columns(cls, columns: Sequence[Elements], length: int) -> "Tuples":
        """Pack rows that are given by column; `length` says how many."""
        tuples = cls(pack_columns(columns, length))
        tuples._columns = list(columns)
        return tuples

    def columns(self, width: int) -> Sequence[Elements]:
        """The elements. Errors: MalformedTuple if one is malformed or has another width."""
        if self._columns is None or len(self._columns) != width:
            self._columns = unpack_columns(self.packed, width)
        return self._columns

    def rows(self, width: int) -> list[tuple[Element, ...]]:
        """The elements of each tuple. Errors: as `columns`."""
        columns = self.columns(width)
        if not columns:
            return [()] * len(self)
        return list(zip(*(column.objects() for column in columns), strict=True))

    def __len__(self) -> int:
        return len(self.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tuples) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return f"Tuples({self.packed!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Begin: the task as it was applied, the range of key hashes, both ends inclusive."""

    materialization: MaterializationSpec
    version: str
    key_begin: int = 0
    key_end: int = 0xFFFFFFFF
    driver_checkpoint: bytes = b""
    """JSON; empty if there is none."""
    extensions: Extensions = field(default_factory=Extensions)


@dataclass(frozen=True, slots=True)
class Subrange:
    """A part of a key range, both ends inclusive, and the checkpoint that it stands at."""

    key_begin: int
    key_end: int
    checkpoint: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """The checkpoint that the endpoint holds; empty if the driver's own counts.

    If parts of the range stand apart, as after another division of the keys, `subranges` has
    all of them in order, and the checkpoint is empty.
    """

    checkpoint: bytes = b""
    subranges: tuple[Subrange, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The driver's log has recorded the commit."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The endpoint has committed durably."""


@dataclass(frozen=True, slots=True)
class Load:
    """Return the documents of these keys, where there are any."""

    binding: int
    keys: Tuples


@dataclass(frozen=True, slots=True)
class Loaded:
    """Documents that were asked for, as JSON."""

    binding: int
    documents: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Flush:
    """No more loads in this transaction. `checkpoint` is what the transaction reads through."""

    checkpoint: bytes


@dataclass(frozen=True, slots=True)
class Flushed:
    """All documents that were asked for were returned.

    `checkpoint` is the connector's own, as JSON, for the driver to keep: it replaces the one
    before, empty clears it, and a patch is merged by RFC 7396.
    """

    checkpoint: bytes = b""
    patch: bool = False


class StoredDocument(NamedTuple):
    """A document of a Store, for endpoints that take them one by one."""

    key: bytes
    """Packed."""
    document: bytes
    exists: bool
    deletes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Documents to write, each with its key, values, whether it is there already, and goes."""

    binding: int
    keys: Tuples
    values: Tuples
    documents: Sequence[bytes]
    exists: Sequence[bool]
    deletes: Sequence[bool] = ()
    """Empty: none of them."""

    def rows(self) -> Iterator[StoredDocument]:
        """The documents one by one."""
        deletes = self.deletes or [False] * len(self.exists)
        columns = (self.keys.packed, self.documents, self.exists, deletes)
        return map(StoredDocument._make, zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class StartCommit:
    """No more stores in this transaction: commit it."""


@dataclass(frozen=True, slots=True)
class StartedCommit:
    """The transaction is committed, as far as the endpoint can without the driver's log."""


Request = Open | Acknowledge | Load | Flush | Store | StartCommit
Response = Opened | Acknowledged | Loaded | Flushed | StartedCommit
Message = Request | Response
