"""Archives of the classes that Spark's JVM loads: with one, its start costs half as much.

Java maps an archive (CDS, of JEP 350) instead of reading, parsing and verifying ten thousand
classes of some 280 jars. An archive is of one Java and one PySpark, and named after both. Java
compares it with what it runs, and starts without one that does not fit: an archive changes how
long a start takes, and nothing else.

`streams.replica.spark.class_archive` writes one, as a JVM can only at its end.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from streams.files import user_cache
from streams.java import package_directory

KEPT = 3
"""How many archives a cache keeps: environments of different versions may share it."""

_SILENT = "-Xlog:cds*=off"
"""Java would say on the standard output that an archive does not fit."""


def spark_archive(java: Path) -> Path | None:
    """Return where the archive of Spark's classes is, or would be, for the command `java`.

    None if PySpark is not installed, or Java has no archive of its own classes, which one of
    other classes is on top of: a trimmed runtime.
    """
    spark = package_directory("pyspark")
    runtime = java.resolve().parent.parent / "lib"
    if spark is None or not (runtime / "server" / "classes.jsa").is_file():
        return None
    key = hashlib.sha256()
    for file in (runtime / "modules", *sorted((spark / "jars").glob("*.jar"))):
        status = file.stat()
        key.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return user_cache() / f"spark-{key.hexdigest()[:16]}.jsa"


def with_archive(java: Path | None, options: Sequence[str]) -> tuple[str, ...]:
    """Return `options` of a JVM of Spark's, run by `java`, with the archive if there is one."""
    archive = None if java is None else spark_archive(java)
    if archive is None or not archive.is_file():
        return tuple(options)
    return (*options, f"-XX:SharedArchiveFile={archive}", _SILENT)


def writing_archive(archive: Path, options: Sequence[str]) -> tuple[str, ...]:
    """Return `options` of a JVM that writes the file `archive` when it ends."""
    return (*options, f"-XX:ArchiveClassesAtExit={archive}", _SILENT)


def quoted(options: Iterable[str]) -> str:
    """Return options as one setting of Spark's, which splits it at spaces."""
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def prune(archive: Path) -> None:
    """Remove all but the newest `KEPT` archives beside `archive`."""
    written: list[tuple[int, Path]] = []
    for file in archive.parent.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            written.append((os.stat(file).st_mtime_ns, file))  # noqa: PTH116
    for _, file in sorted(written, reverse=True)[KEPT:]:
        with contextlib.suppress(OSError):  # another process was faster
            file.unlink()
