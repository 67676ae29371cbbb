"""Kernels are lent: as many as are in use at once, and none has threads of its own."""

import pyarrow as pa

from streams.trace.kernel.kernel import Kernel
from streams.trace.kernel.pool import KEPT, KernelPool


def test_users_that_take_turns_share_one_kernel() -> None:
    pool = KernelPool()
    with pool.lent() as first:
        pass
    with pool.lent() as second:
        assert second is first
        with pool.lent() as another:
            assert another is not first


def test_no_more_kernels_are_kept_than_a_few() -> None:
    pool = KernelPool()
    lent = [pool.lent() for _ in range(2 * KEPT)]
    kernels = [manager.__enter__() for manager in lent]
    for manager in lent:
        manager.__exit__(None, None, None)
    with pool.lent() as again:
        assert again in kernels
    assert len(pool._free) == KEPT


def test_a_kernel_has_no_threads() -> None:
    """DuckDB's own and Python's: only the one that asks."""
    kernel = Kernel()
    settings = "SELECT value FROM duckdb_settings() WHERE name IN ('threads', 'async_threads')"
    settings_ = kernel.query(f"{settings} ORDER BY name")
    assert settings_["value"].to_pylist() == ["0", "1"]
    assert kernel.query("SELECT sum(x) AS s FROM t", t=pa.table({"x": [1, 2]})).num_rows == 1
