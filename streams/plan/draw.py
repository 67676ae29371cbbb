"""A physical plan as a picture: EXPLAIN AS SVG.

The output is at the top, the sources are at the bottom, and an operator that several read is
drawn once. Operators of one round have one colour; a thick dashed line is an exchange.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from streams.ids import CollectionId
from streams.plan.explain import heading, operator
from streams.plan.physical import Dataflow, NodeId, inputs

LETTERS_A_LINE, LINES = 40, 5
LETTER, LINE, PAD, GAP, RISE = 8, 16, 8, 24, 44
"""In pixels: a letter's width, a line's height, around a text, between boxes, between rows."""

COLOURS = ("#eef2f7", "#fde8c8", "#d7ecd4", "#d6e4f7", "#f3d9e6", "#e5dcf5", "#dff1f1")
"""Of level 0 and the rounds after it, in turn."""


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


def draw(dataflow: Dataflow, names: Mapping[CollectionId, str]) -> str:
    """The picture, as the text of an SVG document.

    Args:
        dataflow: the plan.
        names: what the collections that it reads are called.
    """
    texts = [operator(dataflow, names, number) for number in range(len(dataflow.nodes))]
    rows = _rows(dataflow)
    boxes = _placed(dataflow, rows, texts)
    title = heading(dataflow)
    width = max(box.x + box.width for box in boxes.values()) + GAP
    height = max(box.y + box.height for box in boxes.values()) + GAP
    size = {"width": str(max(width, LETTER * len(title) + 2 * GAP)), "height": str(height)}
    space = {"xmlns": "http://www.w3.org/2000/svg", "font-family": "monospace"}
    picture = Element("svg", {**space, **size, "font-size": "12"})
    SubElement(picture, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    _text(picture, GAP, GAP, title)
    for number, source in _edges(dataflow):
        moved = dataflow.levels[number] != dataflow.levels[source]
        _line(picture, boxes[source].top, boxes[number].bottom, exchange=moved)
    for number, box in boxes.items():
        _box(picture, box, dataflow.levels[number], f"#{number} {texts[number]}")
    indent(picture)
    return tostring(picture, encoding="unicode")


def _edges(dataflow: Dataflow) -> Iterator[tuple[NodeId, NodeId]]:
    """Each operator with each of its inputs."""
    for number, node in enumerate(dataflow.nodes):
        for source in inputs(node):
            yield number, source


def _rows(dataflow: Dataflow) -> list[list[NodeId]]:
    """The operators by their longest way from the output, each near those who read it."""
    last = len(dataflow.nodes) - 1
    far = {last: 0}
    for number in range(last, -1, -1):  # inputs come before those who read them
        for source in inputs(dataflow.nodes[number]):
            far[source] = max(far.get(source, 0), far[number] + 1)
    readers: dict[NodeId, list[NodeId]] = {}
    for number, source in _edges(dataflow):
        readers.setdefault(source, []).append(number)
    rows: list[list[NodeId]] = [[] for _ in range(max(far.values()) + 1)]
    for number in sorted(far):
        rows[far[number]].append(number)
    place: dict[NodeId, float] = {last: 0.0}
    for row in rows[1:]:
        row.sort(key=lambda number: (_mean([place[each] for each in readers[number]]), number))
        for index, number in enumerate(row):
            place[number] = (index + 1) / (len(row) + 1)
    return rows


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _placed(
    dataflow: Dataflow, rows: Sequence[Sequence[NodeId]], texts: Sequence[str]
) -> dict[NodeId, Box]:
    """Where each operator is drawn; rows are centred over one another."""
    lines = {number: _lines(dataflow, number, texts[number]) for row in rows for number in row}
    widths = {number: LETTER * max(map(len, each)) + 2 * PAD for number, each in lines.items()}
    spans = [sum(widths[number] + GAP for number in row) for row in rows]
    boxes: dict[NodeId, Box] = {}
    y = 2 * GAP
    for row, span in zip(rows, spans, strict=True):
        x = GAP + (max(spans) - span) // 2
        for number in row:
            height = LINE * len(lines[number]) + PAD
            boxes[number] = Box(x, y, widths[number], height, lines[number])
            x += widths[number] + GAP
        y += max(boxes[number].height for number in row) + RISE
    return boxes


def _lines(dataflow: Dataflow, number: NodeId, text: str) -> tuple[str, ...]:
    """What stands in a box; all of a long text is in its tooltip."""
    kept = textwrap.wrap(
        text, LETTERS_A_LINE, max_lines=LINES, placeholder=" ...", break_on_hyphens=False
    )
    types = textwrap.shorten(", ".join(dataflow.types[number]), LETTERS_A_LINE)
    return (f"#{number} round {dataflow.levels[number]}", *kept, f"({types})")


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
