"""What an attacker sends: a seed decides it, schemas allow it, and evidence says all of it."""

import contextlib
import json
import zlib
from collections import Counter
from random import Random

import pytest

from schemas import codec
from schemas.materializations import SPECS
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CapabilityId, CollectionId, Offset
from streams.kafka.log import ChunkRef
from streams.progress import frontier
from streams.storage.client.handles import WriteCapability
from streams.storage.client.reserved_names import refuse_reserved
from streams.storage.commands.handlers import table
from streams.storage.description import loads
from streams.storage.write.chunk_validation import rows_of
from streams.storage.write.validation import conform
from streams.torture.hostile import arrow_streams
from streams.torture.hostile.attacker_knowledge import (
    DESCRIPTION,
    RESERVED,
    AttackerKnowledge,
    Victim,
)
from streams.torture.hostile.forged_records import bent, forged
from streams.torture.hostile.inputs import Record, evidence_line
from streams.torture.hostile.mutations import mutated, retold, spliced
from streams.torture.hostile.scene import commands_of
from streams.torture.hostile.surfaces import SURFACES


def victim(name: str = "victim1") -> Victim:
    capability = {"collection": name, "frontier": 0, "token": ""}
    return Victim(
        name,
        "a-group",
        {**capability, "right": "READ", "name": "r"},
        {**capability, "right": "WRITE", "name": "w"},
    )


def known() -> AttackerKnowledge:
    one = victim()
    commands = commands_of(one)
    events, spoiled = list(commands), [victim("victim2")]
    return AttackerKnowledge("sw", ("honest", "s1", "u2"), [one], commands, events, [], spoiled)


def inputs_of(name: str, seed: int) -> list[object]:
    """Everything that a surface yields; each record lands at the same place."""
    surface, _ = SURFACES[name]
    inputs = surface(Random(seed), known())
    values: list[object] = [next(inputs)]
    while True:
        try:
            values.append(inputs.send((0, 7)))
        except StopIteration:
            return values


@pytest.mark.parametrize("name", SURFACES)
def test_every_surface_makes_inputs_that_evidence_can_hold(name: str) -> None:
    for seed in range(60):
        for sent in inputs_of(name, seed):
            assert json.loads(evidence_line(3, sent))["round"] == 3  # type: ignore[arg-type]


def test_commands_and_records_of_logs_go_to_different_collections() -> None:
    topics = {
        name: {
            str(sent.topic)
            for seed in range(60)
            for sent in inputs_of(name, seed)
            if isinstance(sent, Record)
        }
        for name in ("chunk", "log", "rollup", "linked")
    }
    assert "sw.victim1.data" in topics.pop("chunk")
    for name, records in topics.items():
        assert "sw.victim2.log" in records, name
        assert "sw.victim1.log" not in records, name


def test_the_next_write_begins_where_the_last_one_ended() -> None:
    ids = known()
    before = ids.victims[0].read
    moved = {**ids.victims[0].write, "frontier": 7}
    ids.heard({"capabilities": [moved, {**moved, "collection": "honest"}]})
    assert ids.victims[0].write["frontier"] == 7
    assert ids.victims[0].read == before
    assert not ids.victims[0].is_spent
    ids.heard({"capabilities": [{**moved, "frontier": None}]})
    assert ids.victims[0].is_spent


def test_a_reserved_name_that_is_given_to_a_client_is_noted() -> None:
    names = known()
    acquired = {"collection": str(SPECS), "right": "READ", "name": "r", "frontier": 0}
    names.heard({"capabilities": [acquired, {**acquired, "right": "WRITE", "name": ""}]})
    assert not names.squats
    squats = [
        {**acquired, "collection": id_, "right": "WRITE"} for id_ in (str(SPECS), "squatter7")
    ]
    names.heard({"capabilities": squats})
    assert names.squats == {str(SPECS), "squatter7"}


@pytest.mark.parametrize("name", RESERVED)
def test_the_names_that_it_squats_are_refused(name: str) -> None:
    with pytest.raises(InvalidUsage, match="choose another"):
        refuse_reserved(name)


def test_many_chunks_and_rows_are_what_a_service_takes() -> None:
    """What is refused at the door says nothing of those behind it."""
    description = loads(DESCRIPTION)
    counts: Counter[str] = Counter()
    for seed in range(100):
        body, rows = arrow_streams.chunk(Random(seed), 5)
        reference = ChunkRef(0, Offset(7), "k", zlib.crc32(body), rows, len(body))
        with contextlib.suppress(InvalidUsage):
            fetched = rows_of(CollectionId("c"), reference, body, description)
            counts["chunk"] += set(fetched.column("time").to_pylist()) == {5}
        writer = WriteCapability(CollectionId("c"), frontier(5), CapabilityId("w"))
        with contextlib.suppress(InvalidUsage):
            sent = table(writer, arrow_streams.inline(Random(seed), 5))
            fetched = conform(CollectionId("c"), sent, description)
            counts["inline"] += set(fetched.column("time").to_pylist()) == {5}
    assert min(counts["chunk"], counts["inline"]) > 20


@pytest.mark.parametrize("name", list(codec.registry().by_name))
def test_forged_records_are_mostly_readable(name: str) -> None:
    readable = 0
    for seed in range(40):
        message = forged(Random(seed), name, known().pool())
        assert message.startswith(codec.registry().by_name[name].header)
        try:
            readable += codec.decode(message)[0] == name
        except Corrupt:
            continue
    assert readable >= 20


def test_a_bent_record_differs_in_one_field() -> None:
    message = commands_of(victim())[1]
    name, before = codec.decode(message)
    changed = 0
    for seed in range(50):
        decoded_name, after = codec.decode(bent(Random(seed), message, known().pool()))
        assert decoded_name == name
        different = [field for field in before if before[field] != after[field]]
        assert len(different) <= 1
        changed += bool(different)
    assert changed > 25


def test_a_real_command_of_each_kind_is_readable() -> None:
    names = {codec.decode(command)[0] for command in commands_of(victim())}
    expected = {name for name in codec.registry().by_name if name.startswith("command_")}
    assert expected - names == {"command_response"}


def test_mutations_follow_their_seed() -> None:
    sample = DESCRIPTION.encode()
    for seed in range(50):
        assert mutated(Random(seed), sample) == mutated(Random(seed), sample)
        assert spliced(Random(seed), [sample, b"x"]) == spliced(Random(seed), [sample, b"x"])
        assert retold(Random(seed), DESCRIPTION, ["a"]) == retold(
            Random(seed), DESCRIPTION, ["a"]
        )
    assert len({mutated(Random(seed), sample) for seed in range(50)}) > 40


def test_a_bomb_is_small_until_it_is_unpacked() -> None:
    assert len(arrow_streams.bomb(1)) < 4 << 20


def test_references_lie_now_and_then() -> None:
    place = (0, 7)
    true = {"partition": 0, "offset": 7, "key": "k", "rows": 2, "size": 3}
    lies = [
        reference
        for seed in range(90)
        if (reference := arrow_streams.reference(Random(seed), b"abc", 2, "k", place))
        and any(reference[name] != value for name, value in true.items())
    ]
    assert 10 < len(lies) < 60


@pytest.mark.parametrize("name", ["chunk", "data", "message"])
def test_some_headers_have_names_that_are_no_text(name: str) -> None:
    inputs = (sent for seed in range(200) for sent in inputs_of(name, seed))
    records = [sent for sent in inputs if isinstance(sent, Record)]
    names = {pair[0] for record in records for pair in record.wire_headers}
    assert any(name != name.decode(errors="replace").encode() for name in names)
    assert any(not record.wire_headers for record in records)
