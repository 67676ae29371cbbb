"""Each command and each mistake, answered; one bad command stops nobody."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from schemas import chunk
from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import CapabilityId, CollectionId, Topic
from streams.kafka.client.transactions import Fenced
from streams.kafka.log import ChunkWrite
from streams.kafka.memory.faulty import Fault, FaultyChunks, FaultyLogs
from streams.progress import frontier
from streams.storage import limits, sans_io
from streams.storage.client import submit
from streams.storage.client.handles import WriteCapability
from streams.storage.commands import handlers
from streams.storage.commands import session as session_module
from streams.storage.commands.session import TRIES, readable_responses
from tests.support.command_service import (
    DESCRIPTION,
    NAMES,
    SCHEMA,
    Killed,
    Record,
    World,
    code,
    made,
    stream,
    update,
)


@pytest.fixture
def world() -> World:
    return World()


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


FINE = stream(("a", 1, 0, 1))
MISTAKES: dict[str, tuple[str, Record]] = {
    "another type": (
        "WrongRows",
        {"updates": ipc(pa.table({"name": ["a"], "size": ["b"], "time": [0], "diff": [1]}))},
    ),
    "another column": (
        "WrongRows",
        {"updates": ipc(pa.table({"a": ["a"], "size": [1], "time": [0], "diff": [1]}))},
    ),
    "no time": ("WrongRows", {"updates": stream(("a", 1, None, 1))}),
    "not arrow": ("WrongRows", {"updates": b"not arrow"}),
    "cut off": ("WrongRows", {"updates": FINE[: len(FINE) // 2]}),
    "too late": ("OutsideInterval", {"updates": stream(("a", 1, 5, 1))}),
    "too early": ("OutsideInterval", {"updates": stream(("a", 1, -1, 1))}),
    "nothing between": ("NothingBetween", {"new_frontier": 0}),
    "backward": ("NotForward", {"new_frontier": -1, "updates": None}),
    "a missing chunk": (
        "WrongRows",
        {
            "chunks": [
                {"partition": 0, "offset": 9, "key": "k", "checksum": 0, "rows": 1, "size": 1}
            ]
        },
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_wrong_update_is_refused_with_what_is_wrong(world: World, case: str) -> None:
    _, write = made(world)
    expected, change = MISTAKES[case]
    share = {"capability": write, "updates": FINE, "new_frontier": 5, **change}
    assert code(world.ask("update_and_downgrade", writes=[share])) == expected
    done = world.ask("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    assert done["status"] == "DONE"


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("InvalidCapability", {"name": "foreign"}),
        ("InvalidCapability", {"right": "READ"}),
        ("NotBound", {"collection": "nowhere"}),
        ("FencedCapability", {"token": "wrong"}),
    ],
)
def test_a_capability_is_honoured_as_it_is(
    world: World, expected: str, change: dict[str, str]
) -> None:
    _, write = made(world)
    changed = {**write, **change}
    assert code(world.ask("update_and_downgrade", **update(changed, 5))) == expected


def test_rows_may_go_below_zero_only_where_nobody_looks(world: World) -> None:
    _, write = made(world)
    fields = update(write, 5, ("a", 1, 0, -1))
    refused = world.ask("update_and_downgrade", **fields, check_counts=True)
    assert code(refused) == "NegativeMultiplicity"
    assert world.ask("update_and_downgrade", **fields)["status"] == "DONE"


def test_leases_are_asked_for_soundly(world: World) -> None:
    wrong = [{"critical": True, "lease_ms": 5}, {"lease_ms": 0}]
    for value in wrong:
        refused = world.ask("create", collection="x", description=DESCRIPTION, **value)
        assert code(refused) == "InvalidUsage"
    read, _ = made(world, lease_ms=1_000)
    world.now_ms += 5_000
    assert code(world.ask("heartbeat", capability=read)) == "InvalidCapability"
    assert code(world.ask("clone", capability=read, lease_ms=0)) == "InvalidUsage"


def test_descriptions_are_checked_before_an_id_is_given_away(world: World) -> None:
    odd = DESCRIPTION.replace("INTEGER", "NONSENSE")
    for text in ("", "{}", "[1]", odd):
        refused = world.ask("create", collection="t", description=text)
        assert code(refused) == "InvalidUsage"
    for id_ in ("", "x/y", "storage.ids"):
        refused = world.ask("create", collection=id_, description=DESCRIPTION)
        assert code(refused) == "InvalidUsage"
    early = world.ask("create", collection="t", description=DESCRIPTION, start=-1)
    assert code(early) == "InvalidUsage"
    made(world)


def test_what_a_system_feeds_gives_no_right_to_write(world: World) -> None:
    text = DESCRIPTION.replace("table", "source")
    read, write = world.ask("create", collection="s", description=text)["capabilities"]
    assert (read["frontier"], write["frontier"]) == (0, None)


def test_chunks_written_beforehand_are_linked_once_they_are_sound(world: World) -> None:
    _, write = made(world)
    rows = pa.table([["b"], [2], [3], [1]], schema=SCHEMA).rename_columns(
        ["c0", "c1", "time", "diff"]
    )
    bodies = chunk.encode(rows, ("name", "size"))
    ((ref,),) = world.broker.chunks.write_all(
        [ChunkWrite(data_topic(world), bodies, headers(world))]
    )
    record = {name: getattr(ref, name) for name in ("partition", "offset", "key", "checksum")}
    record |= {"rows": 1, "size": ref.size}
    share = {"capability": write, "updates": FINE, "chunks": [record], "new_frontier": 5}
    few = {**share, "chunks": [{**record, "rows": 2}]}
    assert code(world.ask("update_and_downgrade", writes=[few])) == "WrongRows"
    early = {**share, "new_frontier": 3}
    assert code(world.ask("update_and_downgrade", writes=[early])) == "OutsideInterval"
    assert world.ask("update_and_downgrade", writes=[share])["status"] == "DONE"
    state = world.storage()
    state.acquire_capabilities(CollectionId("t"))
    linked = [
        chunk_ref
        for b in state.shards.state(CollectionId("t")).batches
        for chunk_ref in b.chunks
    ]
    assert len(linked) == 2
    assert ref in linked


def test_a_stage_is_for_who_may_write_and_holds_what_an_update_can_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = made(world)
    ref = {"partition": 0, "offset": 9, "key": "k", "checksum": 0, "rows": 1, "size": 1}

    def staged(**more: Any) -> Record:
        fields = {"capability": write, "stage": "load", "chunks": [ref], **more}
        return world.ask("stage", **fields)

    assert code(staged(capability=read)) == "InvalidCapability"
    assert code(staged(capability={**write, "token": "wrong"})) == "FencedCapability"
    assert code(staged(capability={**write, "collection": "nowhere"})) == "NotBound"
    for wrong in ({"stage": ""}, {"lease_ms": -1}):
        assert code(staged(**wrong)) == "InvalidUsage"
    for large in ({"stage": "s" * 101}, {"lease_ms": 1 << 62}):
        assert code(staged(**large)) == "TooLarge"
    done = staged(lease_ms=60_000)
    assert (done["status"], done["capabilities"]) == ("DONE", [])
    monkeypatch.setattr(sans_io, "MOST_CHUNKS", 1)
    assert code(staged()) == "TooLarge"
    assert staged(chunks=[])["status"] == "DONE"
    world.ask("update_and_downgrade", **update(write, None))
    assert code(staged()) == "Sealed"


def headers(world: World) -> Mapping[str, bytes]:
    """What stands beside the chunks of t."""
    storage = world.storage()
    for capability in storage.acquire_capabilities(CollectionId("t")):  # it opens the group
        storage.drop(capability)
    return storage.shards.headers(CollectionId("t"))


def data_topic(world: World) -> Any:
    (topic,) = (name for name in world.broker.topics.names() if name.endswith("t.data"))
    return topic


def test_a_command_that_is_too_large_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = made(world)
    monkeypatch.setattr(handlers, "LARGEST_ROWS", 10)
    large = world.ask("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    assert code(large) == "TooLarge"
    shares = update(write, 5)["writes"] * (limits.MOST_SHARES + 1)
    assert code(world.ask("update_and_downgrade", writes=shares)) == "TooLarge"
    monkeypatch.setattr(handlers, "LARGEST_ROWS", 1 << 20)
    world.ask("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    monkeypatch.setattr(handlers, "MOST_PIECES", 0)
    assert code(world.ask("subscribe_at", capability=read)) == "TooLarge"


def test_a_filter_leaves_chunks_out(world: World) -> None:
    read, write = made(world)
    rows = [(f"n{n}", n, 0, 1) for n in range(300)]
    world.ask("update_and_downgrade", **update(write, 5, *rows))
    for value, expected in ((299, 1), (300, 0)):
        where = [{"column": "size", "operator": ">=", "value": value}]
        cut = world.ask("subscribe_at", capability=read, where=where)["cut"]
        assert len(cut["chunks"]) == expected
    for column, operator in (("size", "like"), ("nope", "=")):
        where = [{"column": column, "operator": operator, "value": 1}]
        refused = world.ask("subscribe_at", capability=read, where=where)
        assert code(refused) == "InvalidUsage"
    assert code(world.ask("subscribe_at", capability=read, after=-1)) == "InvalidUsage"
    assert code(world.ask("subscribe_at", capability=write)) == "InvalidCapability"


def test_a_log_that_cannot_be_read_fails_its_commands_alone(world: World) -> None:
    _, write = made(world)
    other = world.ask("create", collection="u", description=DESCRIPTION)["capabilities"][1]
    world.broker.logs.append([(data_topic(world).replace(".data", ".log"), b"noise")])
    failed = world.send("heartbeat", capability=write)
    fine = world.send("heartbeat", capability=other)
    world.run()
    assert world.answers()[failed]["status"] == "FAILED"
    assert world.answers()[failed]["error"]["code"] == "Corrupt"
    assert world.answers()[fine]["status"] == "DONE"


def test_a_log_that_fails_when_a_command_is_decided_already_fails_it(world: World) -> None:
    """It is not refused: refused is what certainly had no effect. The next one looks anew."""
    world.ask("create", collection="t", description=DESCRIPTION, group="g")
    fields = {"description": DESCRIPTION, "group": "g"}
    ids = [world.send("create", collection=name, **fields) for name in ("a", "b")]
    points: list[str] = []

    def reached(point: str) -> None:
        points.append(point)
        if points.count("submitted") == 2:  # the id was claimed, the collection made
            following.fail(Topic("sw.g.log"), Corrupt("noise"))

    service = world.service(reached)
    following = service._wiring.shards.following
    world.run(service)
    failed, done = (world.answers()[id_] for id_ in ids)
    assert (failed["status"], failed["error"]["code"]) == ("FAILED", "Corrupt")
    assert done["status"] == "DONE"
    assert world.ask("acquire_capabilities", collection="a")["status"] == "DONE"


def test_a_log_that_does_not_take_events_for_a_while_is_waited_for(world: World) -> None:
    _, write = made(world)
    id_ = world.send("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    logs = FaultyLogs(world.broker.logs, [Fault.BEFORE, Fault.AFTER, Fault.BEFORE])
    service = world.service(logs=logs)
    assert not service.step(0)
    assert not world.answers().get(id_)
    while id_ not in world.answers():
        service.step(0)
    assert world.answers()[id_]["status"] == "DONE"


def test_a_command_that_goes_on_failing_by_itself_is_answered_at_last(world: World) -> None:
    _, write = made(world)
    id_ = world.send("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    logs = FaultyLogs(world.broker.logs, [Fault.BEFORE] * 100)
    service = world.service(logs=logs)
    steps = 0
    while id_ not in world.answers():
        service.step(0)
        steps += 1
    assert steps == TRIES + 1  # so often alone, and the answer
    assert world.answers()[id_]["status"] == "FAILED"
    assert world.answers()[id_]["error"]["code"] == Determinate.__name__


@pytest.mark.parametrize("stuck", ["log", "data"])
def test_a_partition_that_cannot_be_written_fails_the_commands_for_it_alone(
    world: World, stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to keep all others waiting, and to be tried five times by itself."""
    writers = {
        id_: world.ask("create", collection=id_, description=DESCRIPTION)["capabilities"][1]
        for id_ in ("t", "v")
    }
    sent = {
        id_: world.send("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
        for id_, write in writers.items()
    }
    logs, chunks = FaultyLogs(world.broker.logs), FaultyChunks(world.broker.chunks)
    logs.unwritable = {Topic("sw.t.log")} if stuck == "log" else set()
    chunks.unwritable = {Topic("sw.t.data")} if stuck == "data" else set()
    monkeypatch.setattr(submit, "STRAGGLERS_MS", 0)
    service = world.service(logs=logs, chunks=chunks)
    assert service.step(0)
    answers = world.answers()
    assert answers[sent["t"]]["status"] == "FAILED"
    assert answers[sent["v"]]["status"] == "DONE"


def test_answers_that_are_not_taken_are_given_again(world: World) -> None:
    made(world)
    id_ = world.send("acquire_capabilities", collection="t")
    service = world.service()
    store, commits = world.broker.store, list[int]()
    original = store.check

    def check(topic: Any, key: Any, value: Any) -> None:
        if topic == NAMES.responses and not commits:
            commits.append(1)
            raise Indeterminate("nobody knows")
        original(topic, key, value)

    store.check = check  # type: ignore[method-assign]
    assert not service.step(0)
    world.run(service)
    assert world.answers()[id_]["status"] == "DONE"
    opened = world.storage()
    opened.acquire_capabilities(CollectionId("t"))
    capabilities = opened.shards.state(CollectionId("t")).capabilities
    assert len(capabilities) == 2 + 2 + 2


def test_a_batch_ends_when_it_is_large(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read, _ = made(world)
    ids = [world.send("heartbeat", capability=read) for _ in range(5)]
    size = len(world.broker.store.log(NAMES.commands).records[-1].value or b"")
    monkeypatch.setattr(session_module, "BATCH_BYTES", 2 * size)
    service = world.service()
    answered = []
    for _ in range(3):
        service.step(0)
        answered.append(len(world.answers().keys() & ids))
    assert answered == [2, 4, 5]


def test_what_a_command_did_is_not_held_against_it(world: World) -> None:
    """Its rows are there, its chunks were merged: it was carried out all the same."""
    _, write = made(world)
    world.ask("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    fields = update({**write, "frontier": 5}, 10, ("a", 1, 5, -1))
    world.send("update_and_downgrade", **fields, check_counts=True, id_="less")
    rows = pa.table([["b"], [2], [12], [1]], schema=SCHEMA).rename_columns(
        ["c0", "c1", "time", "diff"]
    )
    bodies = chunk.encode(rows, ("name", "size"))
    ((ref,),) = world.broker.chunks.write_all(
        [ChunkWrite(data_topic(world), bodies, headers(world))]
    )
    names = ("partition", "offset", "key", "checksum", "rows", "size")
    write_share = {"capability": {**write, "frontier": 10}, "new_frontier": 20}
    staged = {**write_share, "chunks": [{name: getattr(ref, name) for name in names}]}
    world.send("update_and_downgrade", writes=[staged], id_="staged")

    waves: list[str] = []

    def reached(point: str) -> None:
        if point == "decided":
            waves.append(point)
            if len(waves) == 2:  # the first takes what the second builds upon
                raise Killed(point)

    with pytest.raises(Killed):
        world.run(world.service(reached))
    world.broker.chunks.forget(data_topic(world), [ref])
    world.run()
    assert [world.answers()[id_]["status"] for id_ in ("less", "staged")] == ["DONE", "DONE"]


def test_a_count_that_another_writer_made_void_is_refused_once(world: World) -> None:
    """Also when the service is killed before it says so: nothing was written, then as now."""
    _, write = made(world)
    world.ask("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    late = {**write, "frontier": 5}
    (clone,) = world.ask("clone", capability=late)["capabilities"]
    id_ = world.send(
        "update_and_downgrade", **update(late, 10, ("a", 1, 5, -1)), check_counts=True
    )
    other = world.storage()
    name = CapabilityId(clone["name"])
    also = WriteCapability(CollectionId("t"), frontier(5), name)

    def reached(point: str) -> None:
        if point == "stored":
            rows = {"name": ["a"], "size": [1], "time": [6], "diff": [-1]}
            other.update_and_downgrade(also, pa.table(rows, schema=SCHEMA), 10)
        if point == "decided":
            raise Killed(point)

    with pytest.raises(Killed):
        world.run(world.service(reached))
    world.run()
    assert code(world.answers()[id_]) == "Recount"
    retried = update(late, 10, ("a", 1, 5, -1))
    again = world.ask("update_and_downgrade", **retried, check_counts=True)
    assert code(again) == "NegativeMultiplicity"


def test_noise_among_the_responses_is_passed_over(world: World) -> None:
    read, _ = made(world)
    world.broker.logs.append([(NAMES.responses, b"noise"), (NAMES.responses, b"")])
    id_ = world.send("heartbeat", capability=read)
    world.service().step(0)
    records = world.broker.store.log(NAMES.responses).records
    values = [record.value or b"" for record in records]
    answered = [message.command for message in readable_responses(values)]
    assert answered == ["c0", id_]


def test_a_zombie_sends_nothing(world: World) -> None:
    _, write = made(world)
    world.send("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    log = data_topic(world).replace(".data", ".log")
    ends: list[int] = []

    def reached(point: str) -> None:
        if point == "stored":
            world.run()
            ends.append(world.broker.store.log(log).end)

    with pytest.raises(Fenced):
        world.run(world.service(reached))
    assert world.broker.store.log(log).end == ends[0]


def test_a_row_that_fits_no_chunk_is_refused_and_its_neighbours_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    for name in ("t", "o"):
        _, write = world.ask("create", collection=name, description=DESCRIPTION)["capabilities"]
        lines.append(write)
    monkeypatch.setattr("streams.storage.client.shards.MAXIMUM_BODY_BYTES", 2_000)
    wide = "".join(map(str, range(3_000)))
    sent = [
        world.send("update_and_downgrade", **update(write, 5, (text, 1, 0, 1)))
        for write, text in zip(lines, (wide, "narrow"), strict=True)
    ]
    world.run()
    answers = [world.answers()[id_] for id_ in sent]
    assert code(answers[0]) == "TooLarge"
    assert "bytes of a packed row of collection t" in answers[0]["error"]["message"]
    assert answers[1]["status"] == "DONE"


def test_a_defect_while_chunks_are_made_is_the_command_s_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    for name in ("t", "o"):
        _, write = world.ask("create", collection=name, description=DESCRIPTION)["capabilities"]
        lines.append(write)
    real = chunk.encode

    def encode(updates: pa.Table, *more: Any) -> Any:
        if "poison" in updates.column(0).to_pylist():
            raise RuntimeError("a fault of ours")
        return real(updates, *more)

    monkeypatch.setattr(chunk, "encode", encode)
    sent = [
        world.send("update_and_downgrade", **update(write, 5, (text, 1, 0, 1)))
        for write, text in zip(lines, ("poison", "fine"), strict=True)
    ]
    world.run()
    answers = [world.answers()[id_] for id_ in sent]
    assert (answers[0]["status"], answers[0]["error"]["code"]) == ("FAILED", "Defect")
    assert answers[1]["status"] == "DONE"
