"""Executes commands, many concurrently, each with one effect (`streams.storage.commands`).

The command generators of a crowd (a batch of commands) advance together: their chunks are
stored with one flush and their events are appended with one flush, in the order of the
commands. Several crowds may run at once, each in a thread of its own, if no group is in two of
them.
"""

import hashlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, EventId, Offset
from streams.kafka.log import Truncated, Unanswered
from streams.storage.client.id_registry import Directory
from streams.storage.client.preconditions import CapabilityConditions
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.client.shards import Shards, fresh_uuid
from streams.storage.client.submit import Attempt, Unread, unread_error
from streams.storage.commands.dedup import subjects
from streams.storage.commands.handlers import CommandHandlers
from streams.storage.commands.wire import Create, Outcome, Request, Status
from streams.storage.log.dedup_window import COMMAND
from streams.storage.log.events import Body
from streams.storage.log.outcomes import Outcome as Decided
from streams.storage.log.outcomes import Stale
from streams.storage.sans_io import (
    CommandGenerators,
    Conversation,
    StoreChunks,
    StoredChunks,
    SubmitEvents,
    SubmittedOutcomes,
)
from streams.storage.write.update import UpdateWriter
from streams.trace.kernel.pool import KernelPool

log = logging.getLogger(__name__)

NAMED = 3
"""Number of events of one submission that get a name; those after them renew leases, which may
happen twice.
"""


class WouldWait(Exception):
    """A command would have to wait before it has had any effect."""


def raise_instead_of_waiting() -> None:
    """Raise instead of waiting. Errors: Lingers."""
    raise WouldWait


@dataclass(slots=True)
class CommandExecution:
    """One command in execution. All names that it assigns are derived from `seed`.

    A command that is `aside` has had no effect and is to be executed alone.
    """

    request: Request
    seed: str
    conversation: Conversation[Outcome]
    ask: StoreChunks | SubmitEvents | None = None
    outcome: Outcome | None = None
    named: int = 0
    is_decided: bool = False
    is_aside: bool = False

    def name(self, number: int) -> EventId:
        """Return the id of the command's event with this number."""
        return EventId(f"{COMMAND}{self.seed}:{number}")

    def attempts(self) -> list[tuple[str, Body, EventId]]:
        """Return the requested events with their names."""
        assert isinstance(self.ask, SubmitEvents), "events were asked for"
        events = self.ask.events
        numbers = range(self.named, self.named + min(len(events), NAMED))
        names = [self.name(number) for number in numbers]
        others = (EventId(fresh_uuid()) for _ in events[NAMED:])
        self.named += len(names)
        return [
            (group, body, name)
            for (group, body), name in zip(events, [*names, *others], strict=True)
        ]


