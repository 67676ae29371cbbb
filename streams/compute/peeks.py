"""Peeks: reads of one collection at one time, which replicas answer.

A replica waits until its target is complete at the time, and then answers once: the rows, or
why there are none. It reads in the order that the fields have here: `lookup`, `plan`, `order`,
`offset`, `limit`, `project`. The answer is an error

- if since has passed the time, so that what the target held then is not known any more;
- else if the target, or an expression of the plan over a row, is in error at the time;
- else if the target holds a row a negative number of times;
- else if the rows have more than `most_bytes` bytes.

A peek with `files` is a copy-to: the rows go to a directory, which is empty or does not exist,
and the answer says which files there are. They become visible together and at most once,
however many replicas and processes try: one that finds the directory written for this uuid
answers what is there. A `CancelPeek` is answered with `PeekCanceled`, unless the peek has been
answered already.
"""

from dataclasses import dataclass

from streams.ids import CollectionId, Timestamp
from streams.plan.physical import SortKey

MOST_COPIED = 256 << 20
"""Bytes of the rows of a copy-to, in memory."""


@dataclass(frozen=True, slots=True)
class PeekTarget:
    """What is read: a collection from its shard in `group`, or by an index on it."""

    collection: CollectionId
    group: str
    index: CollectionId | None = None


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Only rows whose `columns` equal one of the keys, as SQL's `=` has it: NULL never does.

    `keys` are the bytes of an Arrow IPC stream with a column for each of `columns`, in their
    order and of their types.
    """

    columns: tuple[int, ...]
    keys: bytes


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """Parquet files of at most about `file_bytes` bytes in the directory that `uri` names.

    `names` are those of the columns that are answered. A replica writes below the URIs of its
    own settings, which have the credentials.
    """

    uri: str
    names: tuple[str, ...]
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Command: answer with the contents of a target at a time.

    `plan` is the JSON of a `streams.plan.physical.Dataflow` over the target as its one import,
    of `Source` and `Linear` nodes alone. `order` is over the plan's columns; rows that are
    equal in it are ordered by `project`, the plan's columns that are answered. `limit` None is
    all. `replica` names the one that answers; empty: every replica does, once. With `files` the
    rows go there, and `most_bytes` is `MOST_COPIED`.
    """

    uuid: str
    target: PeekTarget
    time: Timestamp
    plan: str
    project: tuple[int, ...]
    most_bytes: int
    lookup: KeyLookup | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    replica: str = ""
    files: CopyFiles | None = None


@dataclass(frozen=True, slots=True)
class CancelPeek:
    """Command: the answer is not wanted any more. Ignored if it was given."""

    uuid: str


@dataclass(frozen=True, slots=True)
class PeekRows:
    """The rows, in order, each as often as it is there: an Arrow IPC stream of `c0 .. cn`."""

    count: int
    rows: bytes


@dataclass(frozen=True, slots=True)
class PeekFiles:
    """The files that hold the rows, in order: the rows and the bytes of each."""

    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PeekError:
    """Why there is no answer."""

    message: str


@dataclass(frozen=True, slots=True)
class PeekCanceled:
    """The peek was canceled before it was answered."""


PeekOutcome = PeekRows | PeekFiles | PeekError | PeekCanceled


@dataclass(frozen=True, slots=True)
class PeekResponse:
    """Response: the one answer of a replica to a peek; `is_copy` if that has files."""

    uuid: str
    outcome: PeekOutcome
    is_copy: bool = False
