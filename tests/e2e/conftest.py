"""An environment in containers, for a module; its report and logs in `artifacts/`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.app import client
from tests.e2e.containers import Environment, environment

ARTIFACTS = Path(os.environ.get("E2E_ARTIFACTS", "artifacts/e2e"))
READ_TIMEOUT_S = 20.0
"""Of the observers: where a cable was pulled nothing says that a connection has ended."""


@pytest.fixture(scope="session")
def artifacts() -> Path:
    shutil.rmtree(ARTIFACTS, ignore_errors=True)
    return ARTIFACTS


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, artifacts: Path) -> Iterator[Environment]:
    if "E2E_SLACKWATER_IMAGE" not in os.environ:
        pytest.skip("no images: `make e2e` makes an engine and them")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "_CONNECT_TIMEOUT_S", READ_TIMEOUT_S)
        with environment(tmp_path_factory.mktemp("secrets")) as made:
            yield made
            made.save_logs(artifacts / "logs")
