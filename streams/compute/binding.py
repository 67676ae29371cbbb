"""The binding of a source's shard: how far its topic was read, over several generations. Pure.

A binding only grows: an Append keeps every partition of it, at the same offset or a later one
(rule 18). A source that resumes elsewhere, at an earlier offset or in another topic, therefore
begins a new *generation* of its binding, whose partitions are additional ones:

    key of partition p in generation g  =  g * 2**20 + p

Partitions of the first generation have their own numbers as keys. Offsets of former generations
stay as they were, and say where each of them ended. Since the generation is in the same record
as the data, every replica sees whether a source has resumed yet, also after a restart, and of
two replicas that resume one counts.
"""

from collections.abc import Mapping

Offsets = Mapping[int, int]

_STRIDE = 1 << 20
"""More than the partitions of any topic."""

LAST = (1 << 31) // _STRIDE - 1
"""The last generation: keys have 31 bits in a record."""


def generation(binding: Offsets) -> int:
    """Return the newest generation of a binding; 0 if nothing is bound."""
    return max((key // _STRIDE for key in binding), default=0)


def offsets(binding: Offsets, generation: int) -> dict[int, int]:
    """Return the offset before which each partition was read in a generation."""
    return {
        key % _STRIDE: offset for key, offset in binding.items() if key // _STRIDE == generation
    }


def extended(binding: Offsets, generation: int, reached: Offsets) -> dict[int, int]:
    """Return the binding with the partitions of a generation at the offsets reached."""
    keyed = {generation * _STRIDE + partition: offset for partition, offset in reached.items()}
    return {**binding, **keyed}
