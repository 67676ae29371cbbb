"""Partitioning of a physical plan: the columns whose hash decides the bucket of a node's rows.

Lowering places operators so that rows which lie together already are not exchanged again. So
the bucket of a row of state is decided by the key that its node was reached with, which may be
the key of a node before it:

    SELECT a, b, count(*) FROM t JOIN u USING (a) GROUP BY a, b     -- a decides, for both

What a lowered plan still says of that are its levels: a node above its input's level got its
rows by an exchange of its own keys. This analysis derives the rest again, and knows nothing
(None) wherever it is not certain.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import assert_never

import pyarrow as pa

from streams.plan.lowering.placement import (
    Placement,
    Slots,
    after_projection,
    in_common,
    of_both,
)
from streams.plan.physical import (
    Arrange,
    Asof,
    Constant,
    Dataflow,
    Distinct,
    EmitOnClose,
    Expression,
    Groupwise,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    NodeId,
    Reduce,
    Source,
    Temporal,
    Threshold,
    TopK,
    Union,
    Unnest,
    Upsert,
    inputs,
)
from streams.trace.kernel.kernel import arrow_type


class StateSpread(Enum):
    """How a node's state is spread over buckets."""

    BY_KEY = auto()
    """By the hash that its runs are sorted by: a bucket's rows are a range of it."""
    ANYHOW = auto()
    """A row is right in any bucket, as long as it is in one."""
    TOGETHER = auto()
    """All of it is in the bucket of the empty key."""
    OTHERWISE = auto()
    """By the hash of something else: rows have to be read to tell their bucket."""


def state_spread(dataflow: Dataflow) -> tuple[StateSpread, ...]:
    """Return for each node how its state is spread; for one without state, `ANYHOW`."""
    analysis = _Analysis(dataflow)
    for number in range(len(dataflow.nodes)):
        analysis.add(number)
    return tuple(analysis.spread)


