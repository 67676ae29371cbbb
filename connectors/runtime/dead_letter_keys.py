"""Keys whose last document was refused: the endpoint has an older row for them, or none.

For such a key the collection reports `exists` although the endpoint has no row, and a previous
document that the endpoint never stored. Writers look up these keys here, until the endpoint
accepts a later change of the key. The keys are stored in the Flow checkpoint, in the
transaction of the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from connectors.runtime.transactions import BoundCollection, Part, Transaction
from streams.storage.sinks.sink import Flags, Hashes
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import hash_columns

Keys = Mapping[int, bool]
"""Hashes of keys, and whether the endpoint has a row of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row of a transaction that is not written."""

    row: int
    """Its number, as `connectors.runtime.dead_letters` counts them."""
    binding: int
    key: int
    """The hash of its key."""
    exists: bool
    """Whether the endpoint has a row with the key."""


class RefusedKeys:
    """The refused keys of each binding. Its values never change."""

    def __init__(
        self, bounds: Sequence[BoundCollection], keys: Mapping[str, Keys], kernel: Kernel
    ) -> None:
        self._bounds, self._kernel = bounds, kernel
        self.keys = keys
        """By the binding's place."""

    def __len__(self) -> int:
        return sum(map(len, self.keys.values()))

    def patched(self, binding: int, piece: Part) -> Part:
        """The part to write, without deletes of rows that the endpoint lacks."""
        bound = self._bounds[binding]
        keys = self.keys.get(bound.name)
        if not keys:
            return piece
        hashes = self.hashes(binding, piece)
        exists = piece.exists.copy()
        for key in np.intersect1d(hashes, hashes_of(keys)).tolist():
            exists[hashes == key] = keys[key]
        mask = exists | ~piece.deletes
        alike = ~np.isin(
            hash_columns(piece.before, bound.places, self._kernel), hashes_of(keys)
        )
        return Part(
            piece.rows.filter(flags(mask)),
            exists[mask],
            piece.deletes[mask],
            piece.before.filter(flags(alike)),
        )

    def after(self, transaction: Transaction, left_out: Sequence[LeftOut]) -> "RefusedKeys":
        """Once a transaction is written: its keys are healed, those left out are refused."""
        keys = {place: dict(refused) for place, refused in self.keys.items()}
        for binding, part in enumerate(transaction.parts):
            refused = keys.get(self._bounds[binding].name)
            for piece in part.pieces() if part is not None and refused else ():
                hashes = self.hashes(binding, piece)
                for key in np.intersect1d(hashes, hashes_of(refused or {})).tolist():
                    (refused or {}).pop(key)
        for row in left_out:
            bound = self._bounds[row.binding]
            if not bound.delta:
                keys.setdefault(bound.name, {})[row.key] = row.exists
        return RefusedKeys(self._bounds, keys, self._kernel)

    def hashes(self, binding: int, piece: Part) -> Hashes:
        """The hashes of the keys of its rows."""
        return hash_columns(piece.rows, self._bounds[binding].places, self._kernel)


def hashes_of(keys: Keys) -> Hashes:
    """The hashes as an array."""
    return np.array(list(keys), np.uint64)


def flags(values: Flags) -> pa.Array:
    """The flags as an Arrow array."""
    return pa.array(values)
