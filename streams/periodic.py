"""Calls a function periodically, in a thread of its own, while a block runs."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streams.errors import SlackwaterError

log = logging.getLogger(__name__)


@contextmanager
def periodically(
    call: Callable[[], None],
    every_s: float,
    *,
    name: str,
    warning: str,
    join_s: float | None = None,
) -> Iterator[None]:
    """Call it after each interval of so many seconds; `name` is the thread's.

    A call that fails is logged under `warning`, and the next one comes in its time. The end
    waits for a call in progress, for at most `join_s`.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            try:
                call()
            except SlackwaterError as error:
                log.warning(warning, extra={"cause": str(error)})
            except Exception:
                log.exception(warning)

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(join_s)
