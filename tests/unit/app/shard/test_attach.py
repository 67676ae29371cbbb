"""Finding shards on brokers, with nobody else running, over a broker in memory."""

import pytest

from streams.app.environment_access import expect_answer
from streams.app.error_output import Refused
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.client import inspection
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage.client import maintenance
from streams.storage.log.events import Drop
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, grow, rows
from tests.support.shard_looks import look


def test_groups_have_a_log_and_data() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        kafka.topics.create([TopicSpec(Topic("sw.catalog.log"), 1, TopicKind.LOG)])
        kafka.topics.create([TopicSpec(Topic("other.u2.log"), 1, TopicKind.LOG)])
        assert at.groups() == ("u1",)


def test_a_shard_is_found_in_whatever_group_it_is() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("tables", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        assert at.find("u2") == "u2"
        assert at.shards.groups() == ("u2",)  # no other was opened for it
        assert at.group_and_state(at.find("u1"))[0] == "tables"


def test_an_unknown_id_is_answered_with_what_is_like_it() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        with pytest.raises(Refused) as raised:
            at.find("u11")
    assert raised.value.message == "no shard 'u11'"
    assert raised.value.detail == "namespace sw has 1 shards"
    assert raised.value.hint == "did you mean u1? 'slackwater shard list' lists them all"


def test_a_group_that_cannot_be_read_hides_no_other() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        kafka.logs.append([(Topic("sw.u2.log"), b"what?")])
        broken = at.open_all()
        assert set(broken) == {"u2"}
        assert "sw.u2.log/0@1" in str(broken["u2"])
        assert at.find("u1") == "u1"
        with pytest.raises(Refused, match="groups that cannot be read: u2"):
            at.find("u3")


def test_a_scan_finds_orphans_and_what_is_missing() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 1, rows("a", time=0))
        orphans = [one.write(U1, rows(f"lost{n}", time=1))[0] for n in range(70)]
        at.find("u1")
        assert at.space("u1", scan=False).scanned is None
        space = at.space("u1", scan=True)
        assert space.scanned is not None
        assert (space.live.chunks, space.scanned.orphan.chunks) == (1, 70)
        assert space.scanned.orphan.bytes == sum(orphan.size for orphan in orphans)
        assert space.scanned.missing == ()
        (ref,) = at.state("u1").collections[U1].batches.ordered()[0].chunks
        kafka.chunks.forget(Topic("sw.u1.data"), [ref])
        one.write(U1, rows("b", time=1))  # something comes after it in some partition
        lost = at.space("u1", scan=True).scanned
        assert lost is not None
        assert lost.missing == (ref,)


def test_a_topic_without_records_is_scanned() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        at.find("u1")
        assert at.space("u1", scan=True).total_bytes == 0


def test_what_is_superseded_shows_until_it_is_collected() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 1, rows("a", time=0))
        one.submit([("u1", Drop(U1))])
        at.find("u1")
        before = at.space("u1", scan=True)
        assert (before.superseded.chunks, before.garbage_share) == (1, 1.0)
        maintenance.collect(one, "u1")
        after = at.space("u1", scan=True)
        assert (after.superseded.chunks, after.total_bytes) == (0, 0)


def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "REQUEST_S", 1.0)

    class Nobody:
        def names(self) -> frozenset[Topic]:
            raise Determinate("list topics: timed out")

    with pytest.raises(Determinate, match=r"no broker answers at 127\.0\.0\.1:1: .*refused"):
        expect_answer(Nobody(), ClientSettings("127.0.0.1:1"))  # type: ignore[arg-type]  # only what is asked for


def test_looking_writes_nothing() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 5)
        before = kafka.logs.bounds(Topic("sw.u1.log"))
        at.find("u1")
        at.space("u1", scan=True)
        assert kafka.logs.bounds(Topic("sw.u1.log")) == before


def test_a_data_topic_that_is_gone_is_said_so() -> None:
    kafka = broker()
    with client(kafka) as one, look(kafka) as at:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        at.find("u1")
        kafka.topics.delete([Topic("sw.u1.data")])
        with pytest.raises(Determinate, match=r"sw\.u1\.data"):
            at.space("u1", scan=True)
