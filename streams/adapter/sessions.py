"""Sessions: the times at which one client reads never decrease.

A read without AS OF takes the freshest time that its collections share, and that of a view is
behind that of its source. So a client that saw an order in the source and then reads the view
might not find it. A session remembers the greatest time of its reads, and no later read takes
an earlier one: it waits until the collections are complete there. AS OF neither obeys that time
nor moves it. The two timelines (`streams.adapter.timelines`) have a time each.

The statements of one text are one session. A client that sends several texts names its session
by a token of its own choice. The coordinator forgets a session when it restarts, after an hour
without a read, and when too many others were used since; a client that needs the guarantee
beyond that sends back the time it received.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streams.adapter.timelines import Timeline
from streams.errors import InvalidUsage
from streams.ids import Timestamp

MOST = 10_000
"""Maximum of remembered sessions; the least recently used are dropped."""

IDLE_S = 3600.0
"""How long an unused session is remembered."""

TOKEN = re.compile(r"[A-Za-z0-9._~-]{1,128}")
"""Pattern of a token: characters that need no escape in a header or an address."""

TIME = re.compile(r"[0-9]{1,16}")
"""Pattern of a time: at most as many digits as a clock may have."""


@dataclass(slots=True)
class Session:
    """The greatest time at which a client has read; None before its first read.

    `event_time` is that of its reads on the timeline of event times, `time` that of others.
    `is_named` means that the client may use it for another text.
    """

    time: Timestamp | None = None
    event_time: Timestamp | None = None
    is_named: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def last(self, timeline: Timeline) -> Timestamp | None:
        """Return the greatest time of its reads on a timeline."""
        return self.event_time if timeline == "event" else self.time

    def note(self, time: Timestamp, timeline: Timeline = "wall") -> None:
        """Record a read at `time`."""
        with self._lock:
            last = self.last(timeline)
            time = time if last is None else max(last, time)
            if timeline == "event":
                self.event_time = time
            else:
                self.time = time


class Sessions:
    """The sessions that clients name by tokens. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[float, Session]] = OrderedDict()

    def get(self, token: str) -> Session:
        """Return the session of a token; a new one if none is remembered.

        Errors: InvalidUsage if it is not a token.
        """
        if not TOKEN.fullmatch(token):
            raise InvalidUsage(
                "session: expected a token of 1 to 128 letters, digits and . _ ~ -, actual"
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


def session_facts(session: Session) -> dict[str, int]:
    """Return the times that the client of a named session sends back."""
    times = {"session_time": session.time, "session_event_time": session.event_time}
    return {name: time for name, time in times.items() if session.is_named and time is not None}


def session_of(
    sessions: Sessions, token: str | None, times: Mapping[Timeline, str | None]
) -> Session:
    """Return the session that a request names, with the times that it sends, if any.

    Errors: InvalidUsage if one of them is invalid.
    """
    for time in times.values():
        if time is not None and not TIME.fullmatch(time):
            raise InvalidUsage(
                f"session: expected a time in milliseconds, actual {time[:32]!r}"
            )
    session = Session() if token is None else sessions.get(token)
    for timeline, time in times.items():
        if time is not None:
            session.note(Timestamp(int(time)), timeline)
    return session
