"""The report of the end-to-end tests is well-formed, and has every fault and every way."""

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.e2e.ledger import Way
from tests.e2e.timeline import Fault, Timeline, lags, page, picture, write

SVG = "{http://www.w3.org/2000/svg}"


def run() -> tuple[Timeline, list[Way]]:
    timeline = Timeline(began=100.0)
    timeline.faults = [
        Fault("kill", "replica", 110.0, 112.0, 120.0),
        Fault("cut", "kafka", 130.0, 135.0, 136.5),
    ]
    way = Way("subscribe")
    way.progress = [(101.0, 100_000), (113.0, 101_000), (121.0, 120_500)]
    return timeline, [way, Way("postgres")]


def test_lag_is_the_clock_less_what_was_reached() -> None:
    _, (way, _) = run()
    assert lags(way) == [(101.0, 1.0), (113.0, 12.0), (121.0, 0.5)]


def test_the_picture_has_a_bar_for_each_fault_and_a_line_for_each_way() -> None:
    root = ET.fromstring(picture(*run()))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"replica", "kafka", "subscribe: lag"} <= set(texts)
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles == ["kill", "8.0 s", "cut", "1.5 s"]
    (line,) = root.iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 3


def test_the_page_has_the_figures_and_escapes_them(tmp_path: Path) -> None:
    figures = {"transfers": 7, "said": "<no broker>"}
    text = page(*run(), figures)
    assert "&lt;no broker&gt;" in text
    assert "<td>replica</td><td>2.0 s</td><td>8.0 s</td>" in text
    write(tmp_path / "new", *run(), figures)
    assert (tmp_path / "new" / "report.html").stat().st_size > 1000
    assert '"transfers": 7' in (tmp_path / "new" / "figures.json").read_text()
