"""A log with a foreign record, or with marks of transactions, is readable for all readers."""

import zlib
from dataclasses import replace

import pytest

from streams.errors import Corrupt, InvalidUsage
from streams.ids import CollectionId, EventId, Offset, Timestamp, Topic
from streams.kafka.log import WronglyTimed
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client import maintenance, retries
from streams.storage.client.group import Group
from streams.storage.client.log_verification import Verdict, skip, verify
from streams.storage.client.shards import Shards
from streams.storage.log import rollup, skipping
from streams.storage.log.events import Rollup
from streams.storage.log.skipping import Skip
from tests.support.shard_clients import DESCRIPTION, U1, broker, client, grow

LOG = Topic("sw.u1.log")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.0)


@pytest.fixture
def kafka() -> MemoryBroker:
    return broker()


def verdict(kafka: MemoryBroker, *, with_chunks: bool = False) -> Verdict:
    with client(kafka) as one:
        identity = one.identity("u1")
        assert identity is not None
        group = Group(one.names("u1"), topic_id=identity, uuid=identity)
        return verify(kafka.logs, kafka.chunks, group, with_chunks=with_chunks)


def same(one: Shards, other: Shards) -> bool:
    one.sync()
    other.sync()
    return rollup.encode(one.group_state("u1")) == rollup.encode(other.group_state("u1"))


def begun(one: Shards, upto: int) -> None:
    one.create("u1", U1, DESCRIPTION, Timestamp(0))
    one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
    grow(one, upto)


def test_a_foreign_record_is_passed_over_by_old_and_new_readers(kafka: MemoryBroker) -> None:
    """It used to lose the group for everybody, for good."""
    with client(kafka) as one, client(kafka) as late:
        begun(one, 100)
        late.open("u1")
        maintenance.roll_up(one, "u1")
        (offset,) = kafka.logs.append([(LOG, b"noise")])
        with pytest.raises(Corrupt):
            one.sync(U1)
        with client(kafka) as new, pytest.raises(Corrupt):
            new.open("u1")
        verdict_ = verdict(kafka)
        (flaw,) = verdict_.flaws
        assert (flaw.offset, flaw.checksum) == (offset, zlib.crc32(b"noise"))
        assert "avro header" in flaw.reason
        with pytest.raises(InvalidUsage, match=f"expected one of \\[{offset}\\]"):
            skip(kafka.logs, verdict_, offset - 1, EventId("s"), "why")
        skip(kafka.logs, verdict_, offset, EventId("s"), "a console producer")
        verdict_ = verdict(kafka)
        assert verdict_.is_sound
        assert [skipped.reason for skipped in verdict_.skipped] == ["a console producer"]
        one.open("u1")
        grow(one, 200)
        maintenance.roll_up(one, "u1")
        grow(one, 210)
        assert same(one, late)
        with client(kafka) as new:
            new.open("u1")
            assert same(one, new)
        assert verdict(kafka, with_chunks=True).is_sound


def wrongly_timed(kafka: MemoryBroker, value: bytes) -> Offset:
    """A record that was appended while the topic took its writers' times."""
    kafka.store.log(LOG).is_append_timed = False
    (offset,) = kafka.logs.append([(LOG, value)])
    kafka.store.log(LOG).is_append_timed = True
    return offset


def test_a_record_with_its_writers_time_is_passed_over_by_old_and_new_readers(
    kafka: MemoryBroker,
) -> None:
    """The tail used to raise before any fold saw it: no word of an operator was heard."""
    with client(kafka) as one, client(kafka) as late:
        begun(one, 100)
        maintenance.roll_up(one, "u1")
        late.open("u1")
        one.make("beside")
        value = kafka.store.log(LOG).records[-1].value
        assert value is not None
        offset = wrongly_timed(kafka, value)
        one.create("beside", CollectionId("b"), DESCRIPTION, Timestamp(0))
        with pytest.raises(WronglyTimed, match="LogAppendTime"):
            one.sync(U1)
        assert one.state(CollectionId("b")).upper == frontier(0)  # it concerns its group only
        with client(kafka) as new:
            with pytest.raises(WronglyTimed):
                new.open("u1", "beside")
            new.open("beside")
        (flaw,) = verdict(kafka).flaws
        assert (flaw.offset, flaw.checksum) == (offset, zlib.crc32(value))
        skip(kafka.logs, verdict(kafka), offset, EventId("s"), "the topic had CreateTime")
        assert verdict(kafka).is_sound
        one.open("u1")
        grow(one, 110)
        assert same(one, late)
        with client(kafka) as new:
            new.open("u1")
            assert same(one, new)


