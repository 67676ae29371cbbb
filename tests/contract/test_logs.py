"""What every Logs promises."""

import threading
import time

import pytest

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Tail, Truncated
from streams.kafka.topics import MAXIMUM_RECORD_BYTES, TopicKind

START = Offset(0)


def read(tail: Tail, count: int, seconds: float = 60.0) -> list[Entry]:
    entries: list[Entry] = []
    deadline = time.monotonic() + seconds
    while len(entries) < count and time.monotonic() < deadline:
        entries.extend(tail.poll(100))
    return entries


def fails(tail: Tail, seconds: float = 60.0) -> Truncated:
    """The Truncated that following this tail runs into."""
    with pytest.raises(Truncated) as caught:
        read(tail, 1_000, seconds)
    return caught.value


def test_offsets_follow_the_order_given_for_each_topic(storage, make):
    one, other = make(), make()
    offsets = storage.logs.append([(one, b"a"), (other, b"x"), (one, b"b")])
    assert offsets == (0, 0, 1)
    assert storage.logs.append([(one, b"c")]) == (2,)
    assert storage.logs.bounds(one) == (0, 3)


def test_an_append_of_nothing_does_nothing(storage):
    assert storage.logs.append([]) == ()


def test_a_tail_reads_many_logs_in_the_order_of_each(storage, make):
    one, other = make(), make()
    storage.logs.append([(one, b"a"), (other, b"x"), (one, b"b")])
    tail = storage.logs.tail({one: START, other: START})
    entries = read(tail, 3)
    assert [entry.value for entry in entries if entry.topic == one] == [b"a", b"b"]
    assert [entry.offset for entry in entries if entry.topic == other] == [0]
    tail.close()


def test_a_tail_starts_where_it_is_told(storage, make):
    log = make()
    storage.logs.append([(log, b"%d" % number) for number in range(5)])
    tail = storage.logs.tail({log: Offset(3)})
    assert [entry.value for entry in read(tail, 2)] == [b"3", b"4"]
    assert tail.poll(0) == ()
    tail.close()


def test_what_is_appended_later_is_seen(storage, make):
    log = make()
    tail = storage.logs.tail({log: START})
    assert tail.poll(10) == ()
    storage.logs.append([(log, b"late")])
    assert [entry.value for entry in read(tail, 1)] == [b"late"]
    tail.close()


def test_a_waiting_tail_is_woken(storage, make):
    log = make()
    tail = storage.logs.tail({log: START})
    timer = threading.Timer(0.2, storage.logs.append, [[(log, b"wake")]])
    timer.start()
    begun = time.monotonic()
    assert [entry.value for entry in read(tail, 1)] == [b"wake"]
    assert time.monotonic() - begun < 5
    timer.join()
    tail.close()


def test_logs_are_added_and_removed_while_others_are_followed(storage, make):
    one, other = make(), make()
    tail = storage.logs.tail({one: START})
    storage.logs.append([(one, b"a"), (other, b"x"), (other, b"y")])
    tail.add({other: Offset(1)})
    assert sorted(entry.value for entry in read(tail, 2)) == [b"a", b"y"]
    tail.remove(one)
    storage.logs.append([(one, b"b"), (other, b"z")])
    assert [entry.value for entry in read(tail, 1)] == [b"z"]
    assert tail.poll(200) == ()
    tail.add({one: START})
    assert [entry.value for entry in read(tail, 2)] == [b"a", b"b"]
    tail.close()


def test_logs_come_and_go_while_another_thread_polls(storage, make):
    logs = [make() for _ in range(10)]
    tail = storage.logs.tail({})
    entries: list[Entry] = []
    done = threading.Event()

    def pump() -> None:
        while not done.is_set():
            entries.extend(tail.poll(50))

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    for log in logs:
        tail.add({log: START})
        storage.logs.append([(log, b"a"), (log, b"b")])
    deadline = time.monotonic() + 60
    while len(entries) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    for log in logs[1:]:
        tail.remove(log)
    storage.logs.append([(log, b"c") for log in reversed(logs)])
    while len(entries) < 21 and time.monotonic() < deadline:
        time.sleep(0.01)
    done.set()
    thread.join()
    tail.close()
    assert [entry.value for entry in entries if entry.topic == logs[0]] == [b"a", b"b", b"c"]
    assert len(entries) == 21


def test_a_tail_of_nothing_waits_for_logs(storage, make):
    log = make()
    tail = storage.logs.tail({})
    assert tail.poll(10) == ()
    storage.logs.append([(log, b"a")])
    tail.add({log: START})
    assert [entry.value for entry in read(tail, 1)] == [b"a"]
    tail.close()


def test_a_log_is_followed_once(storage, make):
    log = make()
    tail = storage.logs.tail({log: START})
    with pytest.raises(InvalidUsage, match="already followed"):
        tail.add({log: START})
    tail.close()


def test_removing_what_is_not_followed_is_passed_over(storage, make):
    tail = storage.logs.tail({})
    tail.remove(make())
    tail.close()


def test_append_times_come_from_the_broker_and_do_not_regress(storage, make):
    log = make()
    before = time.time_ns() // 1_000_000
    for number in range(3):
        storage.logs.append([(log, b"%d" % number)])
    tail = storage.logs.tail({log: START})
    times = [entry.at_ms for entry in read(tail, 3)]
    assert times == sorted(times)
    assert abs(times[0] - before) < 5_000
    tail.close()


