"""Nexmark's events are what its description says, and its queries are kept exactly."""

import json

import numpy as np
import pytest

from streams.bench import json_lines
from streams.bench.nexmark.events import COLUMNS, events
from streams.bench.nexmark.queries import QUERIES
from tests.support import nexmark

SOME = events(50_000, seed=3)


def test_events_are_a_function_of_their_number_and_seed() -> None:
    again, other = events(50_000, seed=3), events(50_000, seed=4)
    assert all(again.of(kind).equals(SOME.of(kind)) for kind in COLUMNS)
    assert not any(other.of(kind).equals(SOME.of(kind)) for kind in COLUMNS)


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    assert [SOME.of(kind).num_rows for kind in COLUMNS] == [1_000, 3_000, 46_000]
    assert SOME.person["id"].to_pylist() == list(range(1_000, 2_000))
    assert SOME.auction["id"].to_pylist() == list(range(1_000, 4_000))


def test_half_of_the_bids_are_on_the_hot_auction() -> None:
    auctions = SOME.bid["auction"].to_numpy()
    newest = SOME.auction["id"].to_numpy()[np.arange(len(auctions)) // 46 * 3 + 2]
    hot = (newest - 1_000) // 100 * 100 + 1_000
    assert 0.48 < (auctions == hot).mean() < 0.54
    assert (auctions >= newest - 103).all()
    assert (auctions <= newest + 10).all()


def test_prices_are_even_on_a_logarithmic_scale() -> None:
    prices = np.log10(SOME.bid["price"].to_numpy() / 100)
    counts, _ = np.histogram(prices, bins=6, range=(0, 6))
    assert (abs(counts / len(prices) - 1 / 6) < 0.01).all()


def test_an_auction_is_open_for_a_while() -> None:
    opened, expires = (SOME.auction[name].to_numpy() for name in ("dateTime", "expires"))
    open_ms = (expires - opened).astype(int)
    assert open_ms.min() >= 1
    assert open_ms.max() <= 2_000 * 100 * 50 / 3 / 10_000 + 1


@pytest.mark.parametrize("kind", COLUMNS)
def test_an_event_is_one_json_object_with_its_columns(kind: str) -> None:
    rows = SOME.of(kind).slice(0, 100)
    documents = [json.loads(text) for text in json_lines.texts(rows).to_pylist()]
    names = [part.split()[0] for part in COLUMNS[kind].split(", ")]
    assert all(list(document) == names for document in documents)
    want = rows.to_pylist()
    for row in want:
        times = {k: v.isoformat(timespec="milliseconds") for k, v in row.items() if k in
                 {"dateTime", "expires"}}  # fmt: skip
        row.update(times)
    assert documents == want


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_duckdbs_answer_at_every_time(name: str) -> None:
    updates = nexmark.tables(2_000 if name == "q2" else 400, seed=5)
    maintained = nexmark.view(name, updates, frontiers=[1, 3, 4, 2 * nexmark.TIMES])
    assert nexmark.compare(name, maintained, updates) > 0
