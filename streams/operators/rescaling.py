"""Rescaling: the state of a dataflow over another number of buckets, without reading a row.

A bucket is a range of hashes, and runs are sorted by these: so each new bucket has of each old
one the part of its runs that is in its range (`trace.arrange.runs.clipped`). The files stay as
they are until merges rewrite them, as they would anyway.

    2 buckets   0 ------------- 0 1 ------------- 1
    3 buckets   0 ------- 0 1 ------- 1 2 ------- 2      1: the ends of the runs of 0, and the
                                                            beginnings of those of 1

That is so where runs are sorted by the hash that decides the bucket
(`plan.lowering.partitioning`). Other runs go over whole, where their bucket is in a new one.
If it is not, the dataflow is not rescaled: it hydrates.
"""

import heapq
from collections.abc import Mapping
from typing import assert_never

from streams.operators.context import RunsByOperator
from streams.operators.exchange import bucket_of, range_of
from streams.plan.lowering.partitioning import StateSpread, state_spread
from streams.plan.physical import Dataflow
from streams.trace.arrange.runs import RunName, clipped, joined
from streams.trace.columns import hash_keys

_Lists = dict[str, list[list[RunName]]]
"""By operator and arrangement, the runs that come from each old bucket."""


def rescaled(
    dataflow: Dataflow, runs: Mapping[int, RunsByOperator], before: int, after: int
) -> Mapping[int, RunsByOperator] | None:
    """Return the state over `after` buckets of a dataflow that has it over `before`.

    None if runs do not tell which of their rows belong in which bucket.
    """
    if before == after:
        return runs
    spread = state_spread(dataflow)
    collected: dict[int, _Lists] = {}
    for old, of_bucket in sorted(runs.items()):
        for name, names in of_bucket.items():
            shares = _shares(spread[int(name.partition(".")[0])], names, old, before, after)
            if shares is None:
                return None
            for new, share in shares.items():
                collected.setdefault(new, {}).setdefault(name, []).append(share)
    return {new: _merged(lists) for new, lists in collected.items()}


def _shares(
    spread: StateSpread, names: list[RunName], old: int, before: int, after: int
) -> dict[int, list[RunName]] | None:
    """Return the runs of an operator in one old bucket by their new buckets."""
    match spread:
        case _ if not names:
            return {}
        case StateSpread.TOGETHER:
            return {int(bucket_of(hash_keys([], 1), after)[0]): names}
        case StateSpread.ANYHOW:
            return {old * after // before: names}
        case StateSpread.BY_KEY:
            return _cut(names, range_of(old, before), after)
        case StateSpread.OTHERWISE:
            first, last = _new_buckets(range_of(old, before), after)
            return {first: names} if first == last else None
        case _:
            assert_never(spread)


def _cut(
    names: list[RunName], of_bucket: tuple[int, int], after: int
) -> dict[int, list[RunName]]:
    """Return the parts of a bucket's runs by their new buckets."""
    low, high = of_bucket
    first, last = _new_buckets(of_bucket, after)
    shares: dict[int, list[RunName]] = {}
    for new in range(first, last + 1):
        begin, end = range_of(new, after)
        if begin <= low and high <= end:
            parts = list(names)
        else:
            cut = (clipped(name, begin, end, of_bucket) for name in names)
            parts = [part for part in cut if part is not None]
        if parts:
            shares[new] = parts
    return shares


def _new_buckets(of_bucket: tuple[int, int], after: int) -> tuple[int, int]:
    """Return the first and the last new bucket that have a part of an old one's range."""
    low, high = of_bucket
    return low * after >> 32, (high - 1) * after >> 32


def _merged(lists: _Lists) -> RunsByOperator:
    """Return runs of several old buckets as those of one: the largest first.

    Those of each old bucket keep their order, which says what is newer; between old buckets,
    whose keys differ, any order is right, and this one makes later merges cheap. Parts of one
    run that meet again are one.
    """
    return {name: _in_order(shares) for name, shares in lists.items()}


def _in_order(shares: list[list[RunName]]) -> list[RunName]:
    runs: list[RunName] = []
    for run in heapq.merge(*shares, key=lambda run: -int(run[1])):
        both = joined(runs[-1], run) if runs else None
        if both is None:
            runs.append(run)
        else:
            runs[-1] = both
    return runs