def test_a_record_says_whether_its_time_is_the_brokers(storage, make):
    """Rule 11: whoever keeps a clock by it halts there; the tail itself goes on."""
    raw, log = make(TopicKind.RAW), make()
    tail = storage.logs.tail({raw: START, log: START})
    storage.logs.append([(raw, b"x"), (log, b"a"), (raw, b"y")])
    is_append_time = {entry.value: entry.is_append_time for entry in read(tail, 3)}
    assert is_append_time == {b"x": False, b"y": False, b"a": True}
    tail.close()


def test_truncation_moves_the_first_offset_and_leaves_the_rest(storage, make):
    log = make()
    storage.logs.append([(log, b"%d" % number) for number in range(5)])
    storage.logs.truncate(log, Offset(3))
    assert storage.logs.bounds(log) == (3, 5)
    tail = storage.logs.tail({log: Offset(3)})
    assert [entry.value for entry in read(tail, 2)] == [b"3", b"4"]
    assert storage.logs.append([(log, b"5")]) == (5,)
    tail.close()


def test_a_truncated_position_is_fatal_for_its_log_only(storage, make):
    cut, full = make(), make()
    storage.logs.append([(cut, b"a"), (cut, b"b"), (full, b"x")])
    storage.logs.truncate(cut, Offset(1))
    tail = storage.logs.tail({cut: START})
    failure = fails(tail)
    assert (failure.topic, failure.position) == (cut, 0)
    assert "offset 0" in str(failure)
    tail.add({full: START})
    assert [entry.value for entry in read(tail, 1)] == [b"x"]
    tail.add({cut: Offset(1)})
    assert [entry.value for entry in read(tail, 1)] == [b"b"]
    tail.close()


def test_a_position_beyond_the_end_is_fatal(storage, make):
    log = make()
    storage.logs.append([(log, b"a")])
    tail = storage.logs.tail({log: Offset(7)})
    assert fails(tail).topic == log
    tail.close()


def test_a_deleted_log_is_fatal(storage, make):
    log = make()
    storage.logs.append([(log, b"a")])
    tail = storage.logs.tail({log: START})
    read(tail, 1)
    storage.topics.delete([log])
    assert fails(tail).topic == log
    tail.close()


def test_truncating_beyond_the_end_is_refused(storage, make):
    log = make()
    storage.logs.append([(log, b"a")])
    with pytest.raises(Determinate):
        storage.logs.truncate(log, Offset(2))
    assert storage.logs.bounds(log) == (0, 1)


def test_a_record_too_large_has_no_effect(storage, make):
    log = make()
    with pytest.raises(Determinate):
        storage.logs.append([(log, bytes(MAXIMUM_RECORD_BYTES + 1))])
    assert storage.logs.append([(log, b"small")]) == (0,)


def test_an_unknown_log_cannot_be_followed_or_bounded(storage):
    missing = Topic("contract.missing")
    with pytest.raises(Determinate, match="does not exist"):
        storage.logs.tail({missing: START})
    with pytest.raises(Determinate, match="does not exist"):
        storage.logs.bounds(missing)
    tail = storage.logs.tail({})
    with pytest.raises(Determinate, match="does not exist"):
        tail.add({missing: START})
    tail.close()


def test_appending_to_an_unknown_log_has_no_effect(storage):
    with pytest.raises(Determinate):
        storage.logs.append([(Topic("contract.missing"), b"a")])


def test_a_topic_of_many_partitions_is_no_log(storage, make):
    data = make(TopicKind.DATA, partitions=2)
    with pytest.raises(InvalidUsage, match="expected 1 partition, actual 2"):
        storage.logs.bounds(data)
    with pytest.raises(InvalidUsage, match="expected 1 partition, actual 2"):
        storage.logs.tail({data: START})


def test_the_bounds_of_many_logs_are_those_of_each(storage, make):
    logs = [make() for _ in range(10)]
    for number, log in enumerate(logs):
        storage.logs.append([(log, b"a")] * number)
    storage.logs.truncate(logs[5], Offset(2))
    bounds = storage.logs.bounds_all(logs)
    assert bounds == {log: storage.logs.bounds(log) for log in logs}
    assert (bounds[logs[0]], bounds[logs[5]], bounds[logs[9]]) == ((0, 0), (2, 5), (0, 9))
    assert storage.logs.bounds_all([]) == {}
    with pytest.raises(Determinate, match="does not exist"):
        storage.logs.bounds_all([*logs, Topic("contract.never")])


def test_of_several_logs_all_are_followed_or_none(storage, make):
    one, other = make(), make()
    tail = storage.logs.tail({})
    with pytest.raises(Determinate, match="does not exist"):
        tail.add({one: START, Topic("contract.never"): START})
    tail.add({one: START, other: START})
    storage.logs.append([(one, b"a"), (other, b"x")])
    assert sorted(entry.value for entry in read(tail, 2)) == [b"a", b"x"]
    tail.close()


def test_what_fails_of_one_log_is_said_of_its_records_alone(storage, make):
    log = make()
    missing = Topic("contract.missing")
    first, lost, second = storage.logs.append_each(
        [(log, b"a"), (missing, b"x"), (log, b"b")], 10_000
    )
    assert (first, second) == (0, 1)
    assert isinstance(lost, Determinate)
    assert storage.logs.append_each([], 0) == ()
