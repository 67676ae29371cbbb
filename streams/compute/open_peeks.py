"""The controller's open peeks as a pure state machine: what to send, and what is answered.

    ask -> sent to all replicas, or to the one that it names
    first answer -> the result; the others are told to cancel
    a replica joins -> it is sent what is open, by name: it passes over what came before it
    an iteration begins -> everything that is open is sent again

So a replica that dies loses no peek: another one answers, or the one that starts next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.compute.peeks import CancelPeek, Peek, PeekCanceled, PeekOutcome, PeekResponse
from streams.compute.protocol import Command, replica_of
from streams.storage.log.persistent_map import Map


@dataclass(frozen=True, slots=True)
class OpenPeeks:
    """The peeks without an answer, by uuid, and the processes heard in this iteration."""

    peeks: Map[str, Peek] = field(default_factory=Map)
    processes: frozenset[str] = frozenset()

    def ask(self, peek: Peek) -> "OpenPeeks":
        """Return the state with one more peek, which is to be sent."""
        return replace(self, peeks=self.peeks.set(peek.uuid, peek))

    def cancel(self, uuid: str) -> tuple["OpenPeeks", tuple[Command, ...]]:
        """Return the state without a peek that nobody waits for; nothing for another one."""
        if uuid not in self.peeks:
            return self, ()
        return replace(self, peeks=self.peeks.remove(uuid)), (CancelPeek(uuid),)

    def begin(self) -> tuple["OpenPeeks", tuple[Command, ...]]:
        """Return the state at the start of an iteration, and what to send in it."""
        return replace(self, processes=frozenset()), tuple(self.peeks.values())

    def heard(self, process: str) -> tuple["OpenPeeks", tuple[Command, ...]]:
        """Return the state after any response of a process; it may be its first one."""
        if process in self.processes:
            return self, ()
        name = replica_of(process)
        others = (other for other in self.processes if replica_of(other) != name)
        again = tuple(
            replace(peek, replica=name)
            for peek in self.peeks.values()
            if peek.replica in {"", name}
        )
        return replace(self, processes=frozenset((*others, process))), again

    def answered(
        self, response: PeekResponse
    ) -> tuple["OpenPeeks", Mapping[str, PeekOutcome], tuple[Command, ...]]:
        """Return the state after an answer, the result if it is the first, what to send.

        A peek that is open was not canceled by us: such an answer says nothing.
        """
        peek = self.peeks.get(response.uuid)
        if peek is None or isinstance(response.outcome, PeekCanceled):
            return self, {}, ()
        others = len(self.processes) > 1 and not peek.replica
        commands = (CancelPeek(peek.uuid),) if others else ()
        state = replace(self, peeks=self.peeks.remove(peek.uuid))
        return state, {peek.uuid: response.outcome}, commands
