"""A pool of kernels for users that need one rarely and briefly.

A kernel takes 2 to 4 MiB: a thousand users of their own would take gigabytes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streams.trace.kernel.kernel import Kernel

KEPT = 4
"""Kernels that are kept for the next user; more are made while more are in use at once."""


class KernelPool:
    """Hands kernels out, each to one user at a time; shared by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Kernel] = []

    @contextmanager
    def lent(self) -> Iterator[Kernel]:
        """A kernel, for as long as the context lasts."""
        with self._lock:
            kernel = self._free.pop() if self._free else None
        kernel = kernel or Kernel()
        try:
            yield kernel
        finally:
            with self._lock:
                if len(self._free) < KEPT:
                    self._free.append(kernel)
