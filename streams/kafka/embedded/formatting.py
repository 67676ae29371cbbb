"""Formats the data directory of a broker, for which Kafka's tool starts a Java.

The tool writes two files: what a new cluster begins with, which is the same for each cluster of
one version of Kafka, and the ids of the cluster and of the directory. So it runs once per cache
of jars; later directories are formatted with what it wrote then, in no time.

Invariant: a directory that has the file of its ids is formatted.
"""

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from streams.errors import Determinate
from streams.files import write_whole
from streams.kafka.embedded.jars import telling_lines
from streams.kafka.embedded.properties import NODE

_IDS = "meta.properties"
_BEGINNING = "bootstrap.checkpoint"


def format_directory(data: Path, conf: Path, command: Sequence[str], kept: Path) -> None:
    """Format the directory `data` of the configuration `conf`, unless it is formatted.

    `command` runs a class of Kafka; `kept` is the directory of what the tool wrote once.

    Errors: Determinate with the output of the tool.
    """
    if (data / _IDS).exists():
        return
    if (kept / _BEGINNING).exists():
        data.mkdir(parents=True, exist_ok=True)
        write_whole(data / _BEGINNING, (kept / _BEGINNING).read_bytes())
        write_whole(data / _IDS, _ids())
        return
    _run_tool(command, conf)
    with contextlib.suppress(OSError):  # a cache that is read-only: the tool runs again
        beginning = (data / _BEGINNING).read_bytes()
        write_whole(kept / _BEGINNING, beginning, is_durable=True)


def _ids() -> str:
    ids = {"version": 1, "node.id": NODE, "cluster.id": _new_id(), "directory.id": _new_id()}
    return "".join(f"{name}={value}\n" for name, value in ids.items())


def _run_tool(command: Sequence[str], conf: Path) -> None:
    done = subprocess.run(  # noqa: S603 -- our own command line, no shell
        [*command, "kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(conf)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Determinate(
            f"embedded broker cannot format its directory: "
            f"{telling_lines(done.stdout + done.stderr)}"
        )


def _new_id() -> str:
    """Return a new id. One that begins with a dash would be parsed as an option."""
    while True:
        new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not new_id.startswith("-"):
            return new_id
