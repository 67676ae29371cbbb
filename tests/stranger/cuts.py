"""Reading with the service's help, as a stranger does from the page: part 3."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.stranger import chunk
from tests.stranger.client import Client
from tests.stranger.reader import Missing, clipped
from tests.stranger.values import Record

Fetch = Callable[[str, Record], bytes]


def cut(client: Client, fetch: Fetch, read: Record, **bounds: Any) -> tuple[pa.Table, Any]:
    """The updates of a cut (None when there are none), and its upper.

    `bounds` are `after`, `until` and `where`. What `where` leaves out is for the caller to
    filter. Asks anew when compaction was faster.
    """
    before = None
    while True:
        answer = client.ask("subscribe_at", capability=read, **bounds)
        assert answer["status"] == "DONE", answer
        snapshot = answer["cut"]
        try:
            parts = [
                clipped(fetch(snapshot["topic"], piece), piece["lower"], piece["upper"])
                for piece in snapshot["chunks"]
            ]
        except Missing:
            if snapshot["chunks"] == before:
                raise
            before = snapshot["chunks"]
            continue
        return chunk.same_types(parts), snapshot["upper"]
