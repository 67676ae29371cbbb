"""Nexmark's events: persons who register, the auctions they open, the bids they place.

    event n of every 50:  0 a person      1, 2, 3 an auction      4 .. 49 a bid

An event's number alone decides what it is, its id and its time; chance decides the rest, so
`events(count, seed)` is one and the same on every machine with this numpy. Ids are dense:
what may be referred to by event n follows from n by arithmetic, which is why no event has to
know another and all are made at once, in columns.

Whom an event refers to is skewed as in the original:

    bid.auction      half of them the hot auction (one of every 100), else one of the last 100
    bid.bidder       three quarters the hot bidder, else one of the last 1,000 persons
    auction.seller   three quarters the hot seller, else one of the last 1,000 persons

and a little beyond the newest: a bid may precede its auction. An auction is open for up to
twice the time in which 100 auctions are opened.

Source: P. Tucker et al., "NEXMark: A Benchmark for Queries over Data Streams"; proportions and
skew as documented for the Nexmark suite of Apache Beam, "Nexmark benchmark suite", and kept by
the suite for Flink at github.com/nexmark/nexmark.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.bench.nexmark.random_text import chosen, digits, joined, letters, one_of

Ints = npt.NDArray[np.int64]

PERSONS, AUCTIONS, CYCLE = 1, 3, 50
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
IN_FLIGHT, ACTIVE, LEAD = 100, 1_000, 10
HOT_STEP = 100
HOT_AUCTION, HOT_CHANNEL, HOT_PERSON = 1 / 2, 1 / 2, 3 / 4
RATE = 10_000
BEGIN_MS = 1_700_000_000_000 // 10_000 * 10_000

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland",
    "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter",
    "Walter",
)  # fmt: skip
LAST_NAMES = (
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
)  # fmt: skip
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

COLUMNS = {
    "person": (
        "id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR,"
        " state VARCHAR, dateTime TIMESTAMP, extra VARCHAR"
    ),
    "auction": (
        "id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,"
        " dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR"
    ),
    "bid": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,"
        " dateTime TIMESTAMP, extra VARCHAR"
    ),
}
"""The relations and their columns, as in CREATE TABLE."""


@dataclass(frozen=True, slots=True)
class Events:
    """The events by kind, each in the order in which it happened; columns as in `COLUMNS`."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table

    def of(self, kind: str) -> pa.Table:
        """The events of one kind."""
        return {"person": self.person, "auction": self.auction, "bid": self.bid}[kind]


