"""Values for hot paths: dataclasses that are frozen for type checkers and fast to create.

A frozen dataclass sets each field through `object.__setattr__`: one of eleven fields takes
2.9 us, one that is not frozen 0.4 us, and the fold of a record makes twenty of them. mypy sees
a frozen dataclass here, so that no code of ours that is checked changes one.

Where thousands of values are made at once and kept, the cyclic collector searches all of them,
again and again, for cycles that they do not have: `uncollected`.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

__all__ = ["uncollected", "value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, **options: bool) -> object:
        """Like `dataclass(frozen=True, ...)`, hashable too, but not protected at run time."""
        assert frozen, "a value is frozen"
        return dataclass(unsafe_hash=True, **options)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic collector while many objects are made that are in no cycle.

    It took a quarter of the time of reading messages, and of opening thousands of groups.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
