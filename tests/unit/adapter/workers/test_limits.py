"""What one statement may take, and what is said of one that wants more."""

from pathlib import Path

import pytest

from streams.adapter.select import kernel, refusing
from streams.adapter.workers.limits import LEAST_DISK, LEAST_MEMORY, Limits
from streams.adapter.workers.spool import Spool
from streams.errors import InvalidStatement, InvalidUsage

SMALL = Limits(memory=LEAST_MEMORY, disk=LEAST_DISK)


@pytest.mark.parametrize(
    "limits", [{"memory": 1 << 20}, {"disk": 0}, {"seconds": 0.5}], ids=str
)
def test_limits_that_allow_nothing_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidUsage, match=r"expected .* or more for a statement, actual"):
        Limits(**limits)


def test_limits_are_read_as_they_were_written() -> None:
    assert Limits.decoded(SMALL.encoded()) == SMALL


def test_what_the_engine_spills_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = kernel(SMALL)
    engine.set("memory_limit", "16MB")
    with pytest.raises(InvalidStatement) as failed, refusing(SMALL):
        engine.query(
            "CREATE TEMP TABLE many AS SELECT md5(i::VARCHAR) AS x FROM range(1000000) r(i)"
        )
    assert failed.value.message == "the query takes too much disk"
    assert failed.value.detail == "expected at most 1 MiB of working files, actual more"


def test_an_answer_that_waits_is_bounded(tmp_path: Path) -> None:
    with Spool(SMALL, tmp_path) as spool:
        spool.take(b"x" * LEAST_DISK)
        with pytest.raises(InvalidStatement) as failed:
            spool.take(b"x")
        assert list(spool.blocks()) == [b"x" * LEAST_DISK]
    assert failed.value.message == "the query takes too much disk"
    assert failed.value.detail == "expected at most 1 MiB of rows as JSON, actual more"
    assert not list(tmp_path.iterdir())
