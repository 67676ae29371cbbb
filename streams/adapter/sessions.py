"""Sessions: the times at which one client reads never decrease.

A read without AS OF takes the freshest time that its collections share, and that of a view is
behind that of its source. So a client that saw an order in the source and then asks the view
would find the order missing. A session remembers the greatest time that was answered, and no
later read of it takes a lesser one: it waits until the collections have come so far. AS OF
neither obeys that time nor moves it.

The statements of one text are one session. A client that sends several texts names its session
by a token of its own choice. What the coordinator remembers of it is lost with the coordinator,
after an hour without a read, and when too many others were used since; so a client that wants
the promise beyond that sends the time back that it was told.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from streams.errors import InvalidUsage
from streams.ids import Timestamp

MOST = 10_000
"""How many sessions are remembered; of more, the one that was used last is the last to go."""

IDLE_S = 3600.0
"""For how long a session is remembered that is not used."""

TOKEN = re.compile(r"[A-Za-z0-9._~-]{1,128}")
"""What a token looks like: characters that need no escape in a header or an address."""

TIME = re.compile(r"[0-9]{1,16}")
"""What a time looks like: of no more digits than one that a clock may reach."""


@dataclass(slots=True)
class Session:
    """The greatest time at which a client has read; None before its first read.

    `is_named` says that the client may come back to it with another text.
    """

    time: Timestamp | None = None
    is_named: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, time: Timestamp) -> None:
        """The client has been answered at `time`."""
        with self._lock:
            self.time = time if self.time is None else max(self.time, time)


class Sessions:
    """The sessions that clients name by tokens. Any thread may ask."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[float, Session]] = OrderedDict()

    def get(self, token: str) -> Session:
        """The session of a token; a new one when none is remembered.

        Errors: InvalidUsage when it is no token.
        """
        if not TOKEN.fullmatch(token):
            raise InvalidUsage(
                "session: expected a token of 1 to 128 letters, digits and . _ ~ -, got"
                f" {len(token)} characters"
            )
        now = self._clock()
        with self._lock:
            _, session = self._found.pop(token, (now, Session(is_named=True)))
            self._found[token] = now, session
            while len(self._found) > MOST or self._oldest() < now - IDLE_S:
                self._found.popitem(last=False)
            return session

    def _oldest(self) -> float:
        return next(iter(self._found.values()))[0]


def session_of(sessions: Sessions, token: str | None, time: str | None) -> Session:
    """The session that a request names, and the time that it was told, if any.

    Errors: InvalidUsage when either is not what it has to be.
    """
    session = Session() if token is None else sessions.get(token)
    if time is not None:
        if not TIME.fullmatch(time):
            raise InvalidUsage(f"session: expected a time in milliseconds, got {time[:32]!r}")
        session.note(Timestamp(int(time)))
    return session
