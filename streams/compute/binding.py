"""The binding of a source's shard: how far its topic was read, over several generations. Pure.

A binding only grows: an Append keeps every partition of it, at the same offset or a later one
(rule 18). A source that resumes elsewhere, at an earlier offset or in another topic, therefore
begins a new *generation* of its binding, whose partitions are additional ones. A binding has
more numbers of each partition, which only grow too:

    key  =  fact * 2**29 + generation * 2**20 + partition

    fact 0   the offset before which all messages are read
    fact 1   the greatest event time among them, in milliseconds, 0 if they are older
    fact 2   the offset before which all messages are in the collection: their times are
             below upper, so that nothing before it is read again (`streams.compute.event_time`)
    fact 3   how many of them were late
    fact -1  how many of them were skipped (ON ERROR SKIP)
    fact -2  how many could not be decoded, with ON ERROR INLINE or an ERROR LIMIT
    fact -3  how many there were, while the source had an ERROR LIMIT
    fact -4  of partition 0: how often ALTER changed what becomes of bad messages

A key is a signed number of 32 bits, so there is room for facts -4 to 3. Facts 1 to 3 are of
sources with a watermark. Counts of 0 are not bound. A count is in the record that makes its
messages count, so each message is counted once, however often replicas read it.

Offsets of partitions of the first generation have the partitions' own numbers as keys. Offsets
of former generations stay as they were, and say where each of them ended. Since the generation
is in the same record as the data, every replica sees whether a source has resumed yet, also
after a restart, and of two replicas that resume one counts. So it is with revisions: once a
replica has appended by what ALTER SOURCE said, one that has not heard of it does not.
"""

from collections.abc import Mapping
from enum import IntEnum

Offsets = Mapping[int, int]

_STRIDE = 1 << 20
"""More than the partitions of any topic."""

_FACT = 1 << 29

LAST = _FACT // _STRIDE - 1
"""The last generation: keys have 31 bits in a record."""


class Fact(IntEnum):
    """What a number of a binding says of its partition."""

    READ = 0
    EVENT_TIME = 1
    RELEASED = 2
    LATE = 3
    SKIPPED = -1
    REFUSED = -2
    MESSAGES = -3
    REVISION = -4


def generation(binding: Offsets) -> int:
    """Return the newest generation of a binding; 0 if nothing is bound."""
    return max((_generation(key) for key in binding), default=0)


def newest(binding: Offsets, first: int, last: int) -> int:
    """Return the newest of the generations first to last that is bound; -1 if none is."""
    bound = {_generation(key) for key in binding if key // _FACT == Fact.READ}
    return max((number for number in bound if first <= number <= last), default=-1)


def offsets(binding: Offsets, generation: int) -> dict[int, int]:
    """Return the offset before which each partition was read in a generation."""
    return facts(binding, generation, Fact.READ)


def facts(binding: Offsets, generation: int, fact: Fact) -> dict[int, int]:
    """Return one number of each partition that a generation binds."""
    return {
        key % _STRIDE: number
        for key, number in binding.items()
        if key // _FACT == fact and _generation(key) == generation
    }


def extended(
    binding: Offsets, generation: int, numbers: Offsets, fact: Fact = Fact.READ
) -> dict[int, int]:
    """Return the binding with a number of each partition of a generation: offsets reached."""
    base = fact * _FACT + generation * _STRIDE
    return {**binding, **{base + partition: number for partition, number in numbers.items()}}


def counted(
    binding: Offsets, generation: int, more: Mapping[int, int], fact: Fact
) -> dict[int, int]:
    """Return the binding with more of a count, by partition."""
    counts = facts(binding, generation, fact)
    numbers = {p: counts.get(p, 0) + count for p, count in more.items() if count}
    return extended(binding, generation, numbers, fact)


def total(binding: Offsets, fact: Fact) -> int:
    """Return the sum of a count over all partitions and generations."""
    return sum(number for key, number in binding.items() if key // _FACT == fact)


def revised(binding: Offsets, generation: int, revision: int) -> dict[int, int]:
    """Return the binding of an Append by a source of this revision; 0 is not bound."""
    if not revision:
        return dict(binding)
    return extended(binding, generation, {0: revision}, Fact.REVISION)


def revision(binding: Offsets) -> int:
    """Return the revision of the source that wrote last: an earlier one has to wait."""
    return max((n for key, n in binding.items() if key // _FACT == Fact.REVISION), default=0)


def _generation(key: int) -> int:
    return key % _FACT // _STRIDE
