"""The remembered outcomes of quiet groups as compressed bytes: 1,024 take 27 KiB, not 340.

A fold remembers a thousand outcomes and more (`streams.storage.window`), and the states at the
ends of stretches still more. In a group where nothing happens they are mostly read by no one;
packed ones are unpacked when somebody asks, as those that came with a Rollup are. Nothing that
a fold answers depends on whether its state was packed, nor do the bytes and hash of a Rollup.
"""

import zlib
from collections.abc import Iterator, Sequence

from schemas import codec
from schemas.codec import Record
from streams.ids import Offset
from streams.storage import decided, rollup
from streams.storage.state import State
from streams.storage.window import Decided, Earlier, Kept, Window, earlier_of

WORTH = 32
"""A group is packed after so many records; the outcomes of fewer, 10 KiB, stay as they are."""

EMPTY: Record = {
    "group": "",
    "upto": 0,
    "clock_ms": 0,
    "collections": [],
    "floor": [],
    "stages": [],
    "superseded": [],
    "rollups": [],
}


def packed(states: Sequence[State]) -> list[State]:
    """States of one group, in the order of its log, which share the bytes of their outcomes."""
    window = _joined([list(each.window.remembered(each.upto)) for each in states])
    kept = _joined([list(each.kept) for each in states])
    fields = {
        "decided": [decided.to_record(each) for each in window],
        "kept": [decided.to_record(each) for each in kept],
    }
    body = zlib.compress(codec.encode(rollup.KEEPING, {**EMPTY, **fields}))
    return [
        state.moved(
            window=Window(earlier=_earlier(body, "decided", state.upto) if window else None),
            kept=Kept(earlier=_earlier(body, "kept", state.upto) if kept else None),
        )
        for state in states
    ]


def _joined(parts: Sequence[list[Decided]]) -> list[Decided]:
    """What is in any of the parts, each of which begins and ends no earlier than the last."""
    joined: list[Decided] = []
    for part in parts:
        upto = joined[-1].offset if joined else Offset(-1)
        joined.extend(each for each in part if each.offset > upto)
    return joined


def _earlier(body: bytes, field: str, upto: Offset) -> Earlier:
    """The outcomes of a field through `upto`, unpacked each time: nothing holds them."""
    return earlier_of(
        upto,
        lambda: tuple(_read(body, field, upto)),
        lambda id_: id_.encode() in zlib.decompress(body),
    )


def _read(body: bytes, field: str, upto: Offset) -> Iterator[Decided]:
    _, record = codec.decode(zlib.decompress(body))
    found = map(decided.from_record, record[field])
    return (each for each in found if each.offset <= upto)
