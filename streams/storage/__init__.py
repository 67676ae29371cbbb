"""Shards: durable collections in Kafka topics, their frontiers, capabilities and readers.

`Storage` is the public interface. It is imported lazily, because code that only folds a log
needs no broker client.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.storage.storage import Storage

__all__ = ["Storage"]


def __getattr__(name: str) -> object:
    if name == "Storage":
        from streams.storage.storage import Storage  # noqa: PLC0415  # see above

        return Storage
    raise AttributeError(f"module {__name__} has no attribute {name}")
