"""Imports Arrow without pandas, which takes as long to load as everything else of a service.

PySpark needs pandas, so it is installed; the replica has it. Arrow imports it where it is, at
its first conversion of Python's or NumPy's values, to know pandas' types and nulls by sight.
"""

import sys
from contextlib import suppress

_HIDDEN = "pandas"


class _Hiding:
    """Tells the import system that pandas is not installed."""

    def find_spec(self, fullname: str, *_: object, **__: object) -> None:
        if fullname == _HIDDEN:
            raise ModuleNotFoundError(f"{_HIDDEN} is not for this process", name=_HIDDEN)


def without_pandas() -> None:
    """Have Arrow look for pandas now, which it does once a process, and find none."""
    hiding = _Hiding()
    sys.meta_path.insert(0, hiding)
    try:
        import pyarrow as pa  # noqa: PLC0415  not imported before pandas is hidden

        pa.array([None])
    finally:
        sys.meta_path.remove(hiding)


def with_pandas() -> None:
    """Have Arrow know pandas from now on, if it is installed, whatever was hidden before.

    Arrow converts values of pandas otherwise where it does not know it: NaN is no null then.
    """
    import pyarrow as pa  # noqa: PLC0415  as above

    with suppress(ModuleNotFoundError):
        pa.nulls(0).to_pandas()
