import logging
import threading

import pytest

from streams.errors import Determinate
from streams.periodic import periodically


@pytest.mark.parametrize("failure", [Determinate("no broker"), RuntimeError("a defect")])
def test_that_calls_go_on_after_one_that_failed_and_end_with_the_block(
    caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    done, calls = threading.Event(), 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise failure
        done.set()

    with (
        caplog.at_level(logging.WARNING),
        periodically(call, 0.001, name="beat", warning="beat not written"),
    ):
        assert done.wait(60)
        assert "beat" in {thread.name for thread in threading.enumerate()}
    assert "beat" not in {thread.name for thread in threading.enumerate()}
    assert [record.getMessage() for record in caplog.records] == ["beat not written"]
    before = calls
    assert not threading.Event().wait(0.01)
    assert calls == before
