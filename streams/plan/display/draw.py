"""A physical plan as a picture: EXPLAIN AS SVG.

The output is at the top, the sources are at the bottom, and an operator that several read is
drawn once. Operators of one round have one colour; a thick dashed line is an exchange. What a
loop repeats is a picture of its own below, in a frame with the loop's number: each binding's
value at the top, and what the bindings held in the iteration before among the sources.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from streams.ids import CollectionId
from streams.plan.display.explain import heading, operator
from streams.plan.physical import Dataflow, Loop, NodeId, inputs

LETTERS_A_LINE, LINES = 40, 5
LETTER, LINE, PAD, GAP, RISE = 8, 16, 8, 24, 44
"""Pixels: width of a letter, height of a line, padding, gap of boxes, gap of rows."""

COLOURS = ("#eef2f7", "#fde8c8", "#d7ecd4", "#d6e4f7", "#f3d9e6", "#e5dcf5", "#dff1f1")
"""Colours of level 0 and of the later rounds, in turn."""


@dataclass(frozen=True, slots=True)
class Box:
    """An operator's place: its upper left corner and size in pixels, and its text."""

    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]

    @property
    def top(self) -> tuple[int, int]:
        """The middle of the upper edge."""
        return self.x + self.width // 2, self.y

    @property
    def bottom(self) -> tuple[int, int]:
        """The middle of the lower edge."""
        return self.x + self.width // 2, self.y + self.height


@dataclass(frozen=True, slots=True)
class _Plan:
    """A graph of operators: all of a view's, or those that a loop repeats.

    `prefix` goes before their numbers; `values` has the ones at the top, and what they give.
    """

    prefix: str
    title: str
    dataflow: Dataflow
    names: Mapping[CollectionId, str]
    values: Mapping[NodeId, str]
    notes: Mapping[NodeId, str] = field(default_factory=dict)

    def text(self, number: NodeId) -> str:
        """The note on the operator, followed by its description."""
        note = self.notes.get(number)
        described = operator(self.dataflow, self.names, number)
        return described if note is None else f"{note}: {described}"

    def heading(self, number: NodeId) -> str:
        """The first line of an operator's box."""
        if not self.prefix:
            return f"#{number} round {self.dataflow.levels[number]}"
        name = self.values.get(number)
        return f"#{self.prefix}{number}" + (f" is {name}" if name else "")

    def edges(self) -> Iterator[tuple[NodeId, NodeId]]:
        """Each operator with each of its inputs."""
        for number, node in enumerate(self.dataflow.nodes):
            for source in inputs(node):
                yield number, source


NO_NOTES: Mapping[NodeId, str] = {}


