"""Encodes rows in the text format of COPY, a column at a time.

Source: PostgreSQL's manual, "COPY", text format.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.blobs import Blobs

NULL, TAB, LINE = "\\N", "\t", "\n"
ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
"""The backslash first: the others' have one."""
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def copy_text(arrays: Sequence[pa.Array]) -> bytes:
    """Lines with a value of each column. At most 2 GiB."""
    values = [_text(array) for array in arrays]
    line = pc.binary_join_element_wise(
        *values, TAB, null_handling="replace", null_replacement=NULL
    )
    return Blobs(pc.binary_join_element_wise(line, "", LINE)).arena


def _text(array: pa.Array) -> pa.Array:
    if array.type == pa.binary():
        return _hexadecimal(array)
    if array.type != pa.string():
        return array.cast(pa.string())
    data = np.frombuffer(Blobs(array.fill_null("")).arena, np.uint8)
    for plain, escaped in ESCAPES:
        if (data == ord(plain)).any():
            array = pc.replace_substring(array, plain, escaped)
    return array


def _hexadecimal(array: pa.Array) -> pa.Array:
    blobs = Blobs(array.fill_null(b""))
    data = np.frombuffer(blobs.arena, np.uint8)
    digits = DIGITS[np.stack((data >> 4, data & 0x0F), axis=1)].tobytes()
    offsets = 2 * blobs.offsets
    hexadecimal = Blobs.cut(digits, offsets[:-1], offsets[1:]).array.cast(pa.string())
    written = pc.binary_join_element_wise("\\\\x", hexadecimal, "")
    return pc.if_else(array.is_valid(), written, pa.scalar(None, pa.string()))
