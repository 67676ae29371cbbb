"""Cuts transactions of several collections at one common time. Pure.

Each bound collection is read interval by interval, up to its upper; a transaction can be cut up
to the least frontier that all have been read to. It ends at one frontier f for all bindings
that take part: after its commit each of them has its contents at f - 1. Within it changes are
combined by key: only the last row of a key is written, and a key with the same row before and
after is left out. A binding of delta updates has every change instead, at its time.

A binding stalls while its collection is in error, or a declared key is violated (two rows of
one key, or a null in one). It stays at the last time at which it had contents, is reported with
the reason, and does not delay the others; when the cause is gone it moves to the frontier of
the others.

Keys are compared by a 64-bit hash, as `streams.storage.sinks.sink` does: two keys of equal hash
stall a binding, and never write a wrong row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from connectors.runtime.error_rows import NO_ERRORS, advanced, at_times, times_of
from connectors.runtime.ranges import Reach, raised
from streams.errors import Corrupt
from streams.ids import Timestamp
from streams.storage.description import Description
from streams.storage.read.soundness import said_of
from streams.storage.sinks.sink import (
    NO_KEYS,
    ErrorUpdates,
    Flags,
    Hashes,
    ImpossibleRetraction,
    Integers,
    SoundTimes,
    assign_sound_times,
    changes,
    is_among,
)
from streams.trace.columns import int64
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import advance, consolidate, flatten, hash_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCollection:
    """A bound collection: `name` is that of its place, as messages say it."""

    name: str
    description: Description
    keys: tuple[str, ...]
    delta: bool = False

    @property
    def places(self) -> list[int]:
        """The positions of the key columns."""
        return [self.description.names.index(key) for key in self.keys]

    @property
    def key_columns(self) -> list[tuple[str, str]]:
        """Names and types of the key's columns; one of delta updates may have none."""
        columns = dict(self.description.columns)
        return [(key, columns[key]) for key in self.keys if key in columns]

    @property
    def schema(self) -> pa.Schema:
        """The schema of its updates."""
        return arrow_schema(self.description.types)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a binding: all changes before `frontier` are written.

    One that was not begun has nothing yet, and its contents at `frontier` come first. `live`
    are the hashes of the keys that have a row, sorted. Parts of the keys may be written further
    than others: `reaches` has all of them then, and none is behind `frontier`; those that have
    nothing yet get their contents at it. What is taken of each begins where it is.
    """

    frontier: Timestamp
    is_begun: bool
    live: Hashes = field(default_factory=lambda: NO_KEYS)
    reaches: tuple[Reach, ...] = ()

    @property
    def furthest(self) -> Timestamp:
        """Up to where the part is written that is written furthest."""
        return max(
            [self.frontier, *(reach.frontier or self.frontier for reach in self.reaches)]
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that a binding writes. `exists` and `deletes` have one entry per row.

    Shape: `rows` has c0 .. cn, time, diff, one row a key, or one a change of delta updates.
    `before` are the previous rows, one for each row that exists, in the same order.
    """

    rows: pa.RecordBatch
    exists: Flags
    deletes: Flags
    before: pa.RecordBatch

    @property
    def count(self) -> int:
        """The number of rows it writes."""
        return int(self.rows.num_rows)

    def pieces(self) -> "Iterator[Part]":
        """The pieces that fit in memory: the part itself."""
        yield self

    def between(self, begin: int, end: int) -> "Part":
        """The rows from one to before another."""
        first = int(self.exists[:begin].sum())
        count = int(self.exists[begin:end].sum())
        is_keyed = self.before.num_rows == int(self.exists.sum())
        assert is_keyed, "each row that exists has one before"
        return Part(
            self.rows.slice(begin, end - begin),
            self.exists[begin:end],
            self.deletes[begin:end],
            self.before.slice(first, count),
        )


class Written(Protocol):
    """The part of a binding in a transaction."""

    @property
    def count(self) -> int:
        """The number of rows."""

    def pieces(self) -> Iterator[Part]:
        """In pieces that memory holds."""