class _Analysis:
    """Slots and spread of the nodes so far, each in the columns of the node's output."""

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.slots: list[Slots | None] = []
        self.spread: list[StateSpread] = []

    def add(self, number: NodeId) -> None:
        slots, spread = self._of(number)
        self.slots.append(slots)
        self.spread.append(spread)

    def _of(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
        self, number: NodeId
    ) -> tuple[Slots | None, StateSpread]:
        node = self.dataflow.nodes[number]
        match node:
            case Source() | EmitOnClose():
                return None, StateSpread.ANYHOW
            case Constant():
                return (), StateSpread.ANYHOW
            case Loop():
                return (), StateSpread.TOGETHER
            case Linear():
                return _projected(self._stayed(number), node.outputs), StateSpread.ANYHOW
            case Unnest() | Negate():
                return self._stayed(number), StateSpread.ANYHOW
            case Union():
                return self._in_common(number), StateSpread.ANYHOW
            case Temporal():
                return self._temporal(number, node)
            case Join() | Asof():
                return self._joined(number, node)
            case Lookup():
                return self._found(node), StateSpread.ANYHOW
            case Arrange() | Upsert():
                return _own(node.keys), StateSpread.BY_KEY
            case Reduce():
                slots = self._grouped(number, node.keys)
                return _shown(slots, node.keys), _by(slots, node.keys)
            case Groupwise() | TopK():
                slots = self._grouped(number, node.keys)
                return slots, _by(slots, node.keys)
            case Distinct():
                everything = self._everything(number)
                slots = self._grouped(number, everything)
                return slots, _by(slots, everything)
            case Threshold():
                return self._compared(number, node)
            case _:
                assert_never(node)

    def _everything(self, number: NodeId) -> tuple[int, ...]:
        """Return all columns of a node's first input."""
        first = inputs(self.dataflow.nodes[number])[0]
        return tuple(range(len(self.dataflow.types[first])))

    def _is_near(self, source: NodeId, number: NodeId) -> bool:
        """Whether a node's rows go to a consumer without an exchange."""
        return self.dataflow.levels[source] == self.dataflow.levels[number]

    def _stayed(self, number: NodeId) -> Slots | None:
        """Return the slots of the only input, whose rows stay where they are."""
        (source,) = inputs(self.dataflow.nodes[number])
        return self.slots[source] if self._is_near(source, number) else None

    def _in_common(self, number: NodeId) -> Slots | None:
        """Return the slots of all inputs together, if all rows stay where they are."""
        sources, level = inputs(self.dataflow.nodes[number]), self.dataflow.levels[number]
        if not all(self._is_near(source, number) for source in sources):
            return None
        return in_common([Placement(level, self.slots[source]) for source in sources])

    def _temporal(self, number: NodeId, node: Temporal) -> tuple[Slots | None, StateSpread]:
        if self._is_near(node.input, number):
            slots = _projected(self.slots[node.input], node.outputs)
            return slots, StateSpread.OTHERWISE
        if node.keys is not None:
            return _own(node.keys), StateSpread.OTHERWISE
        # Nothing after it relies on where its rows are, but for errors of EMIT ON CLOSE: what
        # ends an error has to be where it began (`operators.emit_on_close`).
        closing = self.dataflow.emits_on_close
        return None, StateSpread.OTHERWISE if closing else StateSpread.ANYHOW

    def _joined(self, number: NodeId, node: Join | Asof) -> tuple[Slots | None, StateSpread]:
        if self._is_near(node.left, number):
            left = self.slots[node.left]
        else:
            left = _own(node.left_keys)
        if left is None:
            return None, StateSpread.OTHERWISE
        width = len(self.dataflow.types[node.left])
        both = of_both(left, zip(node.left_keys, node.right_keys, strict=True), width)
        spread = _by(left, node.left_keys)
        if self._is_near(node.right, number):
            right = _by(self.slots[node.right], node.right_keys)
            spread = spread if right is StateSpread.BY_KEY else right
        return both, spread

    def _found(self, node: Lookup) -> Slots:
        arranged = self.dataflow.nodes[node.arranged]
        assert isinstance(arranged, Arrange), arranged
        width = len(self.dataflow.types[node.stream])
        return tuple(
            frozenset({key, width + other})
            for key, other in zip(node.keys, arranged.keys, strict=True)
        )

    def _grouped(self, number: NodeId, keys: tuple[int, ...]) -> Slots | None:
        """Return the slots of an operator over groups, as columns of its input."""
        (source,) = inputs(self.dataflow.nodes[number])
        if not self._is_near(source, number):
            return _own(keys)
        slots = self.slots[source]
        if slots is None:
            return None
        kept = tuple(slot & frozenset(keys) for slot in slots)
        return kept if all(kept) else None

    def _compared(self, number: NodeId, node: Threshold) -> tuple[Slots | None, StateSpread]:
        """Return those of a Threshold: the slots of the inputs that stay, if there are any.

        It tells -0.0 from 0.0, and sorts them by different hashes; an exchange does not.
        """
        sources, everything = node.inputs, self._everything(number)
        level = self.dataflow.levels[number]
        near = [
            Placement(level, self.slots[source])
            for source in sources
            if self._is_near(source, number)
        ]
        slots = in_common(near) if near else _own(node.keys)
        if any(map(_has_several_forms, self.dataflow.types[sources[0]])):
            return slots, StateSpread.OTHERWISE
        return slots, _by(slots, everything)


def _has_several_forms(kind: str) -> bool:
    """Whether values of this type may be equal as keys and differ by their bits."""
    type_ = arrow_type(kind)
    return bool(pa.types.is_floating(type_) or pa.types.is_interval(type_))


def _own(keys: Sequence[int]) -> Slots:
    return tuple(frozenset({key}) for key in keys)


def _by(slots: Slots | None, keys: Sequence[int]) -> StateSpread:
    """Return the spread of state that is sorted by the hash of these keys, in their order."""
    if slots is None or len(slots) != len(keys):
        return StateSpread.OTHERWISE
    is_same = all(key in slot for key, slot in zip(keys, slots, strict=True))
    return StateSpread.BY_KEY if is_same else StateSpread.OTHERWISE


def _shown(slots: Slots | None, keys: Sequence[int]) -> Slots | None:
    """Return slots of a Reduce's input as columns of its output, whose first are the keys."""
    if slots is None:
        return None
    return tuple(
        frozenset(place for place, key in enumerate(keys) if key in slot) for slot in slots
    )


def _projected(slots: Slots | None, outputs: Sequence[Expression]) -> Slots | None:
    return after_projection(slots, list(map(_column, outputs)))


def _column(output: Expression) -> int | None:
    """Return the column that an output is; None if it is computed."""
    digits = output.sql.removeprefix("c")
    return int(digits) if output.sql == f"c{digits}" and digits.isdecimal() else None
