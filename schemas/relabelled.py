"""Arrow arrays under other types of the same layout, for what no cast can do."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Relabelled:
    """An array under another type of the same layout, by the Arrow PyCapsule protocol."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The array's buffers as they are, and the other type."""
        del requested_schema
        _, buffers = self.array.__arrow_c_array__()
        return self.kind.__arrow_c_schema__(), buffers


def relabelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as one of this type; a cast cannot do it where extension types are inside."""
    return array if array.type == kind else pa.array(Relabelled(array, kind))