class SpilledPart(Protocol):
    """A part on disk: `connectors.runtime.spill`."""

    upper: Timestamp
    """All changes before it are in it, and the binding moves to nowhere else."""

    @property
    def reason(self) -> str:
        """Why the binding has no contents there; empty if it has."""

    @property
    def count(self) -> int:
        """The number of rows it writes."""

    @property
    def live(self) -> Hashes:
        """`Position.live` after the commit."""

    def pieces(self) -> Iterator[Part]:
        """The pieces that fit in memory."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A unit of writing: a part for each binding, None where it does not move."""

    frontier: Timestamp
    parts: tuple[Written | None, ...]
    positions: tuple[Position, ...]
    """The positions of all bindings after the commit."""
    stalls: Mapping[str, str]
    """The stalled bindings, with the reasons."""

    @property
    def rows(self) -> int:
        """The number of rows it writes."""
        return sum(part.count for part in self.parts if part is not None)

    @property
    def large(self) -> frozenset[int]:
        """The bindings whose part is on disk."""
        return frozenset(
            index
            for index, part in enumerate(self.parts)
            if part is not None and not isinstance(part, Part)
        )


@dataclass(slots=True)
class _Pending:
    """The updates of a binding that were read and not cut, with the hashes of their keys."""

    updates: pa.RecordBatch
    hashes: Hashes
    errors: pa.Table
    upper: Timestamp
    large: SpilledPart | None = None
    """Instead of updates."""


@dataclass(frozen=True, slots=True)
class _Stand:
    """How far a binding can move within a bound, and why no further."""

    frontier: Timestamp
    reason: str