def events(count: int, seed: int, rate: float = RATE) -> Events:
    """The first `count` events, `rate` of them a second of event time."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(count)
    place = numbers % CYCLE
    return Events(
        _persons(numbers[place < PERSONS], rng, rate),
        _auctions(numbers[(place >= PERSONS) & (place < PERSONS + AUCTIONS)], rng, rate),
        _bids(numbers[place >= PERSONS + AUCTIONS], rng, rate),
    )


def _persons(numbers: Ints, rng: np.random.Generator, rate: float) -> pa.Table:
    count = len(numbers)
    name = one_of([f"{a} {b}" for a in FIRST_NAMES for b in LAST_NAMES], count, rng)
    user, host = letters(np.full(count, 7), rng), letters(np.full(count, 5), rng)
    return pa.table(
        {
            "id": FIRST_ID + _last_person(numbers),
            "name": name,
            "emailAddress": joined(user, "@", host, ".com"),
            "creditCard": joined(*_spaced([digits(4, count, rng) for _ in range(4)])),
            "city": one_of(CITIES, count, rng),
            "state": one_of(STATES, count, rng),
            "dateTime": _times(_ms(numbers, rate)),
            "extra": _extra(100, count, rng),
        }
    )


def _auctions(numbers: Ints, rng: np.random.Generator, rate: float) -> pa.Table:
    count, opened = len(numbers), _ms(numbers, rate)
    initial = _prices(count, rng)
    longest = np.maximum(2_000 * IN_FLIGHT * CYCLE / AUCTIONS / rate, 1)
    return pa.table(
        {
            "id": FIRST_ID + _last_auction(numbers),
            "itemName": letters(rng.integers(3, 20, count), rng),
            "description": letters(rng.integers(3, 100, count), rng),
            "initialBid": initial,
            "reserve": initial + _prices(count, rng),
            "dateTime": _times(opened),
            "expires": _times(opened + 1 + (rng.random(count) * longest).astype(np.int64)),
            "seller": _person(numbers, 0, rng),
            "category": FIRST_CATEGORY + rng.integers(0, CATEGORIES, count),
            "extra": _extra(300, count, rng),
        }
    )


def _bids(numbers: Ints, rng: np.random.Generator, rate: float) -> pa.Table:
    count, last = len(numbers), _last_auction(numbers)
    hot = last // HOT_STEP * HOT_STEP
    oldest = np.maximum(last - IN_FLIGHT, 0)
    some = oldest + rng.integers(0, last - oldest + 1 + LEAD)
    channel, url = _channels(count, rng)
    return pa.table(
        {
            "auction": FIRST_ID + np.where(rng.random(count) < HOT_AUCTION, hot, some),
            "bidder": _person(numbers, 1, rng),
            "price": _prices(count, rng),
            "channel": channel,
            "url": url,
            "dateTime": _times(_ms(numbers, rate)),
            "extra": _extra(68, count, rng),
        }
    )


def _last_person(numbers: Ints) -> Ints:
    """The newest person at an event, counted from 0."""
    return numbers // CYCLE


def _last_auction(numbers: Ints) -> Ints:
    """The newest auction at an event, counted from 0."""
    opened = np.clip(numbers % CYCLE - PERSONS, -1, AUCTIONS - 1)
    newest: Ints = np.maximum(numbers // CYCLE * AUCTIONS + opened, 0)
    return newest


def _person(numbers: Ints, hot_place: int, rng: np.random.Generator) -> Ints:
    """The person that an event refers to: the hot one, or one of the active."""
    last = _last_person(numbers)
    hot = last // HOT_STEP * HOT_STEP + hot_place
    oldest = np.maximum(last + 1 - ACTIVE, 0)
    some = oldest + rng.integers(0, last + 1 - oldest + LEAD)
    return FIRST_ID + np.where(rng.random(len(numbers)) < HOT_PERSON, hot, some)


def _channels(count: int, rng: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """The channel of each bid and its page: half are hot, with a page of their own."""
    kinds = HOT_CHANNELS + tuple(f"channel-{number}" for number in range(CHANNELS))
    names = [letters(np.full(len(kinds), 5), rng).to_pylist() for _ in range(3)]
    ids = [0] * len(HOT_CHANNELS) + rng.integers(0, 1 << 30, CHANNELS).tolist()
    pages = [
        f"https://www.nexmark.com/{first}/{two}/{three}/item.htm?query=1"
        + (f"&channel_id={number}" if number % 10 else "")
        for first, two, three, number in zip(*names, ids, strict=True)
    ]
    hot = rng.integers(0, len(HOT_CHANNELS), count)
    usual = len(HOT_CHANNELS) + rng.integers(0, CHANNELS, count)
    which = np.where(rng.random(count) < HOT_CHANNEL, hot, usual)
    return chosen(kinds, which), chosen(pages, which)


def _prices(count: int, rng: np.random.Generator) -> Ints:
    """Prices in cents from 1 to 1e6 dollars, even on a logarithmic scale."""
    return np.round(10 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _extra(size: int, count: int, rng: np.random.Generator) -> pa.Array:
    """Padding that brings an event to its usual size, plus or minus a fifth."""
    spread = size // 5
    return letters(rng.integers(size - spread, size + spread + 1, count), rng)


def _ms(numbers: Ints, rate: float) -> Ints:
    return BEGIN_MS + (numbers * (1000 / rate)).astype(np.int64)


def _times(milliseconds: Ints) -> pa.Array:
    return pa.array(milliseconds, pa.timestamp("ms"))


def _spaced(groups: list[pa.Array]) -> list[pa.Array | str]:
    return [part for group in groups for part in (group, " ")][:-1]
