"""Metrics of a materialization that runs without an environment."""

import socket
import urllib.error
import urllib.request

import pytest

from connectors.runtime.runner import Status
from streams.app.materialize.metrics_server import LatestReport, place_of, served
from streams.errors import InvalidUsage
from streams.ids import Timestamp
from tests.unit.adapter.test_metrics import value

HERE = ("127.0.0.1", 0)


def fetched(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(response.read().decode())


def test_a_run_tells_how_it_is() -> None:
    measured = LatestReport("shop", "sqlite")
    with served(measured, HERE) as port:
        assert value(fetched(port), "state", state="starting") == 1
        measured.report(
            Status(
                task="shop",
                state="running",
                time=Timestamp(1_000),
                upper=Timestamp(3_001),
                waiting=4,
                rows=7,
                commits=2,
                errors=1,
                committed_ms=1_500,
                dead_letters={"t": 3},
                left_out={"t": 1},
                stalls={"u": "two rows of a key"},
            )
        )
        text = fetched(port)
        owner = measured.state.owner
        assert value(text, "info", id="shop", connector="sqlite", owner=owner) == 1
        assert value(text, "state", state="running") == 1
        assert value(text, "lag_seconds") == 2
        assert (value(text, "lag_rows"), value(text, "rows_total")) == (4, 7)
        assert (value(text, "commits_total"), value(text, "errors_total")) == (2, 1)
        assert value(text, "last_commit_timestamp_seconds") == 1.5
        assert value(text, "dead_letters_total", binding="t") == 3
        assert value(text, "stalled", binding="u") == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(port, "/other")
    with pytest.raises(urllib.error.URLError):
        fetched(port)


def test_a_place_that_cannot_be_had_is_told() -> None:
    assert place_of("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert place_of("[::1]:9464") == ("::1", 9464)
    assert place_of(":9464") == ("", 9464)
    for wrong in ("9464", "host", "host:", "host:x", "host:65536"):
        with pytest.raises(InvalidUsage, match="expected HOST:PORT"):
            place_of(wrong)
    with socket.socket() as taken:
        taken.bind(HERE)
        taken.listen()
        place = ("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(InvalidUsage, match="cannot listen at"),
            served(LatestReport("shop", "sqlite"), place),
        ):
            pass
