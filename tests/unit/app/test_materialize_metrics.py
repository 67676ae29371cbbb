"""Metrics of a materialization that runs without an environment."""

import urllib.error
import urllib.request

import pytest

from connectors.runtime.runner import Status
from streams.app.materialize.latest_report import LatestReport
from streams.http.listening import Listening
from streams.http.server import Endpoint, Probes, served
from streams.ids import Timestamp
from tests.unit.adapter.test_metrics import value


def fetched(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(response.read().decode())


def test_a_run_tells_how_it_is() -> None:
    measured = LatestReport("shop", "sqlite")
    probes = Probes(why_not_ready=measured.why_not_ready, metrics=measured.text)
    with served(Endpoint(Listening(), probes)) as port:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            fetched(port, "/readyz")
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
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as response:
            assert response.status == 200
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
