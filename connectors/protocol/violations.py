"""The protocol rules that a side can break, by name."""

from enum import StrEnum
from typing import NoReturn

from streams.errors import InvalidUsage


class Side(StrEnum):
    """The side that sends requests, and the side that answers them."""

    DRIVER = "driver"
    CONNECTOR = "connector"


class Rule(StrEnum):
    """The rules of the protocol; a value is the name in a message, and never changes."""

    WIRE = "wire"
    """Bytes are a message of the call."""
    VARIANT = "variant"
    """A message of a transaction stream has exactly one of its fields."""
    ORDER = "order"
    """A message comes in a phase that allows it."""
    END = "end"
    """A stream ends between transactions."""
    SPEC = "spec"
    """A specification is complete, and its parts agree."""
    VERSION = "version"
    """A version is not empty, and is the one that was applied."""
    RANGE = "range"
    """A key range begins before it ends."""
    KEY_RANGE = "key-range"
    """A key that is loaded or stored lies in the range that was opened."""
    EXTENSION = "extension"
    """A side may use only an extension that the connector offered and the driver opened."""
    BINDING = "binding"
    """The index of a binding is one of the task's."""
    DELTA = "delta"
    """A binding of delta updates loads nothing."""
    EMPTY = "empty"
    """A message with keys or documents has at least one."""
    LENGTHS = "lengths"
    """All arrays of a Store have one entry per document."""
    SLICE = "slice"
    """A slice lies in its arena."""
    TUPLE = "tuple"
    """A packed tuple is whole and has the elements of its binding."""
    LOADED_ONCE = "loaded-once"
    """A key is loaded once a transaction, and its document returned once."""
    COMMITTING = "committing"
    """A key that is being committed is not loaded."""
    STORED_ONCE = "stored-once"
    """A key of a binding that is no delta is stored once a transaction."""
    REQUESTED = "requested"
    """A loaded document is one that was asked for."""
    DOCUMENT = "document"
    """A document is a JSON object with its key."""
    CHECKPOINT = "checkpoint"
    """A checkpoint is there where it must be, and can be read."""


class Violation(InvalidUsage):
    """A side broke a rule; the session cannot continue, and its state is unchanged.

    `side` broke it, `rule` names it, `detail` has the expected and actual values.
    """

    def __init__(self, side: Side, rule: Rule, detail: str) -> None:
        super().__init__(side, rule, detail)
        self.side, self.rule, self.detail = side, rule, detail

    def __str__(self) -> str:
        return f"the {self.side} broke the rule {self.rule}: {self.detail}"


def broken(side: Side, rule: Rule, detail: str) -> NoReturn:
    """Raise a Violation."""
    raise Violation(side, rule, detail)


def driver_holds(rule: Rule, holds: object, detail: str) -> None:
    """Errors: Violation by the driver, unless the rule holds."""
    if not holds:
        broken(Side.DRIVER, rule, detail)


def connector_holds(rule: Rule, holds: object, detail: str) -> None:
    """Errors: Violation by the connector, unless the rule holds."""
    if not holds:
        broken(Side.CONNECTOR, rule, detail)