class TransactionCutter:
    """The state between collections and transactions. One thread."""

    def __init__(
        self,
        bindings: Sequence[BoundCollection],
        positions: Sequence[Position],
        kernel: Kernel,
        most_rows: int = 1 << 20,
    ) -> None:
        self.bindings, self._kernel, self._most = tuple(bindings), kernel, most_rows
        self.positions = tuple(positions)
        self.stalls: Mapping[str, str] = {}
        """The bindings stalled at the last cut, with the reasons."""
        self._pending = [
            _Pending(flatten([], bound.schema), NO_KEYS, NO_ERRORS, at.frontier)
            for bound, at in zip(self.bindings, self.positions, strict=True)
        ]

    def upper(self, index: int) -> Timestamp:
        """A binding was taken up to here; its next interval begins here."""
        return self._pending[index].upper

    def rows(self, index: int) -> int:
        """The number of waiting updates of a binding."""
        return len(int64(self._pending[index].updates.column("time")))

    @property
    def large_upper(self) -> Timestamp | None:
        """The end of the next transaction, if a binding waits on disk."""
        uppers = [pending.large.upper for pending in self._pending if pending.large is not None]
        return max(uppers, default=None)

    def is_large(self, index: int) -> bool:
        """Whether a binding waits on disk."""
        return self._pending[index].large is not None

    def spill(self, index: int, large: SpilledPart) -> None:
        """The move of a binding with nothing in memory: by its spill, or none."""
        pending = self._pending[index]
        assert not pending.updates.num_rows, "it was added to what is on disk"
        self._pending[index] = _Pending(
            pending.updates, pending.hashes, NO_ERRORS, large.upper, large
        )

    def drain(self, index: int) -> tuple[pa.RecordBatch, pa.Table]:
        """Remove and return the pending updates and errors of a binding, to spill them."""
        bound, pending = self.bindings[index], self._pending[index]
        self._pending[index] = _Pending(
            flatten([], bound.schema), NO_KEYS, NO_ERRORS, pending.upper
        )
        return pending.updates, pending.errors

    def whole(self, upper: Timestamp) -> tuple[Part, Hashes] | str:
        """Take a binding's updates before `upper`, or say why it has no contents there.

        Errors: as `cut`.
        """
        (stand,) = self._stands(upper)
        return stand.reason or self._part(0, upper)

    def take(self, index: int, updates: pa.Table, errors: pa.Table, upper: Timestamp) -> None:
        """Take the changes of a binding from where it was taken up to, before `upper`.

        Shape: `updates` c0 .. cn, time, diff; `errors` error, time, diff. The first ones of a
        binding that was not begun have the whole past; its times count as its frontier.
        """
        bound, pending = self.bindings[index], self._pending[index]
        start = self.positions[index].frontier
        batch = advance(flatten([updates], bound.schema), start)
        if pending.updates.num_rows:
            batch = flatten([pending.updates, batch], bound.schema)
        more = batch.slice(pending.updates.num_rows)
        hashes = pending.hashes
        if not bound.delta:
            fresh = hash_columns(more, bound.places, self._kernel)
            hashes = np.concatenate([hashes, fresh]) if len(hashes) else fresh
        wrong = pa.concat_tables([pending.errors, advanced(errors, start)])
        self._pending[index] = _Pending(batch, hashes, wrong, upper)

    def cut(self, aim: Timestamp | None = None) -> Transaction | None:
        """The next transaction, exactly up to `aim` if it is given; None if no binding moves.

        Errors: Corrupt if a collection removes rows that it does not have.
        """
        aim = self.large_upper or aim
        if aim is not None:
            is_there = min(pending.upper for pending in self._pending) >= aim
            return self._cut_within(aim) if is_there else None
        upper = Timestamp(min(pending.upper for pending in self._pending))
        bounded = self._bounded(upper)
        if bounded < upper and (transaction := self._cut_within(bounded)) is not None:
            return transaction
        return self._cut_within(upper)

    def _cut_within(self, upper: Timestamp) -> Transaction | None:
        stands = self._stands(upper)
        self.stalls = {
            bound.name: stand.reason
            for bound, stand in zip(self.bindings, stands, strict=True)
            if stand.reason
        }
        self._compact(upper, stands)
        while True:
            moving = [
                stand.frontier
                for stand, at in zip(stands, self.positions, strict=True)
                if stand.frontier > at.frontier
            ]
            if not moving:
                return None
            if min(moving) == upper:
                return self._cut(upper, stands)
            upper = min(moving)
            stands = self._stands(upper)

    def _stands(self, upper: Timestamp) -> list[_Stand]:
        stands = [self._stand(index, upper) for index in range(len(self.bindings))]
        if upper != self.large_upper:
            return stands
        # what is on disk can move to the bound alone: no other moves to a time before it
        return [
            stand if stand.frontier == upper else _Stand(at.frontier, stand.reason)
            for stand, at in zip(stands, self.positions, strict=True)
        ]

    def _bounded(self, upper: Timestamp) -> Timestamp:
        """The last frontier below which there are not too many updates, but one time's."""
        common = max(position.furthest for position in self.positions)
        times = np.concatenate(
            [int64(pending.updates.column("time")) for pending in self._pending]
        )
        times = np.maximum(times[times < upper], common)
        if len(times) <= self._most:
            return upper
        bound = int(np.partition(times, self._most)[self._most])
        return Timestamp(min(upper, bound if bound > times.min() else bound + 1))

    def _stand(self, index: int, upper: Timestamp) -> _Stand:
        """Up to where a binding has contents, within `upper`."""
        bound, pending, at = self.bindings[index], self._pending[index], self.positions[index]
        reason = pending.large.reason if pending.large is not None else ""
        if upper <= at.frontier or reason:
            return _Stand(at.frontier, reason)
        inside = int64(pending.updates.column("time")) < upper
        nulls = self._null_keys(bound, pending.updates)
        places = np.flatnonzero(inside)
        if bound.delta:
            places = places[:0]
        # a row whose key has a null counts twice: at no time is it one row of its key
        counted = np.concatenate([places, places[nulls[places]]])
        settled = self._settled(pending, at.live, counted, upper)
        if settled.stall is None:
            return _Stand(upper, "")
        row = None if settled.stall.row is None else int(counted[settled.stall.row])
        time = settled.stall.time
        if row is None:
            return _Stand(time, said_of(pending.errors, time, Timestamp(upper - 1)))
        key = self._key_text(bound, pending.updates.slice(row, 1))
        if nulls[row]:
            return _Stand(time, f"key {key} is null at {time}")
        count = settled.stall.count
        if count < 0:
            return _Stand(time, f"the row with key {key} goes at {time}, but is not there")
        return _Stand(time, f"key {key} is not unique: {count} rows have it at {time}")

    def _settled(
        self, pending: _Pending, live: Hashes, counted: Integers, upper: Timestamp
    ) -> SoundTimes:
        wrong = pending.errors.filter(pa.array(times_of(pending.errors) < upper))
        errors = ErrorUpdates(
            hash_columns(wrong, [0], self._kernel),
            times_of(wrong),
            wrong.column("diff").to_numpy(),
        )
        hashes = pending.hashes if len(pending.hashes) else NO_KEYS
        return assign_sound_times(
            live,
            hashes[counted],
            int64(pending.updates.column("time"))[counted],
            int64(pending.updates.column("diff"))[counted],
            errors,
        )

    def _cut(self, upper: Timestamp, stands: Sequence[_Stand]) -> Transaction:
        parts: list[Written | None] = []
        positions = list(self.positions)
        for index, stand in enumerate(stands):
            if stand.frontier < upper or positions[index].frontier >= upper:
                parts.append(None)
                continue
            large = self._pending[index].large
            part, live = (large, large.live) if large else self._part(index, upper)
            if large is not None:
                self.drain(index)
            parts.append(part)
            reaches = raised(positions[index].reaches, upper)
            positions[index] = Position(upper, is_begun=True, live=live, reaches=reaches)
        self.positions = tuple(positions)
        return Transaction(upper, tuple(parts), self.positions, self.stalls)

    def _part(self, index: int, upper: Timestamp) -> tuple[Part, Hashes]:
        """Split the waiting updates at `upper`."""
        bound, pending, at = self.bindings[index], self._pending[index], self.positions[index]
        inside = int64(pending.updates.column("time")) < upper
        now = pending.updates.filter(pa.array(inside))
        stays = ~inside
        self._pending[index] = _Pending(
            pending.updates.filter(pa.array(stays)),
            pending.hashes if bound.delta else pending.hashes[stays],
            pending.errors.filter(pa.array(times_of(pending.errors) >= upper)),
            pending.upper,
        )
        if bound.delta:
            rows = consolidate(now, self._kernel)
            hashes = hash_columns(rows, range(rows.num_columns - 2), self._kernel)
            order = np.lexsort(
                (hashes, int64(rows.column("time")))
            )  # the same in every session
            flags = np.zeros(rows.num_rows, np.bool_)
            return Part(rows.take(pa.array(order)), flags, flags, rows.slice(0, 0)), at.live
        return self._combined(
            bound, consolidate(advance(now, upper - 1), self._kernel), at.live
        )

    def _combined(
        self, bound: BoundCollection, net: pa.RecordBatch, live: Hashes
    ) -> tuple[Part, Hashes]:
        """One row per key, from updates at one time."""
        hashes = hash_columns(net, bound.places, self._kernel)
        diffs = int64(net.column("diff"))
        decided = changes(live, hashes, int64(net.column("time")), diffs)
        if isinstance(decided, ImpossibleRetraction):
            key = self._key_text(bound, net.slice(decided.row, 1))
            raise Corrupt(f"{bound.name}: the row with key {key} is deleted but does not exist")
        gone = np.flatnonzero(diffs < 0)
        before = gone[np.argsort(hashes[gone], kind="stable")]
        exists = is_among(live, hashes[decided.rows])
        part = Part(
            net.take(pa.array(decided.rows)),
            exists,
            decided.tombstones,
            net.take(pa.array(before)),
        )
        return part, decided.live

    def _compact(self, upper: Timestamp, stands: Sequence[_Stand]) -> None:
        """Bound the pending updates of stalled bindings.

        These have no contents at `upper` - 1, so their updates before it can only be written
        as a sum. The sum is kept at their frontier, at which they have no contents either.
        """
        for index, (bound, stand) in enumerate(zip(self.bindings, stands, strict=True)):
            pending, start = self._pending[index], self.positions[index].frontier
            is_still = stand.reason and stand.frontier == start and not bound.delta
            if not is_still or pending.updates.num_rows <= self._most:
                continue
            times = int64(pending.updates.column("time"))
            same = np.where(times < upper, start, times)
            arrays = [
                *pending.updates.columns[:-2],
                pa.array(same),
                pending.updates.columns[-1],
            ]
            moved = pa.RecordBatch.from_arrays(arrays, schema=bound.schema)
            rows = consolidate(moved, self._kernel)
            hashes = hash_columns(rows, bound.places, self._kernel)
            at = times_of(pending.errors)
            wrong = at_times(pending.errors, np.where(at < upper, start, at))
            self._pending[index] = _Pending(rows, hashes, wrong, pending.upper)

    def _null_keys(self, bound: BoundCollection, updates: pa.RecordBatch) -> Flags:
        nulls = np.zeros(updates.num_rows, np.bool_)
        for place in () if bound.delta else bound.places:
            column = updates.column(place)
            if column.null_count:
                nulls |= column.is_null().to_numpy(zero_copy_only=False)
        return nulls

    def _key_text(self, bound: BoundCollection, row: pa.RecordBatch) -> str:
        data = pa.Table.from_batches([row.select(range(row.num_columns - 2))])
        selected = ", ".join(f"c{place}::VARCHAR" for place in bound.places)
        tables = {"changed": (data, bound.description.types)}
        texts = self._kernel.query_as(f"SELECT {selected} FROM changed", tables)
        pairs = zip(bound.keys, texts.columns, strict=True)
        return "(" + ", ".join(f"{name} = {value[0].as_py()}" for name, value in pairs) + ")"
