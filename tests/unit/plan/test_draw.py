"""EXPLAIN AS SVG: every operator once, every edge, nothing outside the picture."""

from xml.etree import ElementTree as ET

import pytest

from streams.ids import CollectionId
from streams.plan.compile import CompiledView, Relation, compile_view, draw_plan
from streams.plan.physical import Column, inputs
from tests.support import tpch

SVG = "{http://www.w3.org/2000/svg}"
CATALOG = {
    name: Relation(CollectionId(f"s{i}"), tuple(Column(*item) for item in columns.items()))
    for i, (name, columns) in enumerate(tpch.COLUMNS.items())
}


def picture(query: str) -> ET.Element:
    return ET.fromstring(draw_plan(query, CATALOG))


def boxes(root: ET.Element) -> dict[int, tuple[float, float, float, float]]:
    """The left, upper, right and lower edge of each operator."""
    positions = {}
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        x, y, width, height = (float(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        number = int(str(title.text).split()[0].removeprefix("#"))
        assert number not in positions
        positions[number] = (x, y, x + width, y + height)
    return positions


def exchanges(compiled: CompiledView) -> tuple[int, int]:
    """How many edges there are, and how many of them cross rounds."""
    flow = compiled.dataflow
    edges = [(n, source) for n, node in enumerate(flow.nodes) for source in inputs(node)]
    return len(edges), sum(flow.levels[one] != flow.levels[other] for one, other in edges)


@pytest.mark.parametrize("number", [1, 3, 8, 21])
def test_every_operator_has_a_place_of_its_own(number: int) -> None:
    query = tpch.QUERIES[number]
    root, compiled = picture(query), compile_view(query, CATALOG)
    positions = boxes(root)
    assert sorted(positions) == list(range(len(compiled.dataflow.nodes)))
    for one, (left, upper, right, lower) in positions.items():
        assert left >= 0
        assert upper >= 0
        assert right <= float(root.attrib["width"])
        assert lower <= float(root.attrib["height"])
        for other, (x, y, to_x, to_y) in positions.items():
            apart = right <= x or to_x <= left or lower <= y or to_y <= upper
            assert one == other or apart
    lines = list(root.iter(f"{SVG}line"))
    dashed = [line for line in lines if "stroke-dasharray" in line.attrib]
    assert (len(lines), len(dashed)) == exchanges(compiled)
    assert all(float(line.attrib["y1"]) > float(line.attrib["y2"]) for line in lines)


def test_texts_are_escaped_and_whole_in_their_tooltips() -> None:
    query = f"SELECT n_name AS \"<&\" FROM nation WHERE n_name <> '{'<&>' * 100}'"
    root = picture(query)
    assert '"<&" VARCHAR' in next(str(element.text) for element in root.iter(f"{SVG}text"))
    titles = [str(element.text) for element in root.iter(f"{SVG}title")]
    assert any("<&>" * 100 in title for title in titles)
    shown = [str(element.text) for element in root.iter(f"{SVG}text")]
    assert all(len(text) < 60 for text in shown)


def test_what_a_loop_repeats_is_drawn_below_it() -> None:
    root = picture(
        "WITH RECURSIVE r(a) AS (SELECT n_nationkey FROM nation UNION SELECT a + 1 FROM r "
        "WHERE a < 10) SELECT * FROM r"
    )
    titles = [str(element.text) for element in root.iter(f"{SVG}title")]
    (loop,) = (title.split()[0] for title in titles if " Loop " in title)
    body = [title for title in titles if title.startswith(f"{loop}.")]
    assert any(title.endswith("Distinct") for title in body)
    assert any("r of the iteration before" in title for title in body)
    shown = [str(element.text) for element in root.iter(f"{SVG}text")]
    assert f"{loop} repeats r" in shown
    assert [text for text in shown if text.endswith(" is r")]
    upper = {
        str(group.findtext(f"{SVG}title")).split()[0]: float(rect.attrib["y"])
        for group in root.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
    }
    inside = {number for number in upper if number.startswith(f"{loop}.")}
    assert max(upper[n] for n in upper.keys() - inside) < min(upper[n] for n in inside)
