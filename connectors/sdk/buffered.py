"""A transactor in memory, for endpoints that are read and written once a transaction."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from connectors.protocol.messages import Flush, Flushed, Load, Loaded, Store, Subrange


class DocumentSession(Protocol):
    """The endpoint as a session sees it: what an author writes instead of a `Transactor`."""

    @property
    def checkpoint(self) -> bytes:
        """As `Transactor.checkpoint`."""

    @property
    def subranges(self) -> Sequence[Subrange]:
        """As `Transactor.subranges`."""

    def read(self, binding: int, keys: Sequence[bytes]) -> Sequence[bytes]:
        """The documents that are there, in any order, by their packed keys."""

    def commit(self, checkpoint: bytes, stores: Sequence[Store]) -> None:
        """Write the documents and the checkpoint, or nothing."""


class BufferedTransactor:
    """A `Transactor`: keeps loads until they are flushed, and stores until the commit.

    Loads of the next transaction come while a commit is under way; they are read after it.
    """

    def __init__(self, session: DocumentSession) -> None:
        self._session = session
        self.checkpoint, self.subranges = session.checkpoint, session.subranges
        self._next = b""
        self._loads: list[Load] = []
        self._stores: list[Store] = []

    def acknowledge(self) -> None:
        """No-op: a commit is final."""

    def load(self, message: Load) -> None:
        """Keep the keys."""
        self._loads.append(message)

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        """Read the documents."""
        self._next, loads, self._loads = message.checkpoint, self._loads, []
        for load in loads:
            documents = self._session.read(load.binding, load.keys.packed)
            if documents:
                yield Loaded(load.binding, documents)
        yield Flushed()

    def store(self, message: Store) -> None:
        """Keep the documents."""
        self._stores.append(message)

    def commit(self) -> None:
        """Write what was kept."""
        self._session.commit(self._next, self._stores)
        self._stores = []
