"""`slackwater` whose replicas answer each peek twice."""

from typing import Any

from streams.app.main import app
from streams.replica.peeks.loop import PeekLoop

_write = PeekLoop._write


def _twice(self: PeekLoop, answers: Any) -> None:
    _write(self, answers)
    _write(self, answers)


if __name__ == "__main__":
    PeekLoop._write = _twice  # type: ignore[method-assign]  # the mutation
    app()
