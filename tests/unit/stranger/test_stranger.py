"""The stranger knows nothing of ours, and folds a log as we do."""

import ast
import json
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import Offset, Timestamp
from streams.storage.log import event_codec, machine, rollup
from streams.storage.log.events import Event
from streams.storage.log.outcomes import Decision
from streams.storage.log.state import State
from streams.storage.read import reader as read
from tests.stranger import wire
from tests.stranger.fold import KEPT, WINDOW, Fold
from tests.stranger.reader import Missing, begin, pieces
from tests.stranger.values import Record, offsets
from tests.support import datadriven, shard_script
from tests.support.examples import examples
from tests.support.histories import History, histories

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "stranger").glob("*.py"))
MAY_IMPORT = {
    "confluent_kafka",
    "fastavro",
    "pyarrow",
    "tests.stranger",
} | sys.stdlib_module_names


def imported(path: Path) -> set[str]:
    kinds = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            kinds |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            kinds.add(node.module or "")
    return kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_stranger_imports_nothing_of_ours(path: Path) -> None:
    for name in imported(path):
        allowed = {name, name.partition(".")[0], ".".join(name.split(".")[:2])}
        assert allowed & MAY_IMPORT, f"{path.name} imports {name}"
    assert "import_module" not in path.read_text()


def test_there_is_a_stranger() -> None:
    assert {path.stem for path in FILES} >= {"client", "fold", "reader", "wire"}
    assert "fastavro" in imported(ROOT / "stranger" / "wire.py")


