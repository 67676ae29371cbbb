"""Conformance checks of a connector that takes only delta updates.

    @pytest.mark.parametrize("check", delta.CHECKS)
    def test_protocol(check):
        check(subject, rows)

`rows` answers with the documents that are in a binding of a task, each as often as it is there.
"""

from collections.abc import Callable, Sequence

from connectors import testing
from connectors.driver import Stream
from connectors.protocol import messages
from connectors.testing import (
    ALLOWED,
    EVENTS,
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
    raises,
    store,
    store_both,
    write,
)
from connectors.transport.errors import ConnectorFailed
from schemas.flow_pb2 import MaterializationSpec

Rows = Callable[[MaterializationSpec, int], Sequence[Document]]
Check = Callable[[Subject, Rows], None]


def ordered(documents: Sequence[Document]) -> list[Document]:
    """The rows, in any order."""
    return sorted(documents, key=str)


def check_appends(subject: Subject, rows: Rows) -> None:
    """Every change is a row, also one of a key that is there."""
    task = subject.applied("appends")
    documents = [account("a", 1, 1.5), account("a", 1, 2.5), account("b", 2, None)]
    with subject.session(task) as stream:
        assert at(stream) == 0, "a new task begins at zero"
        write(stream, 1, documents[:2])
        write(stream, 2, documents[2:], exists=True)
        commit(stream, 3)
        assert ordered(rows(task, 0)) == ordered(documents)
        stream.finish()
    with subject.session(task) as stream:
        assert at(stream) == 3, "the checkpoint of the last commit"


def check_fence(subject: Subject, rows: Rows) -> None:
    """A session that lost its range, or a part of it, adds no row."""
    for begin, end in [(FIRST, LAST), (FIRST, MIDDLE)]:
        task = subject.applied("fence")
        with subject.session(task) as older:
            write(older, 1, [account("a", 1, 1)])
            with subject.session(task, begin, end) as newer:
                assert at(newer) == 1
                with raises(ConnectorFailed, "a commit of a session that lost its range"):
                    write(older, 2, [account("a", 2, 2)])
                commit(newer, 3)
            assert rows(task, 0) == [account("a", 1, 1)]


def check_crashes(subject: Subject, rows: Rows) -> None:
    """A session that ends without a word leaves all of a transaction or none, and no part.

    The transaction is written again if it was not committed: each row is there once.
    """
    for event in EVENTS:
        task = subject.applied("crash", "crash_too")
        with subject.session(task) as stream:
            commit(stream, 1)
            until(stream, event)
            subject.abandon(stream)
        with subject.session(task) as stream:
            number = at(stream)
            allowed = ALLOWED.get(event, {1})
            assert number in allowed, f"crash after {event}: actual checkpoint {number}"
            contents = [list(rows(task, binding)) for binding in (0, 1)]
            both = [[account("a", 1, 2)], [account("b", 1, 2)]]
            assert contents == (both if number == 2 else [[], []]), f"crash after {event}"
            if number == 1:
                stream.flush(checkpoint(2))
                store_both(stream)
                stream.commit()
            assert [list(rows(task, binding)) for binding in (0, 1)] == both


def until(stream: Stream, event: str) -> None:
    """The messages of a transaction of two tables, up to one; there are no loads."""
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: None,
        lambda: stream.flush(checkpoint(2)),
        lambda: store_both(stream),
        lambda: stream.send(messages.StartCommit()),
        stream.receive,
        lambda: acknowledge(stream),
    ]
    for step in steps[: EVENTS.index(event) + 1]:
        step()


def check_uncommitted(subject: Subject, rows: Rows) -> None:
    """Rows that are stored and not committed are never visible, even without cleanup."""
    task = subject.applied("uncommitted")
    with subject.session(task) as stream:
        stream.flush(checkpoint(1))
        store(stream, [account("a", 1, 1)])
        subject.abandon(stream)
        assert list(rows(task, 0)) == []


def without_rows(check: Callable[[Subject], None]) -> Check:
    """A check that reads nothing."""

    def adapted(subject: Subject, rows: Rows) -> None:
        del rows
        check(subject)

    adapted.__name__ = check.__name__
    return adapted


CHECKS: Sequence[Check] = (
    check_appends,
    check_fence,
    check_crashes,
    check_uncommitted,
    *map(
        without_rows,
        (
            testing.check_versions,
            testing.check_split_fence,
            testing.check_merge,
            testing.check_subranges,
        ),
    ),
)
