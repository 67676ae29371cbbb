"""Lowers the logical plan to stages: where each operator runs, and where data is exchanged.

Equal subtrees become one node. A node's *placement* is its level and, if its rows are
partitioned by a hash, the hashed columns; columns that a join made equal are interchangeable.
An operator that needs its rows co-located by a key stays on its inputs' level if they already
are; otherwise it starts a new level, and the edges to it are exchanges.

Co-located by a key means: hashed by some of a group's keys (in any order: the rows of a group
then share a bucket), or, for a join, hashed on both sides by the same pairs of keys in the same
order. A side that comes from a lower level is hashed by all keys in the join's order, so the
other side may stay only if it was hashed by exactly these. Rows that are hashed by no columns,
such as a single row, are in one bucket.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.plan import ir, physical
from streams.plan.analyses.delta_paths import (
    Arrangement,
    LookupStep,
    first_columns,
    paths,
    shared_relations,
)
from streams.plan.analyses.temporal import bound, is_temporal
from streams.plan.lowering import aggregate_sql, excluded_frames, loop_bodies
from streams.plan.lowering.asof import asof
from streams.plan.lowering.intervals import as_column
from streams.plan.lowering.outer_joins import expand
from streams.plan.lowering.placement import (
    Placement,
    Slots,
    as_hashed,
    by_just,
    in_common,
    of_both,
    projected,
    same_pairs,
)
from streams.plan.lowering.running_frames import continued_call
from streams.plan.lowering.window_locality import reach
from streams.plan.passes.fuse import fuse
from streams.plan.physical import Column, Dataflow, Expression, Import
from streams.plan.scalar import Ref, Scalar, refs, remap
from streams.plan.to_sql import expression, sql
from streams.plan.window_frames import Reach

_ANY_ROW = "which rows are left depends on all of them"


@dataclass(frozen=True, slots=True)
class WindowEnd:
    """The column of a plan with the end of a row's window, and the dataflow's first time."""

    end: int
    born: int | None


def lower(
    node: ir.Relational, output: Sequence[Column], closing: WindowEnd | None = None
) -> Dataflow:
    """The dataflow that computes the plan; `output` names its columns.

    With `closing` its rows appear once, when their windows close; the plan is filtered by that.
    """
    builder = _Builder(tuple(Import(get.collection, get.columns) for get in ir.gets(node)))
    root = builder.add(node)
    types = tuple(column.type for column in output)
    if closing is not None:
        root = builder.emit_on_close(root, types, closing)
    assert root == len(builder.nodes) - 1
    assert builder.types[root] == types, (builder.types[root], types)
    levels = tuple(placement.level for placement in builder.placements)
    return Dataflow(
        builder.imports, tuple(builder.nodes), tuple(builder.types), levels, tuple(output)
    )


@dataclass(slots=True)
class _Builder:
    """Nodes in topological order as they are made, and which subtree each computes."""

    imports: tuple[Import, ...]
    nodes: list[physical.Node] = field(default_factory=list)
    types: list[tuple[str, ...]] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    numbers: dict[tuple[physical.Node, tuple[str, ...]], int] = field(default_factory=dict)
    made: dict[ir.Relational, int] = field(default_factory=dict)

    def add(self, node: ir.Relational) -> int:
        """The number of the node that computes this subtree."""
        if node not in self.made:
            self.made[node] = self._lower(node)
        return self.made[node]

    def emit_on_close(self, number: int, types: tuple[str, ...], closing: WindowEnd) -> int:
        """The number of the node behind this one that lets the rows of closed windows out."""
        emit = physical.EmitOnClose(number, closing.end, closing.born)
        return self._append(emit, types, Placement(self.placements[number].level))

    def _lower(self, node: ir.Relational) -> int:  # noqa: C901, PLR0911, PLR0912 - one case a node
        match node:
            case ir.Get():
                return self._get(node)
            case ir.Values():
                return self._values(node)
            case ir.Project(input=ir.Match() as match) | ir.Filter(input=ir.Match() as match):
                return self.add(fuse(replace(node, input=expand(match))))
            case ir.Project() | ir.Filter():
                return self._linear(node)
            case ir.Join():
                return self._join(node)
            case ir.DeltaJoin():
                return self._delta(node)
            case ir.Group():
                return self._group(node)
            case ir.Window():
                return self._window(node)
            case ir.TopK():
                return self._top(node)
            case ir.Distinct():
                return self._distinct(node)
            case ir.Union():
                return self._union(node)
            case ir.Match():
                return self.add(fuse(expand(node)))
            case ir.Threshold():
                return self._threshold(node)
            case ir.Unnest():
                return self._unnest(node)
            case ir.Negate():
                return self._negate(node)
            case ir.Loop():
                return self._loop(node)
            case ir.Variable():
                raise AssertionError("`bodies` makes a Get of a variable")
            case ir.Product():
                raise AssertionError("the pass `joins` leaves no product")

    def _append(self, node: physical.Node, types: tuple[str, ...], placement: Placement) -> int:
        number = self.numbers.setdefault((node, types), len(self.nodes))
        if number < len(self.nodes):
            return number
        self.nodes.append(node)
        self.types.append(types)
        self.placements.append(placement)
        return number

    def _get(self, node: ir.Get) -> int:
        index = [part.collection for part in self.imports].index(node.collection)
        return self._append(physical.Source(index), _types(node), Placement(0))

    def _values(self, node: ir.Values) -> int:
        if not node.rows:
            nothing = ", ".join(f"CAST(NULL AS {c.type})" for c in node.columns)
            text = f"SELECT {nothing} WHERE false"
            return self._append(physical.Constant(text), _types(node), Placement(1, ()))
        cells = [", ".join(sql(cell) for cell in row) for row in node.rows]
        names = ", ".join(f"c{i}" for i in range(len(node.columns)))
        rows = ", ".join(f"({row})" for row in cells)
        text = f"SELECT * FROM (VALUES {rows}) AS v({names})"
        # Level 1: nothing tells the tasks of level 0 apart, and one alone may emit the rows.
        return self._append(physical.Constant(text), _types(node), Placement(1, ()))

    def _linear(self, node: ir.Project | ir.Filter) -> int:
        outputs: tuple[Scalar, ...] = _refs(node)
        source: ir.Relational = node
        if isinstance(source, ir.Project):
            outputs, source = source.outputs, source.input
        predicates: tuple[Scalar, ...] = ()
        if isinstance(source, ir.Filter):
            predicates, source = source.predicates, source.input
        number = self.add(source)
        if any(map(is_temporal, predicates)):
            return self._temporal(number, predicates, outputs)
        linear = physical.Linear(
            number,
            tuple(expression(predicate) for predicate in predicates),
            tuple(as_column(output) for output in outputs),
        )
        placement = self.placements[number]
        spread = projected(placement, outputs)
        return self._append(linear, tuple(output.type for output in outputs), spread)

    def _temporal(
        self, number: int, predicates: tuple[Scalar, ...], outputs: tuple[Scalar, ...]
    ) -> int:
        """Equal rows must meet, so that one that was retracted is not waited for any more."""
        bounds = tuple(bound(predicate) for predicate in predicates if is_temporal(predicate))
        plain = tuple(
            expression(predicate) for predicate in predicates if not is_temporal(predicate)
        )
        temporal = physical.Temporal(number, plain, bounds, tuple(map(as_column, outputs)))
        placement = self.placements[number]
        if placement.level and placement.slots is not None:
            spread = projected(placement, outputs)
        else:  # by the whole row and its end, which is no column
            spread = Placement(placement.level + 1)
        return self._append(temporal, tuple(output.type for output in outputs), spread)

    def _join(self, node: ir.Join) -> int:
        left, right = self.add(node.left), self.add(node.right)
        for key in node.keys:
            assert self.types[left][key.left] == self.types[right][key.right], key
        keys, level = self._meet(left, right, node.keys)
        sides = left, right, tuple(k.left for k in keys), tuple(k.right for k in keys)
        nulls = tuple(key.null_equal for key in keys)
        nearest = asof(node, sides, nulls)
        joined = nearest or physical.Join(*sides, nulls, tuple(map(expression, node.residual)))
        width = len(self.types[left])
        types = self.types[left] + self.types[right]
        slots = self._spread(left, level, keys)
        both = of_both(slots, ((key.left, key.right) for key in keys), width)
        return self._append(joined, types, Placement(level, both))

    def _meet(
        self, left: int, right: int, keys: tuple[ir.Key, ...]
    ) -> tuple[tuple[ir.Key, ...], int]:
        """The keys in the order to hash them, and the level of the join."""
        left_placement, right_placement = self.placements[left], self.placements[right]
        level = max(left_placement.level, right_placement.level)
        if level == 0:
            return keys, 1
        if left_placement.level == right_placement.level:
            same = same_pairs(left_placement.slots, right_placement.slots, keys)
            return keys if same is None else same, level + (same is None)
        staying, side = (
            (left_placement, "left")
            if left_placement.level > right_placement.level
            else (right_placement, "right")
        )
        order = as_hashed(staying.slots, keys, side)
        return keys if order is None else order, level + (order is None)

    def _spread(self, left: int, level: int, keys: tuple[ir.Key, ...]) -> Slots:
        """The partitioning of the join's rows, as columns of its left side."""
        placement = self.placements[left]
        if placement.level == level and placement.slots is not None:
            return placement.slots
        return tuple(frozenset({key.left}) for key in keys)

    def _delta(self, node: ir.DeltaJoin) -> int:
        ways = paths(node)
        assert ways is not None, "the pass `deltas` makes only what predicates connect"
        arranged = frozenset(visit.arranged for way in ways for visit in way)
        ends = tuple(self._path(node, first, way, arranged) for first, way in enumerate(ways))
        placed = [self.placements[end] for end in ends]
        level = max(placement.level for placement in placed)
        return self._append(
            physical.Union(ends), _types(node), Placement(level, in_common(placed))
        )

    def _path(
        self,
        node: ir.DeltaJoin,
        first: int,
        way: tuple[LookupStep, ...],
        arranged: frozenset[Arrangement],
    ) -> int:
        """The combinations that the changes of one input make."""
        reads, cuts = shared_relations(node.inputs), first_columns(node.inputs)
        own = [dict(enumerate(r.places, at)) for r, at in zip(reads, cuts, strict=False)]
        places = own[first]
        # Where the input is arranged as its first lookup asks, its changes are there already.
        keys = tuple(places[column] for column in way[0].known)
        same = Arrangement(reads[first].node, keys, way[0].arranged.null_equal)
        number = self._arranged(same) if same in arranged else self.add(fuse(same.node))
        pending = list(node.predicates)
        for visit in way:
            width = len(self.types[number])
            number = self._lookup(number, places, visit, strict=visit.input < first)
            places |= {column: width + at for column, at in own[visit.input].items()}
            pending = [scalar for scalar in pending if scalar not in visit.settled]
            ready = [scalar for scalar in pending if refs(scalar) <= places.keys()]
            pending = [scalar for scalar in pending if scalar not in ready]
            read = frozenset(node.outputs).union(*map(refs, pending))
            shown = node.outputs if visit is way[-1] else tuple(sorted(read & places.keys()))
            number = self._kept(
                number, [remap(scalar, places) for scalar in ready], [places[i] for i in shown]
            )
            places = {column: at for at, column in enumerate(shown)}
        return number

    def _lookup(
        self, stream: int, places: Mapping[int, int], visit: LookupStep, *, strict: bool
    ) -> int:
        arranged = self._arranged(visit.arranged)
        keys = tuple(places[column] for column in visit.known)
        types = self.types[stream], self.types[arranged]
        for key, other in zip(keys, visit.arranged.keys, strict=True):
            assert types[0][key] == types[1][other], visit
        level = by_just(self.placements[stream], keys).level
        both = [
            frozenset({key, len(types[0]) + other})
            for key, other in zip(keys, visit.arranged.keys, strict=True)
        ]
        placement = Placement(max(level, self.placements[arranged].level), tuple(both))
        lookup = physical.Lookup(stream, arranged, keys, strict)
        return self._append(lookup, types[0] + types[1], placement)

    def _arranged(self, wanted: Arrangement) -> int:
        number = self.add(fuse(wanted.node))
        placement = by_just(self.placements[number], wanted.keys)
        arrange = physical.Arrange(number, wanted.keys, wanted.null_equal)
        return self._append(arrange, self.types[number], placement)

    def _kept(self, number: int, predicates: Sequence[Scalar], places: Sequence[int]) -> int:
        """The rows that pass, and of them these columns."""
        types = self.types[number]
        if not predicates and tuple(places) == tuple(range(len(types))):
            return number
        outputs = tuple(Ref(at, types[at], f"c{at}") for at in places)
        linear = physical.Linear(
            number, tuple(map(expression, predicates)), tuple(map(expression, outputs))
        )
        placement = projected(self.placements[number], outputs)
        return self._append(linear, tuple(output.type for output in outputs), placement)

    def _group(self, node: ir.Group) -> int:
        source = self.add(node.input)
        keys = tuple(_position(key) for key in node.keys)
        calls = tuple(map(_aggregate, node.calls))
        level, slots = self._by(source, keys)
        shown = tuple(
            frozenset(n for n, key in enumerate(keys) if key in slot) for slot in slots
        )
        placement = Placement(level, shown)
        return self._append(physical.Reduce(source, keys, calls), _types(node), placement)

    def _by(self, source: int, keys: tuple[int, ...]) -> tuple[int, Slots]:
        """The level for an operator over groups by these columns, and how rows are spread."""
        level, slots = self._together(source, frozenset(keys))
        return level, slots or tuple(frozenset({key}) for key in keys)

    def _window(self, node: ir.Window) -> int:
        row = aggregate_sql.whole_row(node.input)
        names = zip(node.calls, node.names, strict=True)
        seen = reach(node.calls, row)
        outputs = [expression(column) for column in _refs(node.input)]
        for call, name in names:
            written = excluded_frames if excluded_frames.excludes_peers(call) else aggregate_sql
            text = written.window(call, row)
            text = text if isinstance(seen, str) else continued_call(call, text, seen)
            outputs.append(Expression(text, call.type, name))
        return self._groupwise(node, node.keys, tuple(outputs), None, seen)

    def _top(self, node: ir.TopK) -> int:
        if node.limit is None:
            return self._rest(node)
        source, keys = self.add(node.input), tuple(_position(key) for key in node.keys)
        level, slots = self._by(source, keys)
        order = aggregate_sql.sort_key(node.orders, aggregate_sql.whole_row(node.input))
        topk = physical.TopK(source, keys, order, node.offset, node.offset + node.limit)
        return self._append(topk, _types(node), Placement(level, slots))

    def _rest(self, node: ir.TopK) -> int:
        """A share of the rows, or all but the first: more than a search could find."""
        outputs = tuple(expression(column) for column in _refs(node.input))
        chosen = aggregate_sql.topk_condition(node, aggregate_sql.whole_row(node.input))
        condition = Expression(chosen, "BOOLEAN", "LIMIT")
        return self._groupwise(node, node.keys, outputs, condition, _ANY_ROW)

    def _groupwise(
        self,
        node: ir.Window | ir.TopK,
        scalars: tuple[Scalar, ...],
        outputs: tuple[Expression, ...],
        condition: Expression | None,
        seen: Reach | str,
    ) -> int:
        source, keys = self.add(node.input), tuple(_position(key) for key in scalars)
        level, slots = self._by(source, keys)
        near, why = (None, seen) if isinstance(seen, str) else (seen, "")
        groupwise = physical.Groupwise(source, keys, outputs, condition, near, why)
        return self._append(groupwise, _types(node), Placement(level, slots))

    def _together(self, source: int, keys: frozenset[int]) -> tuple[int, Slots | None]:
        """The level for an operator over rows with equal keys, and their spread if kept."""
        placement = self.placements[source]
        if placement.level and placement.slots:
            slots = tuple(slot & keys for slot in placement.slots)
            if all(slots):
                return placement.level, slots
        return placement.level + 1, None

    def _distinct(self, node: ir.Distinct) -> int:
        source, types = self.add(node.input), _types(node)
        everything = frozenset(range(len(types)))
        level, kept_slots = self._together(source, everything)
        slots = kept_slots or tuple(frozenset({i}) for i in sorted(everything))
        return self._append(physical.Distinct(source), types, Placement(level, slots))

    def _union(self, node: ir.Union) -> int:
        parts = tuple(self.add(part) for part in node.inputs)
        placements = [self.placements[part] for part in parts]
        level = max(placement.level for placement in placements)
        common = in_common(placements)
        return self._append(physical.Union(parts), _types(node), Placement(level, common))

    def _threshold(self, node: ir.Threshold) -> int:
        parts = tuple(self.add(part) for part in node.inputs)
        placements = [self.placements[part] for part in parts]
        level = max(placement.level for placement in placements)
        # The inputs of lower levels come the way that the others lie already; but not all
        # into one bucket, unless everything is there anyway.
        highest = [p for p in placements if p.level == level]
        slots = in_common(highest) if level else None
        if slots is None or (not slots and highest != placements):
            level += 1
            slots = tuple(frozenset({i}) for i in range(len(self.types[parts[0]])))
        keys = tuple(min(slot) for slot in slots)
        joined = physical.Threshold(parts, keys, node.rule)
        return self._append(joined, _types(node), Placement(level, slots))

    def _unnest(self, node: ir.Unnest) -> int:
        number = self.add(node.input)
        unnest = physical.Unnest(number, node.lists)
        return self._append(unnest, _types(node), self.placements[number])

    def _negate(self, node: ir.Negate) -> int:
        number = self.add(node.input)
        return self._append(physical.Negate(number), _types(node), self.placements[number])

    def _loop(self, node: ir.Loop) -> int:
        body = loop_bodies.split(node)
        inputs = tuple(map(self.add, body.inputs))
        builder = _Builder(body.imports)
        values = tuple(map(builder.add, body.values))
        repeated = Dataflow(
            body.imports,
            tuple(builder.nodes),
            tuple(builder.types),
            (0,) * len(builder.nodes),
            ir.columns(node),
        )
        limit = node.limit
        loop = physical.Loop(
            inputs, repeated, node.names, values, node.result, limit.iterations, limit.fails
        )
        level = max(self.placements[number].level for number in inputs) + 1
        return self._append(loop, _types(node), Placement(level, ()))


def _types(node: ir.Relational) -> tuple[str, ...]:
    return tuple(column.type for column in ir.columns(node))


def _refs(node: ir.Relational) -> tuple[Ref, ...]:
    return tuple(Ref(i, c.type, c.name) for i, c in enumerate(ir.columns(node)))


def _aggregate(call: ir.AggregateCall) -> physical.Aggregate:
    if call.general:
        read = {index for scalar in call.scalars for index in refs(scalar)}
        reads = tuple(sorted(read)) or (0,)  # without a column, rows would have no number
        text = aggregate_sql.aggregate(call)
        return physical.Aggregate(call.function, None, call.type, sql=text, reads=reads)
    return physical.Aggregate(
        call.function,
        None if call.argument is None else _position(call.argument),
        call.type,
        call.distinct,
        _position(call.more[0]) if call.more else None,
        share=call.share,
    )


def _position(scalar: Scalar) -> int:
    assert isinstance(scalar, Ref), "the pass `groups` makes columns of keys and arguments"
    return scalar.index
