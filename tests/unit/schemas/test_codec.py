"""Single-object encoding: header, body, and nothing else."""

import json
from importlib.resources import files

import pytest
from fastavro.schema import fingerprint

from schemas import codec
from streams.errors import Corrupt

DROP = {
    "id": "e",
    "group": "g",
    "seen": 1,
    "collection": "u1",
    "capability": None,
    "token": "",
    "whole": False,
    "sole": False,
}


def test_a_message_begins_with_marker_and_little_endian_fingerprint() -> None:
    message = codec.encode("shard_drop", DROP)
    assert message[:2] == b"\xc3\x01"
    assert message[2:10] == codec.registry().by_name["shard_drop"].header[2:]


def test_fields_that_are_not_wanted_are_left_out() -> None:
    message = codec.encode("shard_drop", DROP)
    rest = {name: value for name, value in DROP.items() if name != "group"}
    assert codec.decode(message, leave_out=frozenset({"group"})) == ("shard_drop", rest)
    with pytest.raises(Corrupt, match="1 bytes too many"):
        codec.decode(message + b"x", leave_out=frozenset({"group"}))


def test_the_fingerprint_is_the_one_of_the_specification() -> None:
    # Avro 1.12, "Schema Fingerprints": CRC-64-AVRO of "null" is 63dd24e7cc258f8a, and the
    # single-object encoding has it in little endian order
    assert fingerprint('"null"', "CRC-64-AVRO") == "8a8f25cce724dd63"


def test_a_message_comes_back() -> None:
    assert codec.decode(codec.encode("shard_drop", DROP)) == ("shard_drop", DROP)
    assert codec.name_of(codec.encode("shard_drop", DROP)) == "shard_drop"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "header"),
        (b"\xc3\x01" + bytes(8), "header"),
        (codec.encode("shard_drop", DROP)[:-3], "body of schema shard_drop"),
        (codec.encode("shard_drop", DROP) + b"x", "1 bytes too many"),
    ],
    ids=["empty", "unknown", "cut short", "too long"],
)
def test_what_is_no_message_is_corrupt(message: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        codec.decode(message)


def test_an_unknown_kind_has_no_name() -> None:
    assert codec.name_of(b"\xc3\x01" + bytes(8)) is None


@pytest.mark.parametrize("name", sorted(codec.registry().by_name))
def test_every_schema_is_complete_in_itself(name: str) -> None:
    text = (files("schemas") / "avro" / f"{name}.avsc").read_text()
    schema = json.loads(text)
    assert schema["type"] == "record"
    assert schema["doc"], "says what the record is for"
    assert codec.load(name, text).header == codec.registry().by_name[name].header
