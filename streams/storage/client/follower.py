"""The log follower: one consumer for the logs of many groups, and the threads that wait.

With a pump, a background thread polls and folds, and waiters sleep until a fold makes their
condition true. Without one, a waiting thread polls and folds itself: the same behaviour in one
thread, for tests and for short-lived clients. Storage blocks only here.

A group that fails is no longer followed (`Group.failure`); others continue. It is reopened from
its Rollup, at growing intervals, until the cause is gone. A group whose log was truncated
beyond our position is reopened at once and fails only if that fails. Only a bug in the pump
itself stops it, and with it every group (`GroupFollower.defect`).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from streams.errors import Corrupt, Determinate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, EventId, Offset, Topic
from streams.kafka.client.retries import is_worth_waiting
from streams.kafka.log import Entry, Logs, Tail, Truncated
from streams.storage.client.assignments import AssignmentRequests
from streams.storage.client.expected_outcomes import ExpectedOutcomes
from streams.storage.client.group import MADE_ANEW, Group, OpenAgain, is_lost, lost_records
from streams.storage.client.group_index import GroupIndex
from streams.storage.client.notifications import Notifications
from streams.storage.client.quiet_groups import QuietGroups
from streams.storage.client.retries import RetryQueue, RetryResult
from streams.storage.client.status import ClientStatus
from streams.storage.client.waiters import Callback, Callbacks, Groups, Waiters, call_guarded
from streams.storage.log.events import Event
from streams.storage.log.outcomes import Outcome, WrongGroup

log = logging.getLogger(__name__)

POLL_MS = 50
"""Longest wait of a poll without records; a record ends it.

An idle client wakes this often, and a group that is added may wait this long until it is
followed.
"""

RETRY_S = 0.2
PATIENCE_MS = 30_000
"""How long reading back a durable record may take while brokers answer."""


PATIENCE_TO_FOLLOW_S = 10.0
"""How long an unreadable log is retried before its group fails: a broker may lag."""


def refuse_to_reopen(group: Group) -> Group:
    """Refuse to reopen a group. Errors: the group's failure."""
    raise group.failure or Determinate(f"group {group.names.group} cannot be opened again")


