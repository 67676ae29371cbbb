"""The load: bids on auctions, as JSON messages."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.bench.json_lines import texts
from streams.ids import Topic
from streams.kafka.client.bulk_producer import Publisher

SOURCE = """CREATE SOURCE bids FROM KAFKA (TOPIC 'bids')
    (auction BIGINT, bidder BIGINT, price BIGINT, ts DOUBLE) FORMAT JSON ENVELOPE NONE"""
TOPIC = Topic("bids")
KEYS = 50_000


def messages(count: int, seed: int, keys: int = KEYS) -> pa.Array:
    """`count` bids as JSON text, auctions drawn evenly from `keys`."""
    rng = np.random.default_rng(seed)
    return _json(rng.integers(0, keys, count), rng)


def every_key(first: int, count: int) -> pa.Array:
    """One bid on each of the auctions from `first` on."""
    return _json(np.arange(first, first + count), np.random.default_rng(first))


def _json(auctions: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
    count = len(auctions)
    columns = {
        "auction": auctions,
        "bidder": rng.integers(0, 1_000_000, count),
        "price": rng.integers(1, 100_000, count),
        "ts": np.arange(count) / 8,
    }
    return texts(pa.table(columns))


@dataclass(slots=True)
class Load:
    """Publishes bids at a rate, or as fast as it goes, and says when each lot was flushed."""

    publisher: Publisher
    flushed: Callable[[int], None]

    def steady(self, per_second: int, seconds: float, lot_s: float = 0.1) -> int:
        """Publish `per_second` bids a second in lots of `lot_s`; returns how many."""
        lot = max(int(per_second * lot_s), 1)
        values = messages(lot * 64, seed=1)
        begin = time.monotonic()
        sent = 0
        while time.monotonic() - begin < seconds:
            start = (sent // lot % 64) * lot
            self.publisher.publish(TOPIC, None, values.slice(start, lot))
            self.publisher.flush()
            sent += lot
            self.flushed(sent)
            time.sleep(max(0.0, begin + sent / per_second - time.monotonic()))
        return sent

    def burst(self, values: pa.Array, lot: int = 50_000) -> None:
        """Publish all values as fast as it goes."""
        for start in range(0, len(values), lot):
            self.publisher.publish(TOPIC, None, values.slice(start, lot))
        self.publisher.flush()
        self.flushed(len(values))
