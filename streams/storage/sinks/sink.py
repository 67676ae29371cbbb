"""Decides the records of an output topic from the updates of an interval. Pure.

An output topic holds one record per change of a key: the row that the key has from a time on,
or a tombstone from the time at which it has none. Let count(k, t) be the number of rows with
key k in the collection at time t, and say that t is *sound* when there is no error in the
collection at t and count(k, t) is 0 or 1 for every key. Then

    the records at a sound time t turn the rows of the greatest sound time before t,
    key by key, into the rows at t

and there are no records at any other time: a change at a time that is not sound appears at the
next sound time. Until then the sink is *stalled*: it waits, reports why, and loses nothing. The
records of an interval are ordered by (time, hash of the key), which depends on the contents
alone, so a writer that died in the middle of an interval can resume where it stopped.

Keys are compared by a 64-bit hash. Two keys of equal hash would stall a sink, because their
counts add up; they never make it write a wrong record.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.ids import Timestamp
from streams.storage.sinks.orders import by_hash_and_time, by_hash_time_and_diff, by_value
from streams.trace.exact.diffs import LARGEST, saturated

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NO_KEYS: Hashes = np.empty(0, np.uint64)
NO_FLAGS: Flags = np.empty(0, np.bool_)


@dataclass(frozen=True, slots=True)
class Stall:
    """Why the times from `time` on are not sound.

    `row` is the position of an update with a repeated key; None if the collection has an error.
    """

    time: Timestamp
    row: int | None
    count: int


@dataclass(frozen=True, slots=True)
class SoundTimes:
    """The sound time at which each update takes effect; -1 if there is none yet.

    `stall` is set if the interval ends with times that are not sound.
    """

    times: Integers
    stall: Stall | None


@dataclass(frozen=True, slots=True)
class SinkChanges:
    """The records to write, in order: the update with the row; whether it is a tombstone.

    `live` are the hashes of the keys that have a row afterwards, sorted.
    """

    rows: Integers
    tombstones: Flags
    live: Hashes


@dataclass(frozen=True, slots=True)
class ImpossibleRetraction:
    """The updates remove a row that does not exist; `row` is the position of one of them."""

    row: int


def assign_sound_times(
    live: Hashes,
    hashes: Hashes,
    times: Integers,
    diffs: Integers,
    errors: "ErrorUpdates",
) -> SoundTimes:
    """Assign each update of an interval to the sound time at which it takes effect.

    Shape: `live` are the sorted hashes of the keys that had a row at the last sound time; each
    update of the interval gives the hash of its key, its time and its diff, in any order. There
    is no error at the last sound time before the interval.
    """
    order = by_hash_and_time(hashes, times)
    groups = _Groups.of(hashes[order], times[order])
    counts = groups.counts(diffs[order], live)
    bad = (counts != 0) & (counts != 1)
    all_times = np.unique(np.concatenate([times, errors.times]))
    in_error = errors.alive(all_times)
    sound = (_how_many(groups, bad, all_times) == 0) & (in_error == 0)
    settled = _next_of(all_times[sound], times)
    if len(sound) == 0 or sound[-1]:
        return SoundTimes(settled, None)
    last = int(np.flatnonzero(sound)[-1]) if sound.any() else -1
    stalled_at = int(all_times[last + 1])
    if in_error[-1] != 0:
        return SoundTimes(settled, Stall(Timestamp(stalled_at), None, int(in_error[-1])))
    ends = np.append(groups.first_of_hash[1:], True)
    offender = int(np.flatnonzero(bad & ends)[0])
    row = int(order[groups.starts[offender]])
    return SoundTimes(settled, Stall(Timestamp(stalled_at), row, int(counts[offender])))


def changes(
    live: Hashes, hashes: Hashes, times: Integers, diffs: Integers
) -> SinkChanges | ImpossibleRetraction:
    """Return the records for updates at sound times.

    Shape: as `assign_sound_times`, consolidated: one entry for each row and time, no diff of 0.
    """
    if len(hashes) == 0:
        return SinkChanges(np.empty(0, np.int64), NO_FLAGS, live)
    order = by_hash_time_and_diff(hashes, times, diffs)
    groups = _Groups.of(hashes[order], times[order])
    sorted_diffs = diffs[order]
    ends = np.append(groups.starts, len(order))[1:] - 1
    came, went = (
        saturated(sorted_diffs * some, groups.starts)[ends]
        for some in (sorted_diffs > 0, sorted_diffs < 0)
    )
    counts = groups.counts(sorted_diffs, live)
    before = np.where(groups.first_of_hash, is_among(live, groups.hashes), np.roll(counts, 1))
    wrong = (came > 1) | (went < -before) | (counts < 0) | (counts > 1)
    if wrong.any():
        return ImpossibleRetraction(int(order[groups.starts[int(np.flatnonzero(wrong)[0])]]))
    # The one row that came has the greatest diff of its group, so it stands last there; where
    # none came, the last row is the one that went.
    rows = order[ends]
    by_time = by_value(groups.times)  # of one time by hash, as they are
    last_of_hash = np.append(groups.first_of_hash[1:], True)
    touched, stays = groups.hashes[last_of_hash], counts[last_of_hash] == 1
    after = update_live_keys(live, touched, is_among(live, touched), stays)
    return SinkChanges(rows[by_time].astype(np.int64), (came == 0)[by_time], after)


def update_live_keys(live: Hashes, touched: Hashes, was_there: Flags, stays: Flags) -> Hashes:
    """The live keys after some of them were touched; itself where none comes and none goes.

    There may be as many as a table has rows: each copy counts.
    """
    goes, comes = touched[was_there & ~stays], touched[stays & ~was_there]
    if len(goes):
        live = np.delete(live, np.searchsorted(live, goes))
    if len(comes):
        live = np.insert(live, np.searchsorted(live, comes), comes)
    return live


def is_among(ordered: Hashes, hashes: Hashes) -> Flags:
    """Which hashes are among sorted ones: few of them are looked up in many."""
    if not len(ordered):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    flags: Flags = ordered[places] == hashes
    return flags


@dataclass(frozen=True, slots=True)
class ErrorUpdates:
    """The errors of an interval: the hash of the error, time and diff, in any order.

    Errors are counted separately: one that was retracted too often is an error, and does not
    cancel another one.
    """

    hashes: Hashes
    times: Integers
    diffs: Integers

    def alive(self, all_times: Integers) -> Integers:
        """Return the number of distinct errors from each of the times on."""
        order = by_hash_and_time(self.hashes, self.times)
        groups = _Groups.of(self.hashes[order], self.times[order])
        counts = groups.counts(self.diffs[order], NO_KEYS)
        return _how_many(groups, counts != 0, all_times)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of equal (hash, time) in sorted updates: starts, and which group begins a hash."""

    starts: Integers
    hashes: Hashes
    times: Integers
    first_of_hash: Flags

    @staticmethod
    def of(hashes: Hashes, times: Integers) -> "_Groups":
        """Return the groups of updates sorted by hash, then time."""
        if len(hashes) == 0:
            return _Groups(np.empty(0, np.int64), NO_KEYS, np.empty(0, np.int64), NO_FLAGS)
        new_hash = np.append(True, hashes[1:] != hashes[:-1])
        new_group = new_hash | np.append(True, times[1:] != times[:-1])
        starts = np.flatnonzero(new_group)
        return _Groups(starts, hashes[starts], times[starts], new_hash[starts])

    def counts(self, diffs: Integers, live: Hashes) -> Integers:
        """Return the multiplicity of each group's hash from its time on, in 64 bits.

        Shape: `diffs` are those of the sorted updates; hashes that are `live` were there once.
        """
        if not len(diffs):
            return diffs
        begins = self.starts[self.first_of_hash]
        ends = np.append(self.starts, len(diffs))[1:] - 1
        counts: Integers = saturated(diffs, begins)[ends]
        counts += is_among(live, self.hashes) & (counts < LARGEST)
        return counts


def _how_many(groups: _Groups, holds: Flags, all_times: Integers) -> Integers:
    """Return for how many hashes a condition is true from each of the times on.

    Shape: `holds` has one entry a group, true from the group's time on.
    """
    before = np.roll(holds, 1) & ~groups.first_of_hash
    change = holds.astype(np.int64) - before.astype(np.int64)
    at = np.searchsorted(all_times, groups.times)
    counts = np.cumsum(np.bincount(at, weights=change, minlength=len(all_times)))
    return counts.astype(np.int64)


def _next_of(sound: Integers, times: Integers) -> Integers:
    """Return the least sound time at or after each time; -1 if there is none."""
    at = np.searchsorted(sound, times)
    return np.where(at < len(sound), np.append(sound, -1)[at], -1)