GOLDEN = sorted((ROOT / "golden" / "shard").glob("*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_stranger_folds_a_log_as_we_do(path: Path) -> None:
    golden = json.loads(path.read_text())
    fold = Fold()
    for offset, record in enumerate(golden["log"]):
        fold.step(offset, record["at_ms"], bytes.fromhex(record["value"]))
    assert folded(fold) == stated(bytes.fromhex(golden["state"]))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_stranger_loads_a_state_as_if_it_had_folded_it(path: Path) -> None:
    body = bytes.fromhex(json.loads(path.read_text())["state"])
    fold = Fold()
    fold.load(wire.decode(body)[1])
    assert folded(fold) == stated(body)


@pytest.mark.parametrize("script", datadriven.scripts("shard"), ids=lambda path: path.stem)
def test_the_stranger_folds_every_script_as_we_do(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = Fold()

    def both(state: State, event: Event, offset: Offset, at_ms: int) -> tuple[State, Decision]:
        fold.step(offset, at_ms, event_codec.encode(event))
        after, outcome = machine.step(state, event, offset, at_ms)
        if not event.id.endswith(f"noise{offset}"):
            assert folded(fold) == stated(rollup.encode(after)), f"{offset}: {event}"
        return after, outcome

    monkeypatch.setattr(shard_script, "step", both)
    datadriven.run(script, shard_script.ShardScript().handle)
    assert fold.upto >= 0


@examples(40)
@given(histories())
def test_the_stranger_folds_any_log_as_we_do(history: History) -> None:
    fold = Fold()
    for number, (event, at_ms) in enumerate(history.records):
        fold.step(number, at_ms, event_codec.encode(event))
    assert folded(fold) == stated(rollup.encode(history.state))


@examples(40)
@given(histories(), st.integers(0, 60), st.integers(1, 30))
def test_the_stranger_reads_what_we_read(history: History, lower: int, width: int) -> None:
    fold = Fold()
    fold.load(wire.decode(rollup.encode(history.state))[1])
    upper = lower + width
    for id_, ours in history.state.collections.items():
        collection = fold.collections[id_]
        actual = pieces(collection, collection["since"], lower, upper)
        expected = read.pieces(ours, Timestamp(lower), Timestamp(upper))
        assert sorted((chunk["key"], *bounds) for chunk, bounds in actual) == sorted(
            (piece.ref.key, piece.lower, piece.upper) for piece in expected
        )


def folded(fold: Fold) -> dict[str, Any]:
    """The stranger's state as a record of `shard_state`; of outcomes only where they are."""
    oldest = fold.upto - WINDOW
    return {
        "group": fold.group,
        "upto": fold.upto,
        "clock_ms": fold.clock,
        "appended_ms": fold.appended,
        "collections": [
            {
                **{name: collection[name] for name in PLAIN},
                "id": id_,
                "source": offsets(collection["source"]),
                "fenced": sorted(collection["fenced"]),
                "capabilities": [
                    {"id": name, **capability}
                    for name, capability in sorted(collection["capabilities"].items())
                ],
                "batches": [
                    {**batch, "source": offsets(batch["source"])}
                    for batch in sorted(collection["batches"], key=itemgetter("offset", "part"))
                ],
            }
            for id_, collection in sorted(fold.collections.items())
            if collection["since"] is not None
        ],
        "dropped": sorted(
            i for i, collection in fold.collections.items() if collection["since"] is None
        ),
        "decided": {id_: at for id_, at in fold.decided.items() if at >= oldest},
        "kept": list(fold.commands)[-KEPT:],
        "floor": offsets(fold.floor),
        "stages": [{"name": name, **stage} for name, stage in sorted(fold.stages.items())],
        "superseded": fold.superseded,
        "rollups": fold.rollups,
    }


PLAIN = ("description", "since", "upper", "fingerprint", "changed", "released", "sealing")


def stated(body: bytes) -> dict[str, Any]:
    """Our state in the same form: without ranges of chunks, which a fold does not need."""
    _, state = wire.decode(body)
    batches = [batch for collection in state["collections"] for batch in collection["batches"]]
    for holder in (*batches, *state["stages"], *state["superseded"], *state["rollups"]):
        for chunk in holder["chunks"]:
            chunk.pop("ranges", None)
    decided = {outcome["id"]: outcome["offset"] for outcome in state["decided"]}
    return {**state, "decided": decided, "kept": [outcome["id"] for outcome in state["kept"]]}


def rollup_of(upto: int, chunks: dict[tuple[int, int], bytes]) -> bytes:
    """A log record that rolls up a state through `upto`, whose chunks are put aside."""
    body = rollup.encode(State(group="g", upto=Offset(upto), clock_ms=1_000))
    cuts = (body[:20], body[20:])
    places = [(number, upto) for number in range(len(cuts))]
    chunks.update(zip(places, cuts, strict=True))
    refs = [
        {
            "partition": place[0],
            "offset": place[1],
            "key": "k",
            "checksum": 0,
            "rows": 0,
            "size": len(cut),
        }
        for place, cut in zip(places, cuts, strict=True)
    ]
    own = {"upto": upto, "chunks": refs, "hash": rollup.hash_of(body)}
    return wire.encode("shard_rollup", {"id": f"r{upto}", "group": "g", "seen": upto, **own})


class Chunks(dict[tuple[int, int], bytes]):
    """A data topic."""

    def fetch(self, ref: Record) -> bytes:
        try:
            return self[ref["partition"], ref["offset"]]
        except KeyError as cause:
            raise Missing from cause


def test_the_stranger_begins_before_the_furthest_rollup_if_it_can() -> None:
    chunks = Chunks()
    furthest, older, void = (rollup_of(upto, chunks) for upto in (191, 127, 63))
    log = [older, furthest, void]  # a void one came last
    assert begin(log, 128, chunks.fetch).upto == 127
    for place in [place for place in chunks if place[1] == 63]:
        del chunks[place]  # nobody keeps its chunks
    assert begin(log, 64, chunks.fetch).upto == 127
    missing = chunks.pop((0, 127))
    assert begin(log, 128, chunks.fetch).upto == 191
    assert begin(log, 0, chunks.fetch).upto == -1
    chunks[0, 127] = missing
    del chunks[1, 191]
    assert begin(log, 128, chunks.fetch).upto == 127
    with pytest.raises(AssertionError, match="lost"):
        begin(log, 129, chunks.fetch)


def test_the_stranger_passes_over_a_rollup_whose_bytes_are_not_what_was_meant() -> None:
    chunks = Chunks()
    record = rollup_of(127, chunks)
    chunks[1, 127] = chunks[1, 127][:-1] + b"x"
    assert begin([record], 0, chunks.fetch).upto == -1
    with pytest.raises(AssertionError, match="lost"):
        begin([record], 1, chunks.fetch)


@pytest.mark.parametrize("is_true", [True, False])
def test_the_stranger_checks_a_rollup_by_the_records_before_it(is_true: bool) -> None:
    golden = json.loads((ROOT / "golden" / "shard" / "rollup.json").read_text())
    log = [(entry["at_ms"], bytes.fromhex(entry["value"])) for entry in golden["log"]]
    kinds = [wire.decode(value)[0] for _, value in log]
    log = log[: kinds.index("shard_rollup") + 1]
    upto = wire.decode(log[-1][1])[1]["upto"]
    source, state = Fold(), State()
    for offset, (at_ms, value) in enumerate(log[: upto + 1]):
        state, _ = machine.step(state, event_codec.decode(value), Offset(offset), at_ms)
    body = wire.decode(rollup.encode(state))[1]
    source.expected = {upto: body if is_true else {**body, "clock_ms": 1}}
    for offset, (at_ms, value) in enumerate(log[:-1]):
        source.step(offset, at_ms, value)
    if is_true:
        source.step(len(log) - 1, *log[-1])
        assert source.rollups[-1]["upto"] == upto
    else:
        with pytest.raises(AssertionError, match="not what the records come to"):
            source.step(len(log) - 1, *log[-1])
