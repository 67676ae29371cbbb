"""`slackwater` whose replicas lose a change of most intervals that they deliver."""

from collections.abc import Iterator
from typing import Any

from streams.app.main import app
from streams.replica.peeks import subscribe_read

_cut = subscribe_read._cut


def _without_one(rows: Any, *rest: Any) -> Iterator[Any]:
    return _cut(rows.slice(1), *rest)


if __name__ == "__main__":
    subscribe_read._cut = _without_one  # type: ignore[assignment]  # the mutation
    app()
