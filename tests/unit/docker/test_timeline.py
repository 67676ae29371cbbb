"""The report of the end-to-end tests is well-formed, and has every fault and every way."""

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.e2e.frontiers import Frontiers, Uppers
from tests.e2e.ledger import Way
from tests.e2e.timeline import Fault, Timeline, lags, page, picture, write

SVG = "{http://www.w3.org/2000/svg}"


UPPERS: Uppers = {
    "balance": [(101.0, 100_900), (113.0, None), (121.0, 120_800)],
    "credits": [(101.0, 100_900), (113.0, 112_900), (121.0, 9_999_999)],
}


def run() -> tuple[Timeline, list[Way], Uppers]:
    timeline = Timeline(began=100.0)
    timeline.faults = [
        Fault("kill", "replica", 110.0, 112.0, 120.0),
        Fault("cut", "kafka", 130.0, 135.0, 136.5),
    ]
    way = Way("subscribe")
    way.progress = [(101.0, 100_000), (113.0, 101_000), (121.0, 120_500)]
    return timeline, [way, Way("postgres")], UPPERS


def test_lag_is_the_clock_less_what_was_reached() -> None:
    _, (way, _), _ = run()
    assert lags(way) == [(101.0, 1.0), (113.0, 12.0), (121.0, 0.5)]


def test_the_picture_has_a_bar_for_each_fault_and_a_line_for_each_way() -> None:
    root = ET.fromstring(picture(*run()))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"replica", "kafka", "subscribe: lag"} <= set(texts)
    bars = [title.text for bar in root.iter(f"{SVG}rect") for title in bar.iter(f"{SVG}title")]
    assert bars == ["kill", "8.0 s", "cut", "1.5 s"]
    assert [len(line) for line in lines(root)["subscribe"]] == [3]


def lines(root: ET.Element) -> dict[str, list[list[list[float]]]]:
    """The lines of each name, as points."""
    drawn: dict[str, list[list[list[float]]]] = {}
    for line in root.iter(f"{SVG}polyline"):
        (title,) = line.iter(f"{SVG}title")
        points = [[*map(float, point.split(","))] for point in line.attrib["points"].split()]
        drawn.setdefault(str(title.text), []).append(points)
    return drawn


def test_a_frontier_has_a_gap_while_nobody_said_where_it_was() -> None:
    drawn = lines(ET.fromstring(picture(*run())))
    assert [len(line) for line in drawn["balance"]] == [1, 1]
    assert [len(line) for line in drawn["credits"]] == [3]


def test_what_is_beyond_a_chart_is_at_its_edge() -> None:
    (points,) = lines(ET.fromstring(picture(*run())))["credits"]
    heights = [height for _, height in points]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[-1] <= 120


def test_frontiers_are_unknown_while_nobody_answers() -> None:
    answers = iter([{"a": 1}, {"a": 2, "b": 2}])
    frontiers = Frontiers(lambda: next(answers))  # StopIteration is as good as a refusal
    for _ in range(3):
        frontiers.look()
    seen = {name: [upper for _, upper in looks] for name, looks in frontiers.uppers.items()}
    assert seen == {"a": [1, 2, None], "b": [2, None]}


def test_the_page_has_the_figures_and_escapes_them(tmp_path: Path) -> None:
    figures = {"transfers": 7, "said": "<no broker>"}
    text = page(*run(), figures)
    assert "&lt;no broker&gt;" in text
    assert "<td>replica</td><td>2.0 s</td><td>8.0 s</td>" in text
    write(tmp_path / "new", *run(), figures)
    assert (tmp_path / "new" / "report.html").stat().st_size > 1000
    assert '"transfers": 7' in (tmp_path / "new" / "figures.json").read_text()
