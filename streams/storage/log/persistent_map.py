"""A persistent map: adding an entry copies O(sqrt n) entries and shares the rest.

The fold keeps its state as values that are never changed in place, so that states at earlier
offsets stay what they were. A plain dict would be copied whole at every event: the cost of an
append would grow with everything that a group ever held. Here a large `base` is shared and a
small `over` lies on top of it, which alone is copied; when it has grown to the square root of
the base, both become a new base. So n changes copy O(n sqrt n) entries, with the speed of
dicts.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import Final, Generic, TypeVar, cast, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

SMALL = 32
"""Up to this many entries there is only a base: copying it is faster than two lookups."""


class _Gone:
    """Marks an entry in `over` that was removed from the base."""


GONE: Final = _Gone()


class Map(Mapping[K, V], Generic[K, V]):
    """Entries in no particular order. Equal to any mapping with the same entries."""

    __slots__ = ("_base", "_count", "_over")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = {} if entries is None else dict(entries)
        self._over: dict[K, V | _Gone] = {}
        self._count = len(self._base)

    def __getitem__(self, key: K) -> V:
        value = self._over.get(key) if self._over else None
        if value is None:
            return self._base[key]
        if value is GONE:
            raise KeyError(key)
        return cast("V", value)

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Return the value of a key, or the default; without the cost of a KeyError."""
        value = self._over.get(key) if self._over else None
        if value is None:
            return self._base.get(key, default)
        return default if value is GONE else cast("V", value)

    def __contains__(self, key: object) -> bool:
        return self._has(cast("K", key))

    def _has(self, key: K) -> bool:
        return self._over[key] is not GONE if key in self._over else key in self._base

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        return iter(self._merged())

    def keys(self) -> KeysView[K]:
        """The keys. Takes O(n), as do `items` and `values`."""
        return self._merged().keys()

    def items(self) -> ItemsView[K, V]:
        """The entries."""
        return self._merged().items()

    def values(self) -> ValuesView[V]:
        """The values."""
        return self._merged().values()

    def set(self, key: K, value: V) -> "Map[K, V]":
        """Return the map with an entry added or replaced. The value is not None."""
        base = self._base
        if self._over or len(base) > SMALL:
            return self._with({key: value}, self._count + (key not in self))
        both = {**base, key: value}  # the hot path: every event
        return _made(both, {}, len(both))

    def update(self, entries: Mapping[K, V]) -> "Map[K, V]":
        """Return the map with these entries set."""
        fresh = sum(key not in self for key in entries)
        return self._with(dict(entries), self._count + fresh)

    def remove(self, key: K) -> "Map[K, V]":
        """Return the map without an entry, which may be missing."""
        return self._with({key: GONE}, self._count - 1) if key in self else self

    def _with(self, changes: Mapping[K, V | _Gone], count: int) -> "Map[K, V]":
        base, over = self._base, {**self._over, **changes}
        if len(base) <= SMALL or len(over) > isqrt(len(base)) + SMALL:
            base, over = _merged(base, over), {}
        return _made(base, over, count)

    def _merged(self) -> dict[K, V]:
        return _merged(self._base, self._over) if self._over else self._base

    def __repr__(self) -> str:
        return f"Map({self._merged()!r})"


def _made(base: dict[K, V], over: dict[K, V | _Gone], count: int) -> Map[K, V]:
    """Return a map of dicts that are not shared, without a copy."""
    instance: Map[K, V] = Map.__new__(Map)
    instance._base, instance._over, instance._count = base, over, count  # noqa: SLF001  it is made here
    return instance


def _merged(base: dict[K, V], over: dict[K, V | _Gone]) -> dict[K, V]:
    both = {**base, **over}
    if any(value is GONE for value in over.values()):
        both = {key: value for key, value in both.items() if value is not GONE}
    return cast("dict[K, V]", both)
