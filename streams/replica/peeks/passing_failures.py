"""Tells failures of a read that a retry may heal from those that are the answer."""

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.trace.kernel.connection import KernelFailed

OF_THE_MOMENT = (Determinate, Indeterminate, Corrupt, KernelFailed)


def may_pass(failure: Exception) -> bool:
    """Whether a failure says nothing of the data or of the request.

    Brokers that do not answer, a chunk that is gone because its batch was compacted, memory
    that is short. A chunk that stays damaged fails each time.
    """
    return isinstance(failure, OF_THE_MOMENT)
