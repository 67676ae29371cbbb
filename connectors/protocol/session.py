"""State machine of one transaction stream, shared by both sides: order and validity.

`StreamState.take` is given every message, sent or received, before a side acts on it. It raises
a `Violation` that says who broke which rule, and then nothing has changed; or it moves on.
Driver and connector keep the same state and check both directions, so either finds its own
mistakes before they are on the wire.

They differ in two points. A driver knows the keys of loaded documents by the documents
themselves; a connector only counts them. And a driver of ours never loads a key that is being
committed, while a connector of ours bears one that does (the reference runtime), since it reads
when the loads are flushed, which is after its commit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from connectors.protocol import message_validation
from connectors.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Extensions,
    Flush,
    Flushed,
    Load,
    Loaded,
    Message,
    Open,
    Opened,
    Request,
    StartCommit,
    StartedCommit,
    Store,
)
from connectors.protocol.specs import BindingProperties, bounds_of
from connectors.protocol.violations import Rule, Side, broken, driver_holds
from schemas.flow_hash import FIRST, LAST


class Phase(Enum):
    """The phase of a stream."""

    UNOPENED = auto()
    OPENING = auto()
    UNACKNOWLEDGED = auto()
    """Loads may come; documents are not returned before the acknowledgement."""
    ACKNOWLEDGING = auto()
    LOADING = auto()
    FLUSHING = auto()
    STORING = auto()
    COMMITTING = auto()
    """Loads of the next transaction may come."""


Table = Mapping[tuple[Phase, type[Message]], Phase]

_BOTH: Table = {
    (Phase.UNOPENED, Open): Phase.OPENING,
    (Phase.LOADING, Load): Phase.LOADING,
    (Phase.LOADING, Loaded): Phase.LOADING,
    (Phase.LOADING, Flush): Phase.FLUSHING,
    (Phase.FLUSHING, Loaded): Phase.FLUSHING,
    (Phase.FLUSHING, Flushed): Phase.STORING,
    (Phase.STORING, Store): Phase.STORING,
    (Phase.STORING, StartCommit): Phase.COMMITTING,
    (Phase.COMMITTING, Load): Phase.COMMITTING,
}
SEED: Table = {
    **_BOTH,
    (Phase.OPENING, Opened): Phase.LOADING,
    (Phase.COMMITTING, StartedCommit): Phase.LOADING,
}
"""Legal order in 2021."""
ACKNOWLEDGED: Table = {
    **_BOTH,
    (Phase.OPENING, Opened): Phase.UNACKNOWLEDGED,
    (Phase.COMMITTING, StartedCommit): Phase.UNACKNOWLEDGED,
    (Phase.UNACKNOWLEDGED, Load): Phase.UNACKNOWLEDGED,
    (Phase.UNACKNOWLEDGED, Acknowledge): Phase.ACKNOWLEDGING,
    (Phase.ACKNOWLEDGING, Load): Phase.ACKNOWLEDGING,
    (Phase.ACKNOWLEDGING, Acknowledged): Phase.LOADING,
}
"""Legal order where each transaction is acknowledged, and the state before the first too."""

MOST_STORED = 1 << 18
"""Keys of a binding that are remembered in a transaction. One of more, as the first contents of
a collection, is checked against so many, and each message in itself."""

_BETWEEN = {Phase.UNOPENED, Phase.UNACKNOWLEDGED, Phase.ACKNOWLEDGING, Phase.LOADING}


@dataclass(slots=True)
class Keys:
    """The keys of a binding in the transaction, packed."""

    requested: set[bytes] = field(default_factory=set)
    """Loaded, and their documents not returned; a connector never takes any out."""
    seen: set[bytes] = field(default_factory=set)
    """Loaded."""
    returned: int = 0
    stored: set[bytes] = field(default_factory=set)
    committing: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class StreamState:
    """The state of a stream on one side. `offered` is what the connector's Spec announced."""

    side: Side
    offered: Extensions = field(default_factory=Extensions)
    phase: Phase = Phase.UNOPENED
    extensions: Extensions = field(default_factory=Extensions)
    transaction: int = 0
    """The number of transactions begun."""
    loads: int = 0
    """Messages of the load phase that were taken."""
    range: tuple[int, int] = (FIRST, LAST)
    """The range of key hashes, both ends inclusive."""
    bindings: tuple[BindingProperties, ...] = ()
    keys: list[Keys] = field(default_factory=list)

    def take(self, message: Message) -> None:
        """Check a message and move on. Errors: Violation; then nothing has changed."""
        phase = self._next(message)
        self._check(message)()
        self.phase = phase

    def end(self) -> None:
        """The driver has closed its side. Errors: Violation, unless between transactions."""
        driver_holds(
            Rule.END,
            self.phase in _BETWEEN and not self.loads,
            f"expected the end of the stream between transactions, actual in {self.where}",
        )

    @property
    def where(self) -> str:
        """The phase and transaction, for messages."""
        name = self.phase.name.lower()
        return f"phase {name} of transaction {self.transaction}, after {self.loads} loads"

    def _next(self, message: Message) -> Phase:
        table = ACKNOWLEDGED if self.extensions.acknowledge else SEED
        phase = table.get((self.phase, type(message)))
        if phase is None:
            legal = sorted(kind.__name__ for at, kind in table if at is self.phase)
            broken(
                Side.DRIVER if isinstance(message, Request) else Side.CONNECTOR,
                Rule.ORDER,
                f"expected {' or '.join(legal)} in {self.where},"
                f" actual {type(message).__name__}",
            )
        return phase

    def _check(self, message: Message) -> Callable[[], None]:
        """Validate a message completely; the returned transition cannot fail."""
        match message:
            case Open():
                return self._open(message)
            case Load():
                return self._load(message)
            case Loaded():
                return self._loaded(message)
            case Store():
                return self._store(message)
            case Opened():
                message_validation.check_opened(message, self.range, self.extensions)
            case _:
                _check_checkpoint(message)
        return partial(_CHANGES.get(type(message), _nothing), self)

    def _open(self, message: Open) -> Callable[[], None]:
        message_validation.check_open(message, self.offered)
        bindings = bounds_of(message.materialization)

        def change() -> None:
            self.bindings, self.extensions = bindings, message.extensions
            self.range = (message.key_begin, message.key_end)
            self.keys = [Keys() for _ in bindings]

        return change

    def _load(self, message: Load) -> Callable[[], None]:
        bound = message_validation.binding(Side.DRIVER, "Load", message.binding, self.bindings)
        if bound.delta:
            detail = f"Load: expected no delta updates, as binding {message.binding} has"
            broken(Side.DRIVER, Rule.DELTA, detail)
        message_validation.check_tuples("Load", message.keys, len(bound.keys))
        keys, packed = self.keys[message.binding], message.keys.packed
        message_validation.check_range("Load", packed, *self.range)
        message_validation.check_once(Side.DRIVER, Rule.LOADED_ONCE, "Load", packed, keys.seen)
        if self.side is Side.DRIVER:
            message_validation.check_not_committing(packed, keys.committing)

        def change() -> None:
            self.loads += 1
            keys.seen.update(packed)
            keys.requested.update(packed)

        return change

    def _loaded(self, message: Loaded) -> Callable[[], None]:
        message_validation.binding(Side.CONNECTOR, "Loaded", message.binding, self.bindings)
        message_validation.check_documents(Side.CONNECTOR, "Loaded", message.documents)
        keys = self.keys[message.binding]
        batch = self._keys_of(message) if self.side is Side.DRIVER else set()
        message_validation.check_returned(
            keys.returned + len(message.documents), len(keys.seen)
        )

        def change() -> None:
            keys.returned += len(message.documents)
            keys.requested -= batch

        return change

    def _keys_of(self, message: Loaded) -> set[bytes]:
        """The keys of loaded documents, which were all asked for."""
        keys = self.keys[message.binding]
        bound = self.bindings[message.binding]
        packed = message_validation.document_keys(message.documents, bound)
        return message_validation.check_requested(packed, keys.requested, keys.seen)

    def _store(self, message: Store) -> Callable[[], None]:
        bound = message_validation.binding(Side.DRIVER, "Store", message.binding, self.bindings)
        message_validation.check_store(message, bound, self.extensions)
        keys = self.keys[message.binding]
        message_validation.check_range("Store", message.keys.packed, *self.range)
        packed = () if bound.delta else message.keys.packed
        message_validation.check_once(
            Side.DRIVER, Rule.STORED_ONCE, "Store", packed, keys.stored
        )
        is_kept = len(keys.stored) < MOST_STORED
        return partial(keys.stored.update, packed if is_kept else ())


def _check_checkpoint(message: Message) -> None:
    match message:
        case Flush():
            detail = "Flush: expected a checkpoint, actual none"
            driver_holds(Rule.CHECKPOINT, message.checkpoint, detail)
        case Flushed():
            message_validation.check_driver_checkpoint(message)
        case _:
            pass


def _begin(session: StreamState) -> None:
    session.transaction += 1


def _start_commit(session: StreamState) -> None:
    session.transaction += 1
    session.loads = 0
    session.keys = [Keys(committing=keys.stored) for keys in session.keys]


def _committed(session: StreamState) -> None:
    if not session.extensions.acknowledge:
        _release(session)


def _release(session: StreamState) -> None:
    for keys in session.keys:
        keys.committing = set()


def _nothing(_: StreamState) -> None:
    """A message that changes nothing but the phase."""


_CHANGES: Mapping[type[Message], Callable[[StreamState], None]] = {
    Opened: _begin,
    StartCommit: _start_commit,
    StartedCommit: _committed,
    Acknowledged: _release,
}
