"""The versions that driver and executors have in common: state depends on them (rule 24)."""

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from streams.trace.columns import HASH_SELF_TEST

SAME = ("slackwater", "duckdb", "pyarrow", "numpy", "pyspark")


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of this process by name."""
    python = ".".join(platform.python_version_tuple()[:2])
    packages = {name: _version(name) for name in SAME}
    return {"python": python, **packages, "hash of keys": str(HASH_SELF_TEST)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def differences(drivers: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Return what differs, for a message; empty if nothing does."""
    names = [name for name in {**drivers, **ours} if drivers.get(name) != ours.get(name)]
    return ", ".join(
        f"{name} {ours.get(name, 'missing')}, the driver's is {drivers.get(name, 'missing')}"
        for name in names
    )
