"""Checks that a connector keeps the protocol: for its author, over any transport.

    from connectors import testing

    @pytest.mark.parametrize("check", testing.CHECKS)
    def test_protocol(check):
        check(testing.Subject(driver=Driver(Command(["./connector"], os.environ)), ...))

Each check makes a task of its own name and table, and sees the endpoint only through the
protocol: what is in a table is what loads return. It raises AssertionError, or what the driver
raised.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from connectors.driver import Stream
from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.testing.harness import (
    ACCOUNTS,
    FIRST,
    LAST,
    MIDDLE,
    Document,
    Subject,
    account,
    acknowledge,
    at,
    checkpoint,
    commit,
    enter,
    flushed,
    load,
    number_of,
    raises,
    read,
    store,
    write,
)
from connectors.testing.types import EVERYTHING, documents, store_of
from connectors.transport.errors import ConnectorFailed
from schemas import materialize_pb2 as wire
from schemas.flow_tuple import element

__all__ = [
    "ACCOUNTS",
    "ALLOWED",
    "CHECKS",
    "EVENTS",
    "FIRST",
    "LAST",
    "MIDDLE",
    "Document",
    "Subject",
    "account",
    "acknowledge",
    "at",
    "check_apply_again",
    "check_crashes",
    "check_deletes",
    "check_exact_fence",
    "check_lifecycle",
    "check_merge",
    "check_pipelining",
    "check_split_fence",
    "check_subranges",
    "check_types",
    "check_versions",
    "check_wrong_flags",
    "checkpoint",
    "commit",
    "flushed",
    "load",
    "number_of",
    "raises",
    "read",
    "store",
    "store_both",
    "write",
]


def check_lifecycle(subject: Subject) -> None:
    """Spec, Validate, Apply, and transactions that insert, update and read rows."""
    task = subject.task("lifecycle")
    dry = wire.ApplyRequest(materialization=task, version="1", dry_run=True)
    assert subject.driver.apply(dry).action_description, "a dry run says what it would do"
    with raises(ConnectorFailed, "a session of a task that was not applied"):
        enter(subject, task)
    apply = wire.ApplyRequest(materialization=task, version="1")
    assert subject.driver.apply(apply).action_description, "it says what it did"
    first, second = account("a", 1, 1.5), account("b", 2, None)
    with subject.session(task) as stream:
        assert at(stream) == 0, "a new task begins at zero"
        write(stream, 1, [first, second])
        assert read(stream, 2, [("a", 1), ("b", 2), ("c", 3)]) == [first, second]
        changed = account("a", 1, 2.5)
        write(stream, 3, [changed], exists=True)
        commit(stream, 4)
        stream.finish()
    with subject.session(task) as stream:
        assert at(stream) == 4, "the checkpoint of the last commit"
        assert read(stream, 5, [("a", 1), ("b", 2)]) == [changed, second]
        stream.finish()


def check_versions(subject: Subject) -> None:
    """A session of another version than was applied is refused."""
    task = subject.applied("versions")
    offered = Extensions()
    message = messages.Open(materialization=task, version="2")
    with raises(ConnectorFailed, "a session of a version that was not applied"):
        subject.driver.open(message, offered).channel.close()


def check_pipelining(subject: Subject) -> None:
    """Loads during a commit see its rows."""
    task = subject.applied("pipelining")
    documents = [account("a", number, 1) for number in range(3)]
    with subject.session(task) as stream:
        stream.flush(checkpoint(1))
        store(stream, documents)
        stream.send(messages.StartCommit())
        load(stream, [("z", 1)])
        stream.receive()
        acknowledge(stream)
        load(stream, [("a", number) for number in range(3)])
        assert flushed(stream, 2) == documents, "the commit came before the loads were read"
        stream.commit()
        acknowledge(stream)
        stream.finish()


def check_deletes(subject: Subject) -> None:
    """A deleted document is gone, and its key can be inserted again."""
    task = subject.applied("deletes")
    first, second = account("a", 1, 1), account("a", 2, 2)
    with subject.session(task) as stream:
        if not stream.session.extensions.delete:
            return
        write(stream, 1, [first, second])
        write(stream, 2, [first], exists=True, deletes=True)
        write(stream, 3, [account("a", 3, 3)], exists=False, deletes=True)
        assert read(stream, 4, [("a", 1), ("a", 2), ("a", 3)]) == [second]
        again = account("a", 1, 4)
        write(stream, 5, [again])
        assert read(stream, 6, [("a", 1), ("a", 2)]) == [again, second]


def check_wrong_flags(subject: Subject) -> None:
    """An update of a missing row and an insert of an existing one fail, and change nothing."""
    for exists, place in [(True, 2), (False, 1)]:
        task = subject.applied("flags")
        with subject.session(task) as stream:
            write(stream, 1, [account("a", 1, 1)])
            with raises(ConnectorFailed, f"a Store with exists={exists}"):
                write(stream, 2, [account("a", place, 2)], exists=exists)
        with subject.session(task) as stream:
            assert at(stream) == 1, "the failed transaction left nothing"
            documents = read(stream, 2, [("a", 1), ("a", 2)])
            assert documents == [account("a", 1, 1)]


def check_exact_fence(subject: Subject) -> None:
    """A newer session of the same range goes on where the older was; that one is out."""
    task = subject.applied("exact")
    with subject.session(task) as older:
        write(older, 1, [account("a", 1, 1)])
        with subject.session(task) as newer:
            assert at(newer) == 1
            with raises(ConnectorFailed, "a commit of a session that lost its range"):
                write(older, 2, [account("a", 2, 2)])
            assert read(newer, 3, [("a", 1), ("a", 2)]) == [account("a", 1, 1)]
            write(newer, 4, [account("a", 2, 4)])


def check_split_fence(subject: Subject) -> None:
    """Parts of a range go on where the whole was, fence it, and do not fence each other."""
    task = subject.applied("split")
    with subject.session(task) as parent:
        write(parent, 1, [account("a", 1, 1)])
        with (
            subject.session(task, FIRST, MIDDLE - 1) as left,
            subject.session(task, MIDDLE, LAST) as right,
        ):
            assert (at(left), at(right)) == (1, 1), "parts begin where the whole was"
            with raises(ConnectorFailed, "a commit of a range that was split"):
                write(parent, 2, [account("a", 2, 2)])
            commit(left, 3)
            commit(right, 3)
            commit(left, 4)


def check_merge(subject: Subject) -> None:
    """A range whose parts stand apart is refused, and never begins behind one of them.

    So it is for a driver of 2021, which knows of one checkpoint.
    """
    seed_alone = replace(subject.offered, subranges=False)
    task = subject.applied("merge")
    with subject.session(task) as parent:
        commit(parent, 1)
    with subject.session(task, FIRST, MIDDLE - 1) as left:
        commit(left, 2)
    with subject.session(task, MIDDLE, LAST) as right:
        commit(right, 3)
    with raises(ConnectorFailed, "a range with a gap between its parts"):
        enter(subject, task, seed_alone)
    with subject.session(task, FIRST, MIDDLE - 1) as left:
        assert at(left) == 2, "a refused range fences no session"
        commit(left, 3)
    with subject.session(task) as whole:
        assert at(whole) == 3, "parts at one checkpoint are merged"
        commit(whole, 4)


def check_subranges(subject: Subject) -> None:
    """If offered: each part of a range with a gap is listed with its checkpoint.

    So it is until a session of the range has committed; one that dies before changes nothing.
    """
    if not subject.offered.subranges:
        return
    task = subject.applied("subranges")
    with subject.session(task) as parent:
        commit(parent, 1)
        assert not parent.subranges, "a range at one checkpoint"
    with subject.session(task, FIRST, MIDDLE - 1) as left:
        commit(left, 2)
        apart = [(FIRST, MIDDLE - 1, 2), (MIDDLE, LAST, 1)]
        with subject.session(task) as whole:
            assert parts_of(whole) == apart, "the parts have a gap between them"
            with raises(ConnectorFailed, "a commit of a part that was merged"):
                commit(left, 3)
            subject.abandon(whole)
    with subject.session(task) as whole:
        assert parts_of(whole) == apart, "nothing was committed"
        commit(whole, 4)
        whole.finish()
    with subject.session(task, MIDDLE, LAST) as right:
        assert (at(right), parts_of(right)) == (4, []), "the merged range has one checkpoint"


def parts_of(stream: Stream) -> list[tuple[int, int, int]]:
    """The subranges of Opened, and how far each was read."""
    return [
        (subrange.key_begin, subrange.key_end, number_of(subrange.checkpoint))
        for subrange in stream.subranges
    ]


def check_types(subject: Subject) -> None:
    """Values of every kind come back as they went, in columns that take them."""
    task = subject.applied("types", collection=EVERYTHING)
    written = documents()
    with subject.session(task) as stream:
        stream.flush(checkpoint(1))
        stream.send(store_of(task, written))
        stream.commit()
        acknowledge(stream)
        keys = Tuples.of([[element(document["id"])] for document in written])
        stream.send(messages.Load(0, keys))
        loaded, _ = stream.flush(checkpoint(2))
        loaded_documents = [json.loads(text) for part in loaded for text in part.documents]
        for expected, actual in zip(written, sorted(loaded_documents, key=number), strict=True):
            assert actual == expected, f"a document that came back: {actual}"


def number(document: Document) -> int:
    """The key of a document of `EVERYTHING`."""
    return int(str(document["id"]))


def check_apply_again(subject: Subject) -> None:
    """Applying again, and applying another version, keeps the rows."""
    task = subject.applied("again")
    with subject.session(task) as stream:
        write(stream, 1, [account("a", 1, 1)])
        stream.finish()
    for version in ("1", "2", "1"):
        subject.driver.apply(wire.ApplyRequest(materialization=task, version=version))
    with subject.session(task) as stream:
        assert at(stream) == 1, "it goes on where it was"
        assert read(stream, 2, [("a", 1)]) == [account("a", 1, 1)]


EVENTS = ("open", "load", "flush", "store", "commit", "committed", "acknowledged")


ALLOWED = {"commit": {1, 2}, "committed": {2}, "acknowledged": {2}}
"""At which checkpoints the endpoint may be after a crash at an event; else at the first."""


def check_crashes(subject: Subject) -> None:
    """A session that ends without a word after any message leaves all of a transaction or none.

    Before Commit was sent it is none, after Committed was read it is all.
    """
    for event in EVENTS:
        task = subject.applied("crash", "crash_too")
        with subject.session(task) as stream:
            commit(stream, 1)
            until(stream, event)
            subject.abandon(stream)
        with subject.session(task) as stream:
            number = at(stream)
            load(stream, [("a", 1)])
            load(stream, [("b", 1)], binding=1)
            documents = flushed(stream, 3)
            both = [account("a", 1, 2), account("b", 1, 2)]
            assert documents == (both if number == 2 else []), f"crash after {event}"
            allowed = ALLOWED.get(event, {1})
            assert number in allowed, f"crash after {event}: actual checkpoint {number}"


def until(stream: Stream, event: str) -> None:
    """The messages of a transaction of two tables, up to one."""
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: load(stream, [("z", 1)]),
        lambda: stream.flush(checkpoint(2)),
        lambda: store_both(stream),
        lambda: stream.send(messages.StartCommit()),
        stream.receive,
        lambda: acknowledge(stream),
    ]
    for step in steps[: EVENTS.index(event) + 1]:
        step()


def store_both(stream: Stream) -> None:
    """A document in each of two tables."""
    store(stream, [account("a", 1, 2)])
    store(stream, [account("b", 1, 2)], binding=1)


CHECKS: Sequence[Callable[[Subject], None]] = (
    check_lifecycle,
    check_versions,
    check_pipelining,
    check_deletes,
    check_wrong_flags,
    check_exact_fence,
    check_split_fence,
    check_merge,
    check_subranges,
    check_crashes,
    check_apply_again,
    check_types,
)
