"""A machine without Java, as far as programs can tell: none on the PATH, no JAVA_HOME."""

import shutil
from collections.abc import Mapping
from pathlib import Path

USED = ("bash", "sh", "dirname", "ps")
"""The commands that Spark's scripts call."""


def without_java(directory: Path) -> Mapping[str, str]:
    """The environment of a process there; its PATH is the directory, with little in it."""
    for name in USED:
        path = shutil.which(name)
        assert path is not None
        (directory / name).symlink_to(path)
    return {"PATH": str(directory), "LANG": "C"}
