"""The library by which a program has a clock of its own, as the end-to-end tests use it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.container_files import DOCKER

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

PROGRAM = """
import threading, time
print(time.time())
began = time.monotonic()
threading.Event().wait(0.1)
lock = threading.Lock()
lock.acquire()
lock.acquire(timeout=0.1)
time.sleep(0.1)
print(time.monotonic() - began)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("clock") / "clock.so"
    source = DOCKER / "standin" / "clock.c"
    command = [
        "cc",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(built),
        str(source),
    ]
    subprocess.run([*command, "-ldl"], check=True)
    return built


def run(library: Path, file: Path) -> tuple[float, float]:
    """How far the clock of a program is ahead, and the seconds that its waits took."""
    variables = {**os.environ, "LD_PRELOAD": str(library), "E2E_CLOCK": str(file)}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables,
        check=True,
        capture_output=True,
        text=True,
    )
    at, waited = said.stdout.split()
    return float(at) - time.time(), float(waited)


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_a_clock_is_as_far_ahead_as_the_file_says(
    library: Path, tmp_path: Path, ahead: int
) -> None:
    (tmp_path / "clock").write_text(f"{ahead}\n")
    measured, waited = run(library, tmp_path / "clock")
    assert abs(measured - ahead) < 60
    assert 0.25 < waited < 30, "deadlines are where they were"


def test_without_a_file_the_clock_is_right(library: Path, tmp_path: Path) -> None:
    measured, _ = run(library, tmp_path / "none")
    assert abs(measured) < 60
