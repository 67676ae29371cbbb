"""Golden vectors of logs that an operator had repaired (CLIENTS.md 4.7).

As in `shard/*.json`; a record whose `value` is null is not there, and one whose `at_ms` is null
has its writer's time. `ADD=1` writes missing files.
"""

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from streams.ids import EventId, Offset, Timestamp, Topic
from streams.kafka.log import Entry
from streams.storage.client.bootstrap import LogRange, fold_entries
from streams.storage.client.group import Group, GroupTopics
from streams.storage.log import event_codec, rollup, skipping
from streams.storage.log.events import Advance, Event
from streams.storage.log.skipping import Skip
from streams.storage.log.state import State
from tests.golden.test_shard import CREATE
from tests.stranger.fold import Fold
from tests.stranger.reader import forward, reach, skipped
from tests.unit.stranger.test_stranger import folded as stranger_state
from tests.unit.stranger.test_stranger import stated

FOLDER = Path(__file__).parent / "repaired"
LOG = Topic("sw.g.log")
UUID = "f00d" * 8
Values = Sequence[bytes | None]


def event(number: int, body: object) -> bytes:
    return event_codec.encode(Event(EventId(f"{number:032x}"), UUID, Offset(number - 1), body))  # type: ignore[arg-type]


def word(number: int, offset: int, value: bytes | None) -> bytes:
    checksum = None if value is None else zlib.crc32(value)
    skip = Skip(
        EventId(f"{number:032x}"), UUID, Offset(number - 1), Offset(offset), checksum, "x"
    )
    return skipping.encode(skip)


def passing(number: int, upto: int) -> bytes:
    return event(number, Advance(Timestamp(5), Timestamp(upto)))


CASES: dict[str, Values] = {
    "foreign": [
        event(0, CREATE),
        b"noise",
        passing(2, 9),
        word(3, 1, b"noise"),
        passing(4, 12),
    ],
    "sound": [event(0, CREATE), passing(1, 9), word(2, 1, passing(1, 9)), passing(3, 7)],
    "other-value": [event(0, CREATE), passing(1, 9), word(2, 1, b"noise"), passing(3, 12)],
    "mark": [event(0, CREATE), None, passing(2, 9), None],
    "marks": [event(0, CREATE), None, None, passing(3, 9), word(4, 1, None), word(5, 2, None)],
    "own-time": [
        event(0, CREATE),
        passing(1, 9),
        passing(2, 7),
        word(3, 1, passing(1, 9)),
    ],
}
OWN_TIME = {"own-time": {1}}
"""Offsets of records that have their writer's time."""


def times_of(name: str) -> list[int | None]:
    own = OWN_TIME.get(name, set())
    offsets = range(len(CASES[name]))
    return [None if offset in own else 1_000_000 + 100 * offset for offset in offsets]


def log_of(times: Sequence[int | None], values: Values) -> list[tuple[int, int | None, bytes]]:
    every = enumerate(zip(times, values, strict=True))
    return [(offset, at_ms, value) for offset, (at_ms, value) in every if value is not None]


def state_of(name: str) -> State:
    values = CASES[name]
    entries = [
        Entry(LOG, Offset(offset), at_ms or -1, value, is_append_time=at_ms is not None)
        for offset, at_ms, value in log_of(times_of(name), values)
    ]
    group = Group(GroupTopics("g", LOG, Topic("sw.g.data")), topic_id=UUID, uuid=UUID)
    skips = skipping.skips_of(entries)
    past = LogRange(group, Offset(0), Offset(len(values)), entries, skips, (None,), ())
    assert fold_entries(past, State()) is False
    return group.state


@pytest.mark.parametrize("name", CASES)
def test_a_repaired_log_folds_to_its_golden_state(name: str) -> None:
    path = FOLDER / f"{name}.json"
    body = rollup.encode(state_of(name))
    golden = {
        "log": [
            {"at_ms": at_ms, "value": value and value.hex()}
            for at_ms, value in zip(times_of(name), CASES[name], strict=True)
        ],
        "state": body.hex(),
        "hash": rollup.hash_of(body),
    }
    if not path.exists() and os.environ.get("ADD"):
        path.write_text(json.dumps(golden, indent=1) + "\n")
    assert golden == json.loads(path.read_text())


@pytest.mark.parametrize("name", CASES)
def test_the_stranger_passes_over_what_we_pass_over(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    values = [value and bytes.fromhex(value) for value in (e["value"] for e in golden["log"])]
    log, fold = log_of([entry["at_ms"] for entry in golden["log"]], values), Fold()
    skips = skipped((offset, value) for offset, _, value in log)
    for record in log:
        forward(fold, skips, *record)
    reach(fold, skips, len(values))
    assert stranger_state(fold) == stated(bytes.fromhex(golden["state"]))


def test_what_is_passed_over_is_as_if_it_were_not() -> None:
    assert state_of("foreign").upto == 4
    upper = {name: state_of(name).collections["u1"].upper.time for name in CASES}  # type: ignore[index]
    assert upper == {
        "foreign": 9,
        "sound": 7,
        "other-value": 9,
        "mark": 9,
        "marks": 9,
        "own-time": 7,
    }
