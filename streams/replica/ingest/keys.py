"""Keys of UPSERT messages: decoded by their format, and written into errors and read back.

- `json`: the key is a JSON object that holds the key columns, or, for a key of one column, a
  lone JSON scalar.
- `text`: the key is UTF-8, and the value of the one key column, a VARCHAR.
- `bytes`: the key is the value of the one key column, a BLOB.

In an error a key is JSON in each format, so that it ends where its JSON value ends, whatever
text follows: as in the message (`json`), a JSON string (`text`), a string of padded base64
(`bytes`). `read_back` reads all three.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.description import KeyFormat
from streams.plan.physical import Column
from streams.replica.ingest.batch import not_unicode
from streams.replica.ingest.decode import DecodedMessages, Decoder, wrap_scalars
from streams.replica.ingest.scan import Malformed, document
from streams.trace.kernel.kernel import Kernel

SPACE = " \t\n\r"
NO_TEXT = pa.scalar(None, pa.string())
QUOTED = {"text": "to_json(k)::VARCHAR", "bytes": "'\"' || to_base64(k) || '\"'"}
"""SQL over a key `k`: its JSON text."""


class Keys:
    """Reads the keys of one source; keeps its decoder."""

    def __init__(
        self, columns: Sequence[Column], key_format: KeyFormat, kernel: Kernel
    ) -> None:
        self._columns, self._format, self._kernel = columns, key_format, kernel
        self._decoder = Decoder(columns, kernel)

    def decode(self, raw: pa.Array) -> DecodedMessages:
        """Return the key columns, with a reason also if one of them is NULL.

        Shape: `raw` is binary; NULL means that the message has no key.
        """
        match self._format:
            case "json":
                return self.read_back(raw)
            case "text":
                texts, reasons = as_text(raw)
                return self._complete(DecodedMessages(pa.table({"c0": texts}), reasons))
            case "bytes":
                reasons = pa.nulls(len(raw), pa.string())
                return self._complete(DecodedMessages(pa.table({"c0": raw}), reasons))

    def read_back(self, texts: pa.Array) -> DecodedMessages:
        """Like `decode`, for the JSON texts of keys (`shown`). Shape: `texts` is binary."""
        if len(self._columns) > 1:
            return self._complete(self._decoder.decode(texts))
        wrapped = wrap_scalars(texts, self._columns[0].name)
        decoded = self._decoder.decode(wrapped)
        reasons = _of_scalars(texts, wrapped, decoded.reasons)
        return self._complete(replace(decoded, reasons=reasons))

    def shown(self, raw: pa.Array) -> pa.Array:
        """Return each key as JSON. Shape: `raw` is binary, of keys that `decode` reads."""
        if self._format == "json":
            return pc.utf8_trim(raw.cast(pa.string()), characters=SPACE)
        keys = pa.table({"k": raw.cast(pa.string()) if self._format == "text" else raw})
        quoted = f"SELECT {QUOTED[self._format]} AS k FROM {{t}}"
        table = self._kernel.prepare(quoted, t=keys.schema).run(keys)
        return pa.concat_arrays([pa.array([], pa.string()), *table["k"].chunks])

    def _complete(self, decoded: DecodedMessages) -> DecodedMessages:
        """Return the keys, with a reason more where a key column is NULL."""
        reasons = decoded.reasons
        for column, values in zip(self._columns, decoded.columns.columns, strict=True):
            reason = f'column "{column.name}": expected {column.type}, actual no value'
            is_null = pa.concat_arrays([pa.array([], pa.bool_()), *values.is_null().chunks])
            reasons = pc.coalesce(reasons, pc.if_else(is_null, reason, NO_TEXT))
        return DecodedMessages(decoded.columns, reasons)


def _of_scalars(texts: pa.Array, wrapped: pa.Array, reasons: pa.Array) -> pa.Array:
    """Return the reasons, with places in the texts where they are places in wrapped ones."""
    told = pc.and_(pc.not_equal(texts, wrapped), pc.match_substring(reasons, "actual other "))
    flags = pc.fill_null(told, fill_value=False)
    if not flags.true_count:
        return reasons
    alone = [_malformed(text) for text in texts.filter(flags).to_pylist()]
    return pc.replace_with_mask(reasons, flags, pa.array(alone, pa.string()))


def _malformed(raw: bytes) -> str:
    """Return where bytes are not the text of a JSON scalar."""
    try:
        document(raw.decode())
    except UnicodeDecodeError:
        return _not_utf8(raw)
    except Malformed as error:
        return str(error)
    raise AssertionError("the text is malformed")


def as_text(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bytes as texts, and the reasons of those that are not UTF-8.

    Shape: `raw` is binary, NULL where there is nothing; then the text is NULL too.
    """
    bad = not_unicode(pc.fill_null(raw, b""))
    if not bad.any():
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.string())
    places = np.flatnonzero(bad)
    messages = [_not_utf8(key) for key in raw.take(pa.array(places)).to_pylist()]
    flags = pa.array(bad)
    reasons = pc.replace_with_mask(pa.nulls(len(raw), pa.string()), flags, pa.array(messages))
    return pc.if_else(flags, pa.scalar(None, pa.binary()), raw).cast(pa.string()), reasons


def _not_utf8(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"expected UTF-8, actual other bytes at byte {error.start + 1}"
    raise AssertionError("the bytes are UTF-8")
