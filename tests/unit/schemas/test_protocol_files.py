"""The messages of the materialization protocol: numbers, bytes, and that they are generated."""

import subprocess
import sys
from pathlib import Path

import pytest

from schemas import consumer_pb2, flow_pb2, materialize_pb2

ROOT = Path(__file__).parents[3]
PROTOS = sorted((ROOT / "schemas").glob("*.proto"))
MODULES = {"flow": flow_pb2, "consumer": consumer_pb2, "materialize": materialize_pb2}

# As the drivers and connectors of November 2021 have them.
NUMBERS = """
materialize.SpecRequest endpoint_type=1 endpoint_spec_json=2
materialize.SpecResponse endpoint_spec_schema_json=1 resource_spec_schema_json=2 documentation_url=3
materialize.ValidateRequest materialization=1 endpoint_type=2 endpoint_spec_json=3 bindings=4
materialize.ValidateRequest.Binding resource_spec_json=1 collection=2 field_config_json=3
materialize.ValidateResponse bindings=1
materialize.ValidateResponse.Binding constraints=1 resource_path=2 delta_updates=3
materialize.Constraint type=2 reason=3
materialize.ApplyRequest materialization=1 version=2 dry_run=3
materialize.ApplyResponse action_description=1
materialize.TransactionRequest open=1 load=2 prepare=3 store=4 commit=5
materialize.TransactionRequest.Open materialization=1 version=2 key_begin=3 key_end=4 driver_checkpoint_json=5
materialize.TransactionRequest.Load binding=1 arena=2 packed_keys=3
materialize.TransactionRequest.Prepare flow_checkpoint=1
materialize.TransactionRequest.Store binding=1 arena=2 packed_keys=3 packed_values=4 docs_json=5 exists=6
materialize.TransactionRequest.Commit
materialize.TransactionResponse opened=1 loaded=2 prepared=3 committed=4
materialize.TransactionResponse.Opened flow_checkpoint=1
materialize.TransactionResponse.Loaded binding=1 arena=2 docs_json=3
materialize.TransactionResponse.Prepared driver_checkpoint_json=1 rfc7396_merge_patch=2
materialize.TransactionResponse.Committed
flow.Slice begin=1 end=2
flow.Projection ptr=1 field=2 user_provided=3 is_partition_key=4 is_primary_key=5 inference=6
flow.Inference types=1 must_exist=2 string=3 title=4 description=5
flow.Inference.String content_type=3 format=4 is_base64=5 max_length=6
flow.CollectionSpec collection=1 schema_uri=2 key_ptrs=3 uuid_ptr=4 partition_fields=5 projections=6 ack_json_template=7 schema_json=8 partition_template=9
flow.FieldSelection keys=1 values=2 document=3 field_config_json=4
flow.MaterializationSpec materialization=1 endpoint_type=2 endpoint_spec_json=3 bindings=4 shard_template=5 recovery_log_template=6
flow.MaterializationSpec.Binding resource_spec_json=1 resource_path=2 collection=3 field_selection=4 delta_updates=5 shuffle=6
flow.Shuffle group_name=1 source_collection=2 source_partitions=3 source_uuid_ptr=4 shuffle_key_ptr=5 uses_source_key=6 shuffle_lambda=7 source_schema_uri=8 uses_source_schema=9 validate_schema_at_read=10 filter_r_clocks=11 read_delay_seconds=12 priority=13
flow.RangeSpec key_begin=2 key_end=3 r_clock_begin=4 r_clock_end=5
consumer.Checkpoint sources=1 ack_intents=2
consumer.Checkpoint.Source read_through=1 producers=2
consumer.Checkpoint.Source.ProducerEntry id=1 state=2
consumer.Checkpoint.ProducerState last_ack=1 begin=2
""".strip().splitlines()  # noqa: E501

EXTENSIONS = {
    "materialize.SpecResponse": {"extensions"},
    "materialize.TransactionRequest": {"acknowledge"},
    "materialize.TransactionRequest.Open": {"extensions"},
    "materialize.TransactionRequest.Store": {"deletes"},
    "materialize.TransactionResponse": {"acknowledged"},
    "materialize.TransactionResponse.Opened": {"subranges"},
}


@pytest.mark.parametrize("line", NUMBERS, ids=lambda line: line.split()[0])
def test_the_services_functions_have_the_fields_of_the_protocol(line):
    """Seed, "RPCs": each message has the fields that its section lists."""
    name, *fields = line.split()
    package, _, path = name.partition(".")
    message = MODULES[package]
    for part in path.split("."):
        message = getattr(message, part)
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    expected = {field.split("=")[0]: int(field.split("=")[1]) for field in fields}
    assert {name: numbers[name] for name in numbers if name in expected} == expected
    assert numbers.keys() - expected.keys() == EXTENSIONS.get(name, set())


def test_the_driver_service_has_the_four_functions():
    """Seed, "Process Flow": a gRPC server that fulfills the driver service."""
    methods = materialize_pb2.DESCRIPTOR.services_by_name["Driver"].methods
    assert [method.name for method in methods] == ["Spec", "Validate", "Apply", "Transactions"]
    assert methods[3].full_name == "materialize.Driver.Transactions"


def test_a_message_has_the_bytes_of_the_time():
    open_ = materialize_pb2.TransactionRequest.Open(version="v", key_begin=1, key_end=2**32 - 1)
    request = materialize_pb2.TransactionRequest(open=open_)
    assert request.SerializeToString().hex() == "0a0d" + "120176" + "1d01000000" + "25ffffffff"
    slices = [flow_pb2.Slice(begin=0, end=2), flow_pb2.Slice(begin=2, end=300)]
    load = materialize_pb2.TransactionRequest.Load(binding=1, arena=b"ab", packed_keys=slices)
    text = "0801" + "12026162" + "1a021002" + "1a05080210ac02"
    assert load.SerializeToString().hex() == text
    commit = materialize_pb2.TransactionRequest(commit={})
    assert commit.SerializeToString().hex() == "2a00"


def test_the_checkpoint_from_zero_is_an_empty_one():
    zero = bytes.fromhex("f8ffffff0f01")
    checkpoint = consumer_pb2.Checkpoint.FromString(zero)
    assert not checkpoint.sources
    assert checkpoint.SerializeToString() == zero, "what is not known is kept"


def test_extensions_are_skipped_by_who_does_not_know_them():
    store = materialize_pb2.TransactionRequest.Store(exists=[True], deletes=[True])
    assert store.SerializeToString().hex() == "320101" + "3a0101"


def test_the_generated_code_is_that_of_the_files(tmp_path):
    """`make protocol` was run after the last change."""
    names = [str(path.relative_to(ROOT)) for path in PROTOS]
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-I."]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *names]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    generated = sorted((tmp_path / "schemas").iterdir())
    assert [path.name for path in generated] == sorted(
        path.name for path in (ROOT / "schemas").glob("*_pb2.py*")
    )
    for path in generated:
        assert path.read_text() == (ROOT / "schemas" / path.name).read_text(), path.name
