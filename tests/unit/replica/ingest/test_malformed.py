"""One malformed message among many is refused as when alone, and costs no other anything."""

import pyarrow as pa
import pytest

from streams.plan.physical import Column
from streams.plan.source_types import PLAIN
from streams.replica.ingest.decode import FEW, Decoder
from streams.trace.kernel.kernel import Kernel

KERNEL = Kernel()
ALONE = [
    *PLAIN, "DECIMAL(9,2)", "DOUBLE[]", "STRUCT(a DECIMAL(5,2))", "MAP(VARCHAR, DOUBLE)"
]  # fmt: skip
MALFORMED = [
    b'{"c":tru}', b'{"c":01}', b"{c:1}", b'{"x":"\\ud800"}', b'{"c":1}{"c":2}', b'{"c":1,}',
    b'{"x":"a\nb"}', b'{"c":NaN}', b'{"c":.5}', b'{"c":1/**/}', b"{}}", b'{"c":1e99999}',
    b'{"c":' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"c":1,"c":tru}', b'{"c":"\xff"}',
]  # fmt: skip


@pytest.mark.parametrize("kind", ALONE)
def test_a_malformed_message_among_many_is_refused_alone(kind):
    """More than are read one by one, so that those to blame are looked for with DuckDB."""
    decoder = Decoder([Column("c", kind)], KERNEL)
    for text in MALFORMED:
        alone = decoder.decode(pa.array([text], pa.binary())).reasons.to_pylist()
        batch = [b'{"c":null}', b'{"x":1}'] * FEW + [text]
        reasons = decoder.decode(pa.array(batch, pa.binary())).reasons.to_pylist()
        assert reasons == [None] * 2 * FEW + alone, text
