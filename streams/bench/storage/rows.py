"""The rows of the storage benchmarks: four columns, determined by the id."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.storage.description import Description

Ints = npt.NDArray[np.int64]

DESCRIPTION = Description(
    (("id", "BIGINT"), ("account", "BIGINT"), ("amount", "DOUBLE"), ("note", "VARCHAR")),
    kind="table",
)
ACCOUNTS, NOTES = 50_000, 1_000


def rows(ids: Ints, versions: Ints | int, time: Ints | int, diff: Ints | int = 1) -> pa.Table:
    """Updates of rows, one for each id. Equal ids and versions make equal rows.

    Shape: id, account, amount, note, time, diff.
    """
    count = len(ids)
    notes = pc.cast(pa.array(ids * 31 % NOTES), pa.utf8())
    return pa.table(
        {
            "id": ids,
            "account": ids * 7919 % ACCOUNTS,
            "amount": ids % 10_007 / 8 + versions,
            "note": pc.binary_join_element_wise("note of the row ", notes, ""),
            "time": np.broadcast_to(np.int64(time), count),
            "diff": np.broadcast_to(np.int64(diff), count),
        }
    )