class GroupFollower:
    """The groups of one client. All methods may be called from many threads."""

    def __init__(
        self,
        logs: Logs,
        identify: Callable[[Topic], str | None],
        *,
        pump: bool,
        reopened: Callable[[Group], Group] = refuse_to_reopen,
    ) -> None:
        """`reopened` returns a new group, recovered from its topics, for one that failed."""
        self._identify = identify
        self._reopened = reopened
        self._retry_queue = RetryQueue(self._attempt, background=pump)
        self.changed = threading.RLock()  # guards what follows
        self._waiting = Waiters(self.changed)
        self._index = GroupIndex()
        self._quiet = QuietGroups()
        self.defect: Exception | None = None
        self.groups: dict[str, Group] = {}
        self._by_log: dict[Topic, Group] = {}
        self._awaiting = ExpectedOutcomes()
        self._callbacks = Callbacks()
        self._tail: Tail = logs.tail({})
        self._notifications = Notifications(self._tail, self.changed, self._failures)
        self._moves = AssignmentRequests(self._tail, self.changed, self._leave_behind)
        self._polling = threading.RLock()
        self._closed = False
        self._thread: threading.Thread | None = None
        if pump:
            self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
            self._thread.start()

    def follow(self, group: Group) -> None:
        """Follow one more group, from its folded state on."""
        with self.changed:
            self.groups[group.names.group] = group
            self._by_log[group.names.log] = group
            self._index.came(group)
            self._quiet.moved((group.names.group,), time.monotonic())
            self._moves.follow(group.names.log, Offset(group.state.upto + 1))
            self._waiting.everything()

    def leave(self, name: str) -> None:
        """Stop following a group; one that is not followed is ignored."""
        with self.changed:
            group = self.groups.pop(name, None)
            if group is not None:
                self._retry_queue.forget(name)
                self._notifications.is_news |= group.failure is not None
                del self._by_log[group.names.log]
                self._index.left(group)
                self._moves.leave(group.names.log)
                self._waiting.everything()

    def group(self, name: str) -> Group:
        """Return a followed group.

        Errors: InvalidUsage if it is not followed; the group's failure.
        """
        group = self.groups.get(name)
        if group is None:
            raise InvalidUsage(f"group {name} is not open")
        if group.failure is not None:
            raise group.failure
        return group

    def home(self, id_: CollectionId) -> str | None:
        """Return the group that holds a collection; None if no followed group does."""
        for name in (id_, self._index.find(id_)):
            group = None if name is None else self.groups.get(name)
            if group is not None and id_ in group.state.collections:
                return group.names.group
        return None

    def wait(
        self, predicate: Callable[[], bool], timeout_ms: int, groups: Groups | None = None
    ) -> bool:
        """Wait for the predicate; return whether it came true in time. Each fold evaluates it.

        A predicate about some `groups` only should name them: then other groups cost nothing.
        It has to be quick then, because the fold evaluates it. Without a pump there is at least
        one poll, however short the timeout.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        is_due = self._thread is None
        while True:
            with self.changed:
                if predicate():
                    return True
                left = deadline - time.monotonic()
                if (left <= 0 and not is_due) or self._closed:
                    return False
                if self._thread is not None:
                    self._waiting.sleep(predicate, groups, left)
                    continue
            self.advance(min(POLL_MS, max(0, int(left * 1000)) + 1))
            is_due = False

    def await_answered(
        self, predicate: Callable[[], bool], groups: Groups | None = None
    ) -> bool:
        """Wait for the predicate up to `PATIENCE_MS`, not counting time without any broker.

        An outage is waited for too, up to its own deadline; after it the timeout starts again.
        """
        since = time.monotonic()
        while True:
            left = since + PATIENCE_MS / 1000 - time.monotonic()
            if self.wait(predicate, max(0, int(left * 1000)), groups):
                return True
            if self.is_silence() or self._notifications.is_returning:
                since = time.monotonic()
            elif self._notifications.answering_since > since:
                since = self._notifications.answering_since
            else:
                return False

    def is_silence(self) -> bool:
        """Whether no broker answers and the outage deadline has not passed."""
        return not self._closed and is_worth_waiting(self._tail)

    def status(self) -> ClientStatus:
        """Return the status of the brokers and of the groups."""
        return self._notifications.status()

    def watch(self, callback: Callable[[ClientStatus], None]) -> Callable[[], None]:
        """Call back when brokers stop or resume answering, and when a group fails.

        Returns a function that unsubscribes. The callback runs in the folding thread: it must
        be short.
        """
        return self._notifications.watch(callback)

    def _failures(self) -> Mapping[str, str]:
        return {
            name: str(group.failure)
            for name, group in list(self.groups.items())
            if group.failure is not None
        }

    def expect(self, events: Sequence[tuple[str, Event]]) -> None:
        """Record the outcomes of these events, given with their groups, until `forget`."""
        with self.changed:
            self._awaiting.expect(events)

    def outcome(self, id_: EventId) -> Outcome | None:
        """Return the outcome of an expected event; None until it is read back."""
        return self._awaiting.outcome(id_)

    def forget(self, ids: Sequence[EventId]) -> None:
        """Stop expecting these events."""
        with self.changed:
            self._awaiting.forget(ids)

    def subscribe(self, callback: Callback, group: str | None = None) -> Callable[[], None]:
        """Call back with the names of groups that moved; return a function that unsubscribes.

        With a `group`, only if that one is among them. The callback runs in the folding thread,
        so it must be short and must not wait for a fold.
        """
        with self.changed:
            self._callbacks.add(callback, group)
        return partial(self._unsubscribe, callback, group)

    def _unsubscribe(self, callback: Callback, group: str | None) -> None:
        with self.changed:
            self._callbacks.remove(callback, group)

    def advance(self, wait_ms: int) -> None:
        """Poll once and fold the records."""
        with self._polling:
            self._moves.make()
            try:
                entries = self._tail.poll(wait_ms)
            except Truncated as failure:
                self._leave_behind(failure.topic, failure)
                entries = ()
            if entries:
                self._fold(entries)
        call_guarded(self._pack_quiet)
        self._retry_queue.try_due()
        self._notifications.tell()

    def _pack_quiet(self) -> None:
        """Take a step to pack one quiet group; many groups are packed over as many polls."""
        with self.changed:
            name = self._quiet.due(time.monotonic())
            group = None if name is None else self.groups.get(name)
        if group is not None and not group.is_ill and group.pack(self.changed):
            with self.changed:
                self._quiet.again(group.names.group)

    def close(self) -> None:
        """Stop following; waiters return."""
        with self.changed:
            self._closed = True
            self._waiting.everything()
        self._retry_queue.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._polling:
            self._tail.close()

    def _run(self) -> None:
        while not self._closed:
            try:
                self.advance(POLL_MS)
            except Determinate as failure:
                log.warning("polling logs failed; retrying", extra={"cause": failure})
                time.sleep(RETRY_S)
            except Exception as defect:
                log.exception("log follower crashed; all groups stopped")
                self.defect = defect
                self._fail_all(defect)  # else waiters would never return
                return

    def _fold(self, entries: Sequence[Entry]) -> None:
        with self.changed:
            moved = frozenset(self._fold_each(entries))
            self._waiting.moved(moved)
            self._quiet.moved(moved, time.monotonic())
        self._call_back(moved)

    def _call_back(self, moved: frozenset[str]) -> None:
        with self.changed:
            callbacks = self._callbacks.of(moved)
        for callback in callbacks:
            call_guarded(partial(callback, moved))

    def _fold_each(self, entries: Sequence[Entry]) -> Iterator[str]:
        """Fold each record into its group; return the groups that moved. Never raises."""
        for entry in entries:
            group = self._by_log.get(entry.topic)
            if group is None or group.is_ill:
                continue
            try:
                decided = group.fold(entry)
            except OpenAgain as cause:
                self._leave_behind(entry.topic, Corrupt(str(cause)))
                continue
            except Corrupt as failure:
                self.fail(entry.topic, failure)
                continue
            except Exception as defect:
                # a bug that this record triggers: other groups continue
                log.exception("a record cannot be folded", extra={"log": entry.topic})
                place = f"log {entry.topic}/0@{entry.offset}"
                self.fail(entry.topic, Corrupt(f"{place}: cannot be folded: {defect!r}"))
                continue
            if decided is not None:
                self._index.folded(group, *decided)
                self._note(group, *decided)
            yield group.names.group

    def _note(self, group: Group, event: Event, outcome: Outcome) -> None:
        self._awaiting.note(event.id, outcome)
        if isinstance(outcome, WrongGroup):
            # a stray event, or a topic that was created again (rule 12): ask the brokers
            self._retry_queue.soon(group.names.group)

    def fail(self, topic: Topic, failure: Exception) -> None:
        """Stop following the group of this log for `failure`, until it can be reopened."""
        with self.changed:
            group = self._by_log.get(topic)
            if group is not None and group.failure is None:
                log.error("group failed", extra={"log": topic, "cause": str(failure)})
                group.failure = failure
                self._notifications.is_news = True
                self._moves.leave(topic)
                if not is_lost(failure):
                    self._retry_queue.later(group.names.group)
            self._waiting.everything()

    def _leave_behind(self, topic: Topic, cause: SlackwaterError) -> None:
        """Have a group reopened whose log cannot be followed from our position."""
        with self.changed:
            group = self._by_log.get(topic)
            if group is None or group.is_ill:
                return
            log.warning(
                "group fell behind its log; reopening",
                extra={"log": topic, "cause": str(cause)},
            )
            group.left_behind = cause
            group.left_at_s = time.monotonic()
            self._moves.leave(topic)
            self._retry_queue.soon(group.names.group)

    def reopen(self, name: str, cause: SlackwaterError) -> None:
        """Have a group reopened because its next record does not arrive."""
        group = self.groups.get(name)
        if group is not None:
            self._leave_behind(group.names.log, cause)

    def heal(self, name: str) -> None:
        """Reopen a failed group at once; ignored if it has not failed.

        Errors: the reason why it fails now.
        """
        group = self.groups.get(name)
        if group is not None and group.is_ill:
            self._open_again(group)

    def _attempt(self, name: str) -> RetryResult:
        group = self.groups.get(name)
        if group is None or is_lost(group.failure):
            return RetryResult.DONE
        try:
            if group.is_ill:
                self._open_again(group)
            elif self._identify(group.names.log) != group.topic_id:
                log_topic = group.names.log
                self.fail(log_topic, lost_records(log_topic, group.state.upto, MADE_ANEW))
        except InvalidUsage:  # there is no such topic
            return RetryResult.GONE
        except SlackwaterError as failure:
            return RetryResult.DONE if is_lost(failure) else RetryResult.ILL
        return RetryResult.DONE

    def _open_again(self, group: Group) -> None:
        """Reopen a failed or lagging group from its topics. Errors: why that fails."""
        if group.failure is not None and is_lost(group.failure):
            raise group.failure
        try:
            self._adopt(group, self._reopened(group))
        except SlackwaterError as failure:
            if self._is_clear(group, failure):
                self._failed_again(group, failure)
            raise

    def _is_clear(self, group: Group, failure: SlackwaterError) -> bool:
        """Whether a failure to reopen is certain, and not just a lagging broker."""
        if isinstance(failure, Corrupt | Truncated):
            return True
        if isinstance(failure, InvalidUsage) and isinstance(group.left_behind, Truncated):
            return True  # there is no such topic, which was followed until it was gone
        waited_s = time.monotonic() - group.left_at_s
        return waited_s > PATIENCE_TO_FOLLOW_S and not self.is_silence()

    def _failed_again(self, group: Group, failure: SlackwaterError) -> None:
        """Record the newest failure; a group whose collections were all dropped has none."""
        is_gone = isinstance(failure, InvalidUsage)
        if is_gone:
            failure = group.left_behind or failure
        with self.changed:
            if self.groups.get(group.names.group) is not group:
                return
            if is_gone and group.state.collections.are_over:
                self.leave(group.names.group)
                return
            if group.failure is None:
                self.fail(group.names.log, failure)
            elif str(failure) != str(group.failure):
                log.error("group failed", extra={"log": group.names.log, "cause": str(failure)})
                group.failure, self._notifications.is_news = failure, True

    def _adopt(self, old: Group, fresh: Group) -> None:
        """Replace a group by its reopened form."""
        with self.changed:
            if self.groups.get(old.names.group) is not old:
                return
            self._awaiting.look_up(fresh)
            self._notifications.is_news |= old.failure is not None
            old.successor = fresh
            self._moves.leave(old.names.log)
            self.follow(fresh)
            log.info("group reopened", extra={"log": old.names.log})
        self._call_back(frozenset({old.names.group}))

    def explained(self, failure: Truncated) -> Truncated:
        """The failure, which says so if the topic was created again: then offsets are void."""
        group = self._by_log.get(failure.topic)
        try:
            there = self._identify(failure.topic)
        except SlackwaterError:
            return failure  # what is known already has to do
        if group is None or there in {None, group.topic_id}:
            return failure
        return lost_records(failure.topic, group.state.upto, MADE_ANEW)

    def _fail_all(self, failure: Exception) -> None:
        with self.changed:
            for topic in tuple(self._by_log):
                self.fail(topic, failure)
