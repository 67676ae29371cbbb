"""What an attacker sends: a seed decides it, schemas allow it, and evidence says all of it."""

import json
from random import Random

import pytest

from schemas import codec
from streams.app.torture.hostile import sheets
from streams.app.torture.hostile.forging import bent, forged
from streams.app.torture.hostile.inputs import evidence_line
from streams.app.torture.hostile.known import DESCRIPTION, Known, Victim
from streams.app.torture.hostile.mutations import mutated, retold, spliced
from streams.app.torture.hostile.scene import commands_of
from streams.app.torture.hostile.surfaces import SURFACES
from streams.errors import Corrupt


def victim() -> Victim:
    held = {"collection": "victim1", "frontier": 0, "token": ""}
    return Victim(
        "victim1",
        "a-group",
        {**held, "right": "READ", "name": "r"},
        {**held, "right": "WRITE", "name": "w"},
    )


def known() -> Known:
    one = victim()
    commands = commands_of(one)
    return Known("sw", ("honest", "s1", "u2"), [one], commands, list(commands), [])


def inputs_of(name: str, seed: int) -> list[object]:
    """Everything that a surface yields; each record lands at the same place."""
    surface, _ = SURFACES[name]
    inputs = surface(Random(seed), known())
    made: list[object] = [next(inputs)]
    while True:
        try:
            made.append(inputs.send((0, 7)))
        except StopIteration:
            return made


@pytest.mark.parametrize("name", SURFACES)
def test_every_surface_makes_inputs_that_evidence_can_hold(name: str) -> None:
    for seed in range(60):
        for sent in inputs_of(name, seed):
            assert json.loads(evidence_line(3, sent))["round"] == 3  # type: ignore[arg-type]


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
        found, after = codec.decode(bent(Random(seed), message, known().pool()))
        assert found == name
        different = [field for field in before if before[field] != after[field]]
        assert len(different) <= 1
        changed += bool(different)
    assert changed > 25


def test_a_real_command_of_each_kind_is_readable() -> None:
    names = {codec.decode(each)[0] for each in commands_of(victim())}
    wanted = {each for each in codec.registry().by_name if each.startswith("command_")}
    assert wanted - names == {"command_response"}


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
    assert len(sheets.bomb(1)) < 4 << 20


def test_references_lie_now_and_then() -> None:
    place = (0, 7)
    true = {"partition": 0, "offset": 7, "key": "k", "rows": 2, "size": 3}
    lies = [
        reference
        for seed in range(90)
        if (reference := sheets.reference(Random(seed), b"abc", 2, "k", place))
        and any(reference[name] != value for name, value in true.items())
    ]
    assert 10 < len(lies) < 60
