"""Compresses the remembered outcomes of quiet groups: 1,024 take 21 KiB instead of 340 KiB.

A fold remembers a thousand outcomes and more (`streams.storage.log.dedup_window`), and the
states at the ends of segments still more. In a quiet group they are rarely read; packed ones
are unpacked on lookup, like those that came with a Rollup. Neither the outcomes of a fold nor
the bytes and hash of a Rollup depend on packing.

The outcomes of commands are remembered twice, by the window and for longer. Their bytes are
held once, because names are random and hardly compress. bz2 output is a fifth smaller than
zlib's, for 3 ms per lookup.
"""

import bz2
from collections.abc import Iterator, Sequence

from schemas import codec
from schemas.codec import Record
from streams.ids import Offset
from streams.storage.log import outcome_codec, rollup
from streams.storage.log.dedup_window import (
    RecentOutcomes,
    RecordedOutcome,
    RememberedOutcomes,
    Window,
    earlier_of,
)
from streams.storage.log.state import State

WORTH = 32
"""Minimum of records before a group is packed; the outcomes of fewer, 10 KiB, stay as they are.
"""

EMPTY: Record = {
    "group": "",
    "upto": 0,
    "clock_ms": 0,
    "appended_ms": 0,
    "collections": [],
    "dropped": [],
    "floor": [],
    "stages": [],
    "superseded": [],
    "rollups": [],
}


def pack(states: Sequence[State]) -> list[State]:
    """Return states of one group, in log order, that share the bytes of their outcomes."""
    window = _joined([list(state.window.remembered(state.upto)) for state in states])
    kept = _joined([list(state.kept) for state in states])
    shared = _shared(window, kept)
    own = [decision for decision in window if decision.offset not in shared]
    fields = {
        "decided": [outcome_codec.to_record(decision) for decision in own],
        "kept": [outcome_codec.to_record(decision) for decision in kept],
    }
    body = bz2.compress(codec.encode(rollup.SCHEMA, {**EMPTY, **fields}))
    start = min(shared, default=None)
    return [
        state.moved(
            window=Window(earlier=_earlier(state.upto, body, start) if window else None),
            kept=RecentOutcomes(earlier=_earlier(state.upto, body) if kept else None),
        )
        for state in states
    ]


def _shared(
    window: Sequence[RecordedOutcome], kept: Sequence[RecordedOutcome]
) -> frozenset[Offset]:
    """Return the offset from which on all kept outcomes are in the window too."""
    if not window:
        return frozenset()
    by_offset = {decision.offset: decision for decision in window}
    late = [decision for decision in kept if decision.offset >= window[0].offset]
    are_same = all(by_offset.get(decision.offset) == decision for decision in late)
    return frozenset(decision.offset for decision in late) if are_same else frozenset()


def _joined(parts: Sequence[list[RecordedOutcome]]) -> list[RecordedOutcome]:
    """The union of the parts, each of which begins and ends no earlier than the previous."""
    joined: list[RecordedOutcome] = []
    for part in parts:
        upto = joined[-1].offset if joined else Offset(-1)
        joined.extend(decision for decision in part if decision.offset > upto)
    return joined


def _earlier(upto: Offset, body: bytes, *shared_from: Offset | None) -> RememberedOutcomes:
    """Return outcomes through `upto` that are unpacked at each lookup and not cached.

    Without `shared_from` they are the kept ones. With it they are the window's: its own
    outcomes, and the kept ones from that offset on, if there is one.
    """

    def read() -> tuple[RecordedOutcome, ...]:
        kept = _read(body, "kept", upto)
        if not shared_from:
            return tuple(kept)
        (start,) = shared_from
        shared = (
            () if start is None else (decision for decision in kept if decision.offset >= start)
        )
        own = _read(body, "decided", upto)
        return tuple(sorted((*own, *shared), key=lambda decided: decided.offset))

    return earlier_of(upto, read, lambda id_: id_.encode() in bz2.decompress(body))


def _read(body: bytes, field: str, upto: Offset) -> Iterator[RecordedOutcome]:
    _, record = codec.decode(bz2.decompress(body))
    outcomes = map(outcome_codec.from_record, record[field])
    return (decision for decision in outcomes if decision.offset <= upto)
