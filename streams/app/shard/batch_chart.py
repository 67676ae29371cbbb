"""A shard's batches drawn over time (across) and size (down), in characters. Pure.

A batch fills the cells of its size class from its lower to its upper; a cell's shade says how
many batches it stands for. A fresh shard is a dense row of small batches; compaction turns the
left of it into few large ones, further up.

     ≥ 1 MiB │█████████           │ 1 batch
    ≥ 64 KiB │         ███        │ 1 batch
     < 4 KiB │            ░░▒▒▒▓▓█│ 140 batches
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from streams.app.shard.formatting import bytes_text
from streams.progress import Antichain
from streams.storage.log.batches import Batch

SHADES = ((1, "█"), (4, "▓"), (16, "▒"))
MANY = "░"
"""One batch is drawn solid; the more batches share a cell, the more it crumbles."""

EMPTY_CLASS = -1
_FIRST_BITS, _BITS = 12, 4  # classes: below 4 KiB, then by factors of 16


@dataclass(frozen=True, slots=True)
class Axis:
    """Times [start, end) in `width` columns.

    When the first batch alone is longer than all that follows, as a first snapshot is, what
    lies before `start` is the first column alone (`is_broken`).
    """

    start: int
    end: int
    width: int
    is_broken: bool

    def column(self, time: int) -> int:
        """The column of a time; those outside the axis belong to its ends."""
        if self.is_broken and time < self.start:
            return 0
        first = 1 if self.is_broken else 0
        span = max(1, self.end - self.start)
        column = first + (time - self.start) * (self.width - first) // span
        return max(0, min(self.width - 1, column))


@dataclass(frozen=True, slots=True)
class Row:
    """The batches of one size class: its name, its cells, how many they are."""

    name: str
    cells: str
    batches: int


@dataclass(frozen=True, slots=True)
class Picture:
    """`rows` have the largest batches first; `since` and `upper` are columns.

    Either is None where the frontier is empty.
    """

    axis: Axis
    rows: tuple[Row, ...]
    since: int | None
    upper: int | None


def draw(
    batches: Iterable[Batch], since: Antichain, upper: Antichain, width: int
) -> Picture | None:
    """The picture, `width` columns wide; None when there are no batches."""
    every = sorted(batches, key=lambda batch: batch.lower)
    if not every:
        return None
    axis = axis_of(every, width)
    classes: dict[int, list[Batch]] = {}
    for batch in every:
        classes.setdefault(size_class(batch), []).append(batch)
    rows = tuple(
        Row(class_text(size), cells(classes[size], axis), len(classes[size]))
        for size in sorted(classes, reverse=True)
    )
    return Picture(
        axis,
        rows,
        None if since.is_empty else axis.column(since.time),
        None if upper.is_empty else axis.column(upper.time - 1),
    )


def cells(batches: Iterable[Batch], axis: Axis) -> str:
    """A row of the picture: how many batches reach into each column."""
    changes = [0] * (axis.width + 1)
    for batch in batches:
        upper = batch.upper
        last = axis.width - 1 if upper.is_empty else axis.column(upper.time - 1)
        changes[axis.column(batch.lower)] += 1
        changes[last + 1] -= 1
    return "".join(shade(count) for count in accumulate(changes[:-1]))


def axis_of(every: Sequence[Batch], width: int) -> Axis:
    """The axis for batches in order of their lowers."""
    first = every[0].lower
    bounds: list[int] = [batch.lower for batch in every]
    bounds += [batch.upper.time for batch in every if not batch.upper.is_empty]
    end = max(bounds) + any(batch.upper.is_empty for batch in every)
    later = min((bound for bound in bounds if bound > first), default=end)
    broken = width > 1 and later < end and later - first > end - later
    return Axis(later if broken else first, max(end, first + 1), width, broken)


def size_class(batch: Batch) -> int:
    """The row of a batch: by the bytes of its chunks."""
    if not batch.chunks:
        return EMPTY_CLASS
    size = sum(chunk.size for chunk in batch.chunks)
    return max(0, (size.bit_length() - 1 - _FIRST_BITS) // _BITS + 1)


def class_text(number: int) -> str:
    """The sizes of a class."""
    if number == EMPTY_CLASS:
        return "no rows"
    bound = 1 << (_FIRST_BITS + _BITS * max(0, number - 1))
    return f"{'<' if number == 0 else '≥'} {bytes_text(bound)}"


def shade(count: int) -> str:
    """The character of a cell with this many batches."""
    if not count:
        return " "
    return next((mark for most, mark in SHADES if count <= most), MANY)
