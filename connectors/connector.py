"""The interface that the author of a connector implements."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from connectors.protocol.messages import (
    Extensions,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Store,
    Subrange,
)
from schemas.materialize_pb2 import (
    ApplyRequest,
    ApplyResponse,
    SpecRequest,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)
from streams.errors import InvalidUsage


class Refused(InvalidUsage):
    """The endpoint rejects a document for its content; it may accept others."""


class Transactor(Protocol):
    """One open stream; receives only legal, well-formed messages.

    Errors: whatever a method raises ends the stream, and nothing of the transaction may stay.
    `Refused` says that a document is at fault: then the driver may leave it out.
    """

    checkpoint: bytes
    """The answer in Opened: the Flow checkpoint that the endpoint stores, or empty."""

    @property
    def subranges(self) -> Sequence[Subrange]:
        """In place of it, where parts of the range stand apart and Open has the extension."""

    def acknowledge(self) -> None:
        """The driver's log has recorded the commit; only if `extensions` has acknowledge."""

    def load(self, message: Load) -> None:
        """Take note of keys; the transaction before is committed when `flush` reads them."""

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        """The documents of the noted keys that are there, and at last Flushed."""

    def store(self, message: Store) -> None:
        """Take documents that are written with the next commit."""

    def commit(self) -> None:
        """Write all that was stored, and the checkpoint of the flush, or nothing."""


class Connector(Protocol):
    """The four calls; each may come in a process of its own."""

    @property
    def extensions(self) -> Extensions:
        """The offered extensions of the 2021 protocol, as Spec announces them."""

    def spec(self, request: SpecRequest) -> SpecResponse:
        """The JSON Schemas of the connector's configurations."""

    def validate(self, request: ValidateRequest) -> ValidateResponse:
        """Check that the endpoint can be reached, and return the constraint of each field."""

    def apply(self, request: ApplyRequest) -> ApplyResponse:
        """Make the endpoint ready, or only say how if it is a dry run."""

    def open(self, message: Open) -> AbstractContextManager[Transactor]:
        """Fence older sessions off, and begin. Leaving the context ends the session."""
