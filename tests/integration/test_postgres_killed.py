"""PostgreSQL is killed in the middle of a commit: all of it is there afterwards, or nothing."""

from pathlib import Path
from typing import Any

import pytest

from connectors import postgres as connector
from connectors import testing
from connectors.driving import Driver
from connectors.sql.transactor import Transactor
from connectors.transport.failures import ConnectorFailed
from connectors.transport.local import Local
from tests.conftest import in_memory
from tests.support.postgres import Server

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("when", ["before the guard", "after the guard"])
def test_a_commit_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: Any, when: str) -> None:
    with in_memory(tmp_path) as path:
        server = Server(path / "data")
        subject = testing.Subject(
            driver=Driver(Local(connector.connector({}))),
            endpoint=server.config(),
            resource=lambda table: {"table": table},
        )
        task = subject.applied("one", "two")
        guard = Transactor._guard

        def killing(self: Transactor) -> None:
            if when == "after the guard":
                guard(self)
            server.kill()
            guard(self)

        with subject.session(task) as stream:
            testing.commit(stream, 1)
            stream.flush(testing.checkpoint(2))
            testing.store_both(stream)
            with monkeypatch.context() as patch:
                patch.setattr(Transactor, "_guard", killing)
                with pytest.raises(ConnectorFailed):
                    stream.commit()
        server = Server(path / "data")
        with subject.session(task) as stream:
            assert testing.at(stream) == 1
            assert testing.read(stream, 3, [("a", 1)]) == []
            stream.flush(testing.checkpoint(4))
            testing.store_both(stream)
            stream.commit()
        server.close()
