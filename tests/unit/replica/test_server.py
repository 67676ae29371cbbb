"""What ends a replica's process, so that its supervisor starts another."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.replica.main import _Server
from tests.support.sparkless import Replica, World


@pytest.mark.parametrize("where", ["a thread", "the shards"])
def test_a_defect_ends_the_replica(tmp_path: Path, where: str) -> None:
    scheduler = Replica(World(), "a", tmp_path).scheduler
    nothing: Any = SimpleNamespace(poll=lambda _: (), nonce="", tell=lambda *_: None)
    nothing.sinks = SimpleNamespace(responses=tuple)
    server = _Server(scheduler.config, nothing, nothing, nothing)
    server.machinery = SimpleNamespace(scheduler=scheduler, sinks=nothing.sinks)  # type: ignore[assignment]  # its parts
    server.hear(nothing)
    defect = ZeroDivisionError("defect")
    if where == "a thread":
        scheduler.defect = defect
    else:
        scheduler.shards.following.defect = defect
    with pytest.raises(ZeroDivisionError):
        server.hear(nothing)
