"""Dataclasses for hot paths: frozen for type checkers, fast to create.

A frozen dataclass sets each field through `object.__setattr__`: one of eleven fields takes
2.9 us, one that is not frozen 0.4 us, and the fold of a record makes twenty of them. mypy sees
a frozen dataclass here, so that no code of ours that is checked changes one.
"""

from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, **options: bool) -> object:
        """Like `dataclass(frozen=True, ...)`, hashable too, but not protected at run time."""
        assert frozen, "a value is frozen"
        return dataclass(unsafe_hash=True, **options)
