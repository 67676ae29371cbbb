"""Computes the key-range hash of the rows of a collection."""

from collections.abc import Sequence

import pyarrow as pa

from connectors.protocol.messages import Tuples
from connectors.runtime.documents import elements
from connectors.runtime.fields import fields_of
from connectors.runtime.ranges import Hashes
from schemas.flow_hash import hash_slices
from streams.storage.description import Description
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel


class KeyHasher:
    """The hashes of a binding's keys, as the protocol packs them. One thread."""

    def __init__(self, columns: Sequence[tuple[str, str]], kernel: Kernel) -> None:
        """`columns`: names and types of the key, in its order."""
        self._fields = list(fields_of(Description(tuple(columns))).values())
        self._types = [type_ for _, type_ in columns]
        self._kernel = kernel
        listed = [f"{field.value} AS e{place}" for place, field in enumerate(self._fields)]
        self._sql = f"SELECT {', '.join(listed)} FROM keys"

    def hashes(self, keys: Sequence[pa.Array]) -> Hashes:
        """Hash the key columns of each row."""
        table = pa.Table.from_arrays(
            list(keys), names=[f"c{place}" for place in range(len(keys))]
        )
        answer = self._kernel.query_as(self._sql, {"keys": (table, self._types)})
        columns = [
            elements(field, one_array(answer.column(place)))
            for place, field in enumerate(self._fields)
        ]
        packed = Tuples.of_columns(columns, answer.num_rows).packed
        offsets = packed.offsets
        return hash_slices(packed.arena, offsets[:-1], offsets[1:])