def draw(
    dataflow: Dataflow,
    names: Mapping[CollectionId, str],
    notes: Mapping[NodeId, str] = NO_NOTES,
) -> str:
    """The picture, as the text of an SVG document.

    Args:
        dataflow: the plan.
        names: what the collections that it reads are called.
        notes: what is said of its operators beside their descriptions.
    """
    picture = Element("svg", {"xmlns": "http://www.w3.org/2000/svg"})
    SubElement(picture, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    width = height = 0
    for plan in _plans(dataflow, names, notes):
        rows = _rows(plan)
        boxes = _placed(plan, rows, height)
        right = max(box.x + box.width for box in boxes.values())
        bottom = max(box.y + box.height for box in boxes.values()) + GAP
        across = max(right, LETTER * len(plan.title) + GAP) + GAP
        if plan.prefix:
            _frame(picture, Box(GAP // 2, height, across - GAP, bottom - height - PAD, ()))
        _draw(picture, plan, boxes, height + GAP)
        width, height = max(width, across), bottom
    picture.attrib |= {"font-family": "monospace", "font-size": "12"}
    picture.attrib |= {"width": str(width), "height": str(height)}
    indent(picture)
    return tostring(picture, encoding="unicode")


def _plans(
    dataflow: Dataflow, names: Mapping[CollectionId, str], notes: Mapping[NodeId, str]
) -> Iterator[_Plan]:
    """The plan, and then the body of each of its loops."""
    last = len(dataflow.nodes) - 1
    yield _Plan("", heading(dataflow), dataflow, names, {last: ""}, notes)
    for number, node in enumerate(dataflow.nodes):
        if not isinstance(node, Loop):
            continue
        inputs = [f"input {place}" for place in range(len(node.inputs))]
        before = [f"{name} of the iteration before" for name in node.names]
        called = {
            imported.collection: name
            for imported, name in zip(node.body.imports, [*inputs, *before], strict=True)
        }
        values = dict(zip(node.values, node.names, strict=True))
        title = f"#{number} repeats {', '.join(node.names)}"
        yield _Plan(f"{number}.", title, node.body, called, values)


def _draw(picture: Element, plan: _Plan, boxes: Mapping[NodeId, Box], y: int) -> None:
    _text(picture, GAP, y, plan.title)
    for number, source in plan.edges():
        if number in boxes:
            levels = plan.dataflow.levels
            moved = levels[number] != levels[source]
            _line(picture, boxes[source].top, boxes[number].bottom, exchange=moved)
    for number, box in boxes.items():
        title = f"#{plan.prefix}{number} {plan.text(number)}"
        _box(picture, box, plan.dataflow.levels[number], title)


def _rows(plan: _Plan) -> list[list[NodeId]]:
    """The operators by their longest way from the top, each near those who read it."""
    far = dict.fromkeys(plan.values, 0)
    readers: dict[NodeId, list[NodeId]] = {}
    for number in range(len(plan.dataflow.nodes) - 1, -1, -1):
        if number not in far:  # it has no reader
            continue
        for source in inputs(plan.dataflow.nodes[number]):  # they come before their readers
            far[source] = max(far.get(source, 0), far[number] + 1)
            readers.setdefault(source, []).append(number)
    rows: list[list[NodeId]] = [[] for _ in range(max(far.values()) + 1)]
    for number in sorted(far):
        rows[far[number]].append(number)
    place: dict[NodeId, float] = {}
    for row in rows:
        near = {n: _mean([place[reader] for reader in readers.get(n, ())]) for n in row}
        row.sort(key=lambda number: (near[number], number))
        for index, number in enumerate(row):
            place[number] = (index + 1) / (len(row) + 1)
    return rows


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _placed(plan: _Plan, rows: Sequence[Sequence[NodeId]], above: int) -> dict[NodeId, Box]:
    """The position of each operator; rows are centred over one another."""
    lines = {number: _lines(plan, number) for row in rows for number in row}
    widths = {number: LETTER * max(map(len, line)) + 2 * PAD for number, line in lines.items()}
    spans = [sum(widths[number] + GAP for number in row) for row in rows]
    boxes: dict[NodeId, Box] = {}
    y = above + 2 * GAP
    for row, span in zip(rows, spans, strict=True):
        x = GAP + (max(spans) - span) // 2
        for number in row:
            height = LINE * len(lines[number]) + PAD
            boxes[number] = Box(x, y, widths[number], height, lines[number])
            x += widths[number] + GAP
        y += max(boxes[number].height for number in row) + RISE
    return boxes


def _lines(plan: _Plan, number: NodeId) -> tuple[str, ...]:
    """The lines in a box; the tooltip has the whole text."""
    lines = textwrap.wrap(
        plan.text(number),
        LETTERS_A_LINE,
        max_lines=LINES,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    types = textwrap.shorten(", ".join(plan.dataflow.types[number]), LETTERS_A_LINE)
    return (plan.heading(number), *lines, f"({types})")


def _frame(picture: Element, box: Box) -> None:
    """The border of a loop's picture."""
    frame = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    look = {"rx": "9", "fill": "none", "stroke": "#667788", "stroke-dasharray": "2 3"}
    SubElement(picture, "rect", {**{name: str(value) for name, value in frame.items()}, **look})


def _line(
    picture: Element, start: tuple[int, int], end: tuple[int, int], *, exchange: bool
) -> None:
    names = ("x1", "y1"), ("x2", "y2")
    ends = {
        name: str(value)
        for pair, point in zip(names, (start, end), strict=True)
        for name, value in zip(pair, point, strict=True)
    }
    look = {"stroke-width": "3", "stroke-dasharray": "7 4"} if exchange else {}
    SubElement(picture, "line", {**ends, "stroke": "#667788", **look})


def _box(picture: Element, box: Box, level: int, title: str) -> None:
    group = SubElement(picture, "g")
    SubElement(group, "title").text = title
    frame = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    fill = COLOURS[0] if not level else COLOURS[1 + (level - 1) % (len(COLOURS) - 1)]
    look = {"rx": "5", "fill": fill, "stroke": "#667788"}
    SubElement(group, "rect", {**{name: str(value) for name, value in frame.items()}, **look})
    for index, line in enumerate(box.lines):
        _text(group, box.x + PAD, box.y + LINE * (index + 1), line)


def _text(parent: Element, x: int, y: int, text: str) -> None:
    SubElement(parent, "text", {"x": str(x), "y": str(y)}).text = text
