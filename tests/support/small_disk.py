"""A small disk for a test: where mounting is not permitted, in a namespace of its own."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

UNSHARED = ("unshare", "--user", "--map-root-user", "--mount")
"""Runs a command as root of its own users and mounts: many systems permit it to anybody."""

LONGEST_S = 600


def mounting(directory: Path, size: str) -> list[str]:
    """The command that puts an empty disk of a size, as `24m`, on a directory."""
    return ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]


def may_mount(*within: str) -> bool:
    """Whether this process, or a command that runs `within` another, may mount a disk."""
    with TemporaryDirectory() as directory:
        command = [*within, *mounting(Path(directory), "1m")]
        try:
            done = subprocess.run(command, check=False, capture_output=True)
        except FileNotFoundError:
            return False
        if done.returncode == 0 and not within:
            subprocess.run(["umount", directory], check=True)
        return done.returncode == 0


def run_unshared(request: pytest.FixtureRequest) -> None:
    """Run the test once more where it may mount; skip it if there is no such place."""
    if not may_mount(*UNSHARED):
        pytest.skip(f"neither `mount` nor `{' '.join(UNSHARED)} mount` is permitted here")
    again = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        request.node.nodeid,
    ]
    done = subprocess.run(
        [*UNSHARED, *again],
        check=False,
        capture_output=True,
        text=True,
        cwd=request.config.rootpath,
        timeout=LONGEST_S,
    )
    assert "1 passed" in done.stdout, f"{done.stdout[-8_000:]}\n{done.stderr[-2_000:]}"
