"""Replays the feed in its own order, so many seconds of the year a second."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.demo.feed import Feed
from streams.ids import Topic
from streams.kafka.client.bulk_producer import Publisher

Times = npt.NDArray[np.int64]
TICK_S = 0.1
FULL_SPEED_MESSAGES = 10_000


@dataclass(slots=True)
class Replay:
    """A thread that publishes; `flushed` is called with the topics of each tick it flushed.

    Units: `speed` is seconds of the year a second; 0 is as fast as it goes.
    """

    feed: Feed
    publisher: Publisher
    speed: float
    flushed: Callable[[Mapping[Topic, int]], None]
    published: int = 0
    at_s: int = 0
    failure: Exception | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Publish what comes before everything."""
        self._publish(0, int(np.searchsorted(self._times(), 0)))

    def start(self) -> None:
        """Publish the year, in a thread."""
        times = self._times()
        self._thread = threading.Thread(target=self._run, args=(times,), name="replay")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether everything was published, or nothing more will be."""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _times(self) -> Times:
        times: Times = self.feed.messages.column("at_s").to_numpy()
        return times

    def _run(self, times: Times) -> None:
        try:
            self._replay(times)
        except Exception as cause:  # noqa: BLE001  told by the main thread, which ends the demo
            self.failure = cause

    def _replay(self, times: Times) -> None:
        begin = time.monotonic()
        origin = int(times[min(self.published, len(times) - 1)])
        while self.published < len(times) and not self._stop.is_set():
            if self.speed:
                now_s = int(origin + (time.monotonic() - begin) * self.speed)
                upto = int(np.searchsorted(times, now_s, side="right"))
            else:
                upto = min(self.published + FULL_SPEED_MESSAGES, len(times))
            self._publish(self.published, upto)
            if self.speed:
                self._stop.wait(TICK_S)

    def _publish(self, begin: int, end: int) -> None:
        if end <= begin:
            return
        part = self.feed.messages.slice(begin, end - begin)
        counts: dict[Topic, int] = {}
        for name in pc.unique(part.column("topic")).to_pylist():
            mine = part.filter(pc.equal(part.column("topic"), name))
            keys = mine.column("key").combine_chunks()
            some = None if keys.null_count == len(keys) else keys
            values = mine.column("value").combine_chunks()
            self.publisher.publish(Topic(name), some, values)
            counts[Topic(name)] = mine.num_rows
        self.publisher.flush()
        self.published = end
        self.at_s = max(int(pc.max(part.column("at_s")).as_py()), 0)
        self.flushed(counts)


def moment(at_s: int) -> str:
    """A second of the year, as the page shows it."""
    stamp = pa.scalar(at_s, pa.timestamp("s")).as_py()
    return f"{stamp:%d %b %Y %H:%M}"
