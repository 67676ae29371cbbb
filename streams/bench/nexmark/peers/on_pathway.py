"""The queries in Pathway's own terms, in this process with its threads.

Input is read in static mode: all of it is one commit, so that each query is answered once and
nothing is put out to be taken back, which is less work than to keep it while events come.
`seconds` runs from `pw.run`'s call to its return, when the input has ended; `cpu_seconds` is
what this process used meanwhile.

Source: Pathway documentation, "API", `pathway.io.jsonlines`, `pathway.temporal`,
`pathway.reducers`.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

QUERY, INPUTS, WORKERS, _, *CHANGELOG = sys.argv[1:]
os.environ["PATHWAY_THREADS"] = WORKERS  # read when it is imported

import pathway as pw  # noqa: E402

COLUMNS: dict[str, dict[str, dict[str, type]]] = {
    "aggregate": {"bid": {"auction": int, "price": int}},
    "q3": {
        "auction": {"id": int, "seller": int, "category": int},
        "person": {"id": int, "name": str, "city": str, "state": str},
    },
    "q4": {
        "auction": {"id": int, "category": int, "dateTime": str, "expires": str},
        "bid": {"auction": int, "price": int, "dateTime": str},
    },
    "q5": {"bid": {"auction": int, "dateTime": str}},
    "hop": {"bid": {"auction": int, "dateTime": str}},
    "topk": {"bid": {"auction": int, "bidder": int, "price": int, "dateTime": str}},
}
ROW = tuple[int, pw.DateTimeNaive, int]
CATEGORY = 10
FORMAT = "%Y-%m-%dT%H:%M:%S.%f"


def read(kind: str) -> pw.Table:
    """A relation, with the columns that the query reads; times are parsed."""
    columns = {
        f"{kind}_{name}": pw.column_definition(dtype=dtype, name=f"{kind}_{name}")
        for name, dtype in COLUMNS[QUERY][kind].items()
    }
    paths = {f"{kind}_{name}": f"/{name}" for name in COLUMNS[QUERY][kind]}
    table = pw.io.jsonlines.read(
        str(Path(INPUTS) / kind),
        schema=pw.schema_builder(columns),
        json_field_paths=paths,
        mode="static",
    )
    times = {
        name: table[name].dt.strptime(FORMAT)
        for name in columns
        if name.endswith(("dateTime", "expires"))
    }
    return table.with_columns(**times)


def aggregate() -> pw.Table:
    """Count, sum and maximum by auction."""
    bid = read("bid")
    return bid.groupby(bid.bid_auction).reduce(
        auction=bid.bid_auction,
        bids=pw.reducers.count(),
        total=pw.reducers.sum(bid.bid_price),
        best=pw.reducers.max(bid.bid_price),
    )


def q3() -> pw.Table:
    """Auctions of a category by persons of some states."""
    auction, person = read("auction"), read("person")
    some = auction.filter(auction.auction_category == CATEGORY)
    state = person.person_state
    near = person.filter((state == "OR") | (state == "ID") | (state == "CA"))
    return some.join(near, some.auction_seller == near.person_id).select(
        name=near.person_name,
        city=near.person_city,
        state=near.person_state,
        auction=some.auction_id,
    )


def q4() -> pw.Table:
    """The average by category of the best bids in time."""
    auction, bid = read("auction"), read("bid")
    both = auction.join(bid, auction.auction_id == bid.bid_auction).select(
        auction=auction.auction_id,
        category=auction.auction_category,
        price=bid.bid_price,
        at=bid.bid_dateTime,
        begin=auction.auction_dateTime,
        end=auction.auction_expires,
    )
    in_time = both.filter((both.at >= both.begin) & (both.at <= both.end))
    best = in_time.groupby(in_time.auction, in_time.category).reduce(
        category=in_time.category, final=pw.reducers.max(in_time.price)
    )
    return best.groupby(best.category).reduce(
        category=best.category, average=pw.reducers.avg(best.final)
    )


def hop() -> pw.Table:
    """The number of bids of each auction in each window of 10 s, every 2 s."""
    bid = read("bid")
    window = pw.temporal.sliding(hop=timedelta(seconds=2), duration=timedelta(seconds=10))
    return bid.windowby(bid.bid_dateTime, window=window, instance=bid.bid_auction).reduce(
        auction=pw.this._pw_instance,  # noqa: SLF001 - that is how it is named
        start=pw.this._pw_window_start,  # noqa: SLF001
        num=pw.reducers.count(),
    )


def q5() -> pw.Table:
    """The auctions with the most bids in each window of 10 s, every 2 s."""
    counts = hop()
    most = counts.groupby(counts.start).reduce(counts.start, most=pw.reducers.max(counts.num))
    return counts.join(most, counts.start == most.start, counts.num == most.most).select(
        counts.auction, counts.num
    )


def topk() -> pw.Table:
    """The ten highest bids of each auction."""
    bid = read("bid")
    row = pw.make_tuple(-bid.bid_price, bid.bid_dateTime, bid.bid_bidder)
    bid = bid.select(auction=bid.bid_auction, row=row)
    top = bid.groupby(bid.auction).reduce(bid.auction, rows=pw.reducers.sorted_tuple(bid.row))
    first = top.select(top.auction, row=pw.apply_with_type(_ten, list[ROW], top.rows))
    flat = first.flatten(first.row)
    return flat.select(
        flat.auction, bidder=flat.row[2], price=-flat.row[0], dateTime=flat.row[1]
    )


def _ten(rows: tuple[object, ...]) -> list[object]:
    return list(rows[:10])


QUERIES = {"aggregate": aggregate, "q3": q3, "q4": q4, "q5": q5, "hop": hop, "topk": topk}


def main() -> None:
    """Run one query and say what it took."""
    result = QUERIES[QUERY]()
    if CHANGELOG:
        pw.io.jsonlines.write(result, CHANGELOG[0])
    else:
        pw.io.null.write(result)
    began, cpu = time.perf_counter(), time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    taken = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    print(json.dumps(taken))  # noqa: T201


main()