class CrowdExecutor:
    """Executes the commands of one crowd against the shards.

    `origin` is the topic id of the command topic. `check` raises when another service has taken
    over; `reached` is called at each step. With `is_brief` no command waits for anything but
    the chunks and events of the whole crowd.
    """

    def __init__(
        self,
        shards: Shards,
        origin: str,
        check: Callable[[], None],
        reached: Callable[[str], None],
        kernels: KernelPool,
        *,
        is_brief: bool = False,
    ) -> None:
        self._shards = shards
        self._directory = (
            Directory(shards, raise_instead_of_waiting) if is_brief else Directory(shards)
        )
        self._writing = UpdateWriter(shards, None)
        self._counting = UpdateWriter(shards, kernels)
        self._origin = origin
        self._check = check
        self._reached = reached

    def answer(self, crowd: Sequence[Request]) -> list[Outcome | None]:
        """Return the outcomes of commands that may run together; None for those set aside.

        Errors: Determinate, Indeterminate: nothing is lost, and a retry gives the same
        outcomes; Fenced, or whatever `check` raises.
        """
        self._leave_failed(crowd)
        executions = [self._execution(request) for request in crowd]
        try:
            self._have(executions)
        except Unanswered:
            raise
        except Determinate:
            # perhaps its topics were deleted after a drop that was not read here
            about = [subjects(request.command) for request in crowd]
            Directory(self._shards).leave_retired(frozenset().union(*about))
            raise
        return [execution.outcome for execution in executions]

    def _have(self, executions: Sequence[CommandExecution]) -> None:
        """Run all generators to their ends. Errors: as `answer`."""
        aside: set[CollectionId] = set()
        for execution in executions:
            about = subjects(execution.request.command)
            # or it would overtake one that is set aside
            execution.is_aside = bool(about & aside)
            if not execution.is_aside:
                self._go_on(execution, None)
            aside |= about if execution.is_aside else frozenset()
        while open_ := [
            execution
            for execution in executions
            if execution.outcome is None and not execution.is_aside
        ]:
            # all chunks before any event: the logs decide in the order of the commands
            storing = [
                execution for execution in open_ if isinstance(execution.ask, StoreChunks)
            ]
            if storing:
                self._store(storing)
            else:
                self._submit(open_)

    def _execution(self, request: Request, *, is_decided: bool = False) -> CommandExecution:
        seed = digest(f"{self._origin}/{request.offset}/{request.id}")
        numbers = itertools.count()
        conditions = CapabilityConditions(
            self._shards,
            self._directory,
            lambda: digest(f"{seed}/{next(numbers)}"),
            is_decided,
        )
        conversations = CommandGenerators(
            self._shards, self._directory, conditions, self._writing, None, creator=seed
        )
        handlers = CommandHandlers(conversations, self._counting)
        return CommandExecution(
            request, seed, start_command(handlers, request), is_decided=is_decided
        )

    def _go_on(
        self, execution: CommandExecution, answer: StoredChunks | SubmittedOutcomes | None
    ) -> None:
        """Resume the generator until its next request or its result.

        Errors: Determinate, Indeterminate.
        """
        try:
            execution.ask = (
                next(execution.conversation)
                if answer is None
                else execution.conversation.send(answer)
            )
        except StopIteration as over:
            execution.outcome = over.value
        except WouldWait:
            execution.is_aside = True
        except (InvalidUsage, Corrupt, Truncated, Unread) as obstacle:
            self._stop(execution, obstacle)
        except (Determinate, Indeterminate):
            raise
        except Exception as defect:  # noqa: BLE001  the failure of one command stops no other
            self._give_up(execution, defect)

    def _give_up(self, execution: CommandExecution, failure: Exception) -> None:
        """Make the failure of a command its outcome."""
        if isinstance(failure, InvalidUsage | Corrupt):
            self._stop(execution, failure)
            return
        if not isinstance(failure, SlackwaterError):
            command = {"command": execution.request.id}
            log.error("a command failed", exc_info=failure, extra=command)
        execution.outcome = failed_outcome(failure)

    def _stop(self, execution: CommandExecution, obstacle: SlackwaterError) -> None:
        """Refuse, unless the conflict is the command's own effect: then get its outcome."""
        if execution.named == 0 and not execution.is_decided and self._was_decided(execution):
            again = self._execution(execution.request, is_decided=True)
            execution.conversation, execution.is_decided = again.conversation, True
            self._go_on(execution, None)
        elif isinstance(obstacle, InvalidUsage):
            code, message = type(obstacle).__name__, str(obstacle)
            execution.outcome = Outcome(status=Status.REFUSED, code=code, message=message)
        else:
            execution.outcome = failed_outcome(obstacle)

    def _was_decided(self, execution: CommandExecution) -> bool:
        """Whether a log holds an event of the command: then only its answer was lost."""
        command = execution.request.command
        groups = {command.group} if isinstance(command, Create) else set()
        about = subjects(command)
        states = [
            group.state
            for name, group in list(self._shards.following.groups.items())
            if name in groups or about & group.state.collections.keys()
        ]
        names = [execution.name(number) for number in range(NAMED + 1)]
        return any(state.kept.find(name) for state in states for name in names)

    def _leave_failed(self, crowd: Sequence[Request]) -> None:
        """Close failed groups before anything else, so that commands open them again."""
        following, names = self._shards.following, {REGISTRY}
        for command in (request.command for request in crowd):
            names.update(filter(None, map(following.home, subjects(command))))
            names |= {command.group} if isinstance(command, Create) else set()
        for name in names:
            group = following.groups.get(name)
            if group is not None and group.failure is not None:
                self._shards.close(name)

    def _store(self, executions: Sequence[CommandExecution]) -> None:
        """Store the chunks of all commands; one by one if that fails, to find the one at fault.

        Errors: Determinate, Indeterminate: no broker answers.
        """
        asks = [
            execution.ask for execution in executions if isinstance(execution.ask, StoreChunks)
        ]
        try:
            stored = iter(
                self._shards.write_all([write for ask in asks for write in ask.writes])
            )
        except Exception as failure:
            # rows of one command that cannot be stored do not affect the others
            is_broker = isinstance(failure, Determinate | Indeterminate)
            if is_broker and self._shards.following.is_silence():
                raise
            if len(executions) == 1:
                self._give_up(executions[0], failure)
                return
            for execution in executions:
                self._store([execution])
            return
        self._reached("stored")
        for execution, ask in zip(executions, asks, strict=True):
            self._go_on(execution, StoredChunks(tuple(next(stored) for _ in ask.writes)))

    def _submit(self, executions: Sequence[CommandExecution]) -> None:
        wanted = [execution.attempts() for execution in executions]
        try:
            decided = iter(self._decide([event for events in wanted for event in events]))
        except InvalidUsage as cause:  # the group was closed meanwhile: open it
            raise Determinate(str(cause)) from cause
        self._reached("submitted")
        for execution, events in zip(executions, wanted, strict=True):
            self._go_on(execution, SubmittedOutcomes(tuple(next(decided) for _ in events)))

    def _decide(self, events: Sequence[tuple[str, Body, EventId]]) -> list[Decided]:
        """Return the outcome of each event; one that was stale is sent again."""
        outcomes: dict[int, Decided] = {}
        open_ = dict(enumerate(events))
        while open_:
            seen = {group: self._seen(group) for group, _, _ in open_.values()}
            self._check()  # after `seen`, or a zombie could act on its successor's effects
            attempts = [
                Attempt(group, body, name, seen[group]) for group, body, name in open_.values()
            ]
            decided = zip(tuple(open_), self._shards.attempt(attempts), strict=True)
            for number, outcome in decided:
                if not isinstance(outcome, Stale):
                    outcomes[number] = outcome
                    del open_[number]
        return [outcomes[number] for number in range(len(events))]

    def _seen(self, name: str) -> Offset:
        """The offset to which a group is folded. Errors: Unread if the group has failed."""
        group = self._shards.following.groups.get(name)
        if group is None:
            raise unread_error(f"group {name} is no longer followed")
        return group.state.upto


def start_command(handlers: CommandHandlers, request: Request) -> Conversation[Outcome]:
    """Return the command's generator; errors in the command are raised at its first `next`."""
    return (yield from handlers.ask(request.command))


def failed_outcome(failure: Exception) -> Outcome:
    """Return the outcome for a command that failed for an external reason."""
    is_expected = isinstance(failure, SlackwaterError)
    code = type(failure).__name__ if is_expected else "Defect"
    return Outcome(status=Status.FAILED, code=code, message=str(failure) or repr(failure))


def digest(text: str) -> str:
    """Return a 128-bit name derived from a text.

    It is as secret as the text, whose only secret part is the command's id.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:32]
