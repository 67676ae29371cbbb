"""Files that other processes read, or that a crash may cut."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Put `content` under the name `path` at once: nobody ever reads a part of it.

    `mode` is the file's from its first byte on, whatever the file that it replaces had.

    Errors: OSError; what stood at `path` before still stands there.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as file:
            file.write(data)
        os.replace(partial, path)  # noqa: PTH105  Path.replace is the same call, twice as slow
    except OSError:
        partial.unlink(missing_ok=True)
        raise