def test_a_rollup_that_the_fold_refutes_can_be_passed_over(kafka: MemoryBroker) -> None:
    with client(kafka) as one:
        begun(one, 100)
        group = one.following.group("u1")
        false = rollup.encode(replace(group.retained[-1], clock_ms=1))
        chunks = one.chunks.write(one.names("u1").data, rollup.cut(false), {})
        event = Rollup(upto=group.retained[-1].upto, chunks=chunks, hash=rollup.hash_of(false))
        one.submit([("u1", event)])
        (flaw,) = verdict(kafka).flaws
        assert "expected a rollup of the state" in flaw.reason
        assert flaw.offset is not None
        skip(kafka.logs, verdict(kafka), flaw.offset, EventId("s"), "")
        one.open("u1")
        assert one.group_state("u1").rollups == ()
        maintenance.roll_up(one, "u1")
        with client(kafka) as new:
            new.open("u1")
            assert same(one, new)


def test_who_has_folded_what_is_passed_over_begins_again(kafka: MemoryBroker) -> None:
    """A newer version may understand the record that an operator's did not."""
    with client(kafka) as one, client(kafka) as other:
        begun(one, 9)
        other.open("u1")
        value = kafka.store.log(LOG).records[-1].value
        assert value is not None
        word = Skip(EventId("s"), "", Offset(8), Offset(9), zlib.crc32(value), "")
        kafka.logs.append([(LOG, skipping.encode(word))])
        for _ in range(2):
            other.sync()
        with client(kafka) as new:
            new.open("u1")
            assert same(other, new)
        assert other.status().is_well


def mark(kafka: MemoryBroker, count: int = 1) -> None:
    """Give offsets away without a record, as the marks of transactions do."""
    kafka.store.log(LOG).end += count


def test_the_mark_of_a_transaction_is_passed_over(kafka: MemoryBroker) -> None:
    """New clients used to find that the log could not be read to its end."""
    with client(kafka) as one, client(kafka) as other:
        begun(one, 9)
        other.open("u1")
        mark(kafka)
        with client(kafka) as new:
            new.open("u1")
            other.sync()
            assert same(other, new)
            assert new.group_state("u1").upto == 10
            grow(one, 12)
            mark(kafka)
            grow(one, 20)
            assert same(one, new)
            assert same(one, other)
        assert verdict(kafka).is_sound


def test_offsets_without_a_record_are_a_loss_unless_each_is_named(kafka: MemoryBroker) -> None:
    with client(kafka) as one:
        begun(one, 9)
        mark(kafka, 3)
        with client(kafka) as new, pytest.raises(Corrupt, match="records were deleted"):
            new.open("u1")
        verdict_ = verdict(kafka)
        assert [flaw.offset for flaw in verdict_.flaws] == [10, 11, 12]
        for time in (10, 11, 12):
            skip(kafka.logs, verdict_, time, EventId(f"s{time}"), "")
        assert verdict(kafka).is_sound
        one.open("u1")
        grow(one, 20)
        with client(kafka) as new:
            new.open("u1")
            assert same(one, new)
        mark(kafka, 2_000)
        (flaw,) = verdict(kafka).flaws
        assert flaw.offset is None
        assert "2000 records are lost" in flaw.reason


def test_what_is_missing_beside_the_log_is_told(kafka: MemoryBroker) -> None:
    with client(kafka) as one:
        begun(one, 100)
        maintenance.roll_up(one, "u1")
        linked = [chunk for batch in one.state(U1).batches for chunk in batch.chunks]
        kafka.chunks.forget(one.names("u1").data, linked[:1])
        assert verdict(kafka).is_sound
        (flaw,) = verdict(kafka, with_chunks=True).flaws
        assert "collection u1: chunk" in flaw.reason
        kafka.chunks.forget(one.names("u1").data, one.group_state("u1").rollups[0].chunks)
        (flaw,) = verdict(kafka).flaws
        assert "rollup up to 63 cannot be read" in flaw.reason
        kafka.logs.truncate(LOG, Offset(64))
        lost = verdict(kafka).flaws
        assert "no rollup covers the records before" in lost[-1].reason
