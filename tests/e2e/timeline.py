"""What happened when, as a page: faults, frontiers, how far each way was behind, figures."""

import html
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tests.e2e.frontiers import Uppers
from tests.e2e.ledger import Way

WIDTH, ROW, LEFT, CHART = 1100, 18, 150, 120
LINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
COLOURS = {
    "kill": "#c0392b",
    "pause": "#2980b9",
    "cut": "#8e44ad",
    "restart": "#d35400",
    "clock": "#27ae60",
    "delay": "#7f8c8d",
    "upgrade": "#16a085",
}
LEAST_LAG_S = 5.0
"""The height of a chart of lag, unless it was longer."""


@dataclass
class Fault:
    """Something that was done to a part, when, and until when all was well again."""

    kind: str
    part: str
    began: float
    ended: float = 0.0
    recovered: float = 0.0

    @property
    def recovery_s(self) -> float:
        """From the end of the fault until every transfer before it was in the views."""
        return self.recovered - self.ended


@dataclass
class Timeline:
    """The faults of a run."""

    began: float = field(default_factory=time.time)
    faults: list[Fault] = field(default_factory=list)

    @contextmanager
    def fault(self, kind: str, part: str) -> Iterator[Fault]:
        """One fault, which lasts as long as the block."""
        fault = Fault(kind, part, time.time())
        self.faults.append(fault)
        yield fault
        fault.ended = time.time()


def lags(way: Way) -> list[tuple[float, float]]:
    """How many seconds a way was behind the clock, by the seconds of this clock."""
    return [(now, now - reached / 1000) for now, reached in way.progress]


@dataclass(frozen=True)
class Chart:
    """A rectangle of the picture, whose horizontal axis is this machine's clock."""

    began: float
    until: float
    top: int

    def x(self, now: float) -> float:
        """Where a second of the clock is."""
        return LEFT + (now - self.began) * (WIDTH - LEFT) / max(self.until - self.began, 1)

    def y(self, share: float) -> float:
        """Where a share of the height is, from below; what is beyond is at the edge."""
        return self.top + CHART * (1 - min(max(share, 0), 1))

    def frame(self, *said: str) -> Iterator[str]:
        """The background, and what is said beside it."""
        for number, text in enumerate(said):
            yield f'<text x="0" y="{self.top + 13 + 15 * number}">{html.escape(text)}</text>'
        yield (
            f'<rect x="{LEFT}" y="{self.top}" width="{WIDTH - LEFT}" height="{CHART}"'
            ' fill="#f4f4f4"/>'
        )

    def line(self, points: Iterable[tuple[float, float]], style: str, name: str) -> str:
        """Points, by the clock and by the share of the height."""
        places = " ".join(f"{self.x(now):.1f},{self.y(share):.1f}" for now, share in points)
        return (
            f'<polyline points="{places}" fill="none" {style}>'
            f"<title>{html.escape(name)}</title></polyline>"
        )


def picture(timeline: Timeline, ways: Sequence[Way], uppers: Uppers) -> str:
    """A row for each part with its faults, a chart of frontiers, one of lag for each way."""
    parts = sorted({fault.part for fault in timeline.faults})
    first = ROW * (len(parts) + 1)
    tops = [first + (CHART + ROW) * number for number in range(len(ways) + 1)]
    charts = [Chart(timeline.began, time.time(), top) for top in tops]
    shapes = [*_rows(timeline, parts, charts[0]), *_frontiers(charts[0], uppers)]
    for way, chart in zip(ways, charts[1:], strict=True):
        shapes += _lag(chart, way)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
        f' height="{tops[-1] + CHART + ROW}"'
        f' font-family="sans-serif" font-size="12">{"".join(shapes)}</svg>'
    )


def _rows(timeline: Timeline, parts: Sequence[str], chart: Chart) -> Iterator[str]:
    for number, part in enumerate(parts):
        yield f'<text x="0" y="{ROW * number + 13}">{html.escape(part)}</text>'
    for fault in timeline.faults:
        x, y = chart.x(fault.began), ROW * parts.index(fault.part)
        end, recovered = max(chart.x(fault.ended), x + 3), chart.x(fault.recovered)
        colour = COLOURS[fault.kind]
        yield (
            f'<rect x="{x:.1f}" y="{y + 2}" width="{end - x:.1f}" height="14" fill="{colour}">'
            f"<title>{fault.kind}</title></rect>"
            f'<rect x="{end:.1f}" y="{y + 2}" width="{max(recovered - end, 0):.1f}" height="14"'
            f' fill="{colour}" opacity="0.25"><title>{fault.recovery_s:.1f} s</title></rect>'
        )


def _frontiers(chart: Chart, uppers: Uppers) -> Iterator[str]:
    """Upper of each object by the clock: on the dashed line it is the clock."""
    lasted = max(chart.until - chart.began, 1)
    yield from chart.frame("frontiers: upper", "dashed: the clock")
    clock = [(chart.began, 0.0), (chart.until, 1.0)]
    yield chart.line(clock, 'stroke="#999" stroke-dasharray="4"', "the clock")
    for number, (name, seen) in enumerate(sorted(uppers.items())):
        style = f'stroke="{LINES[number % len(LINES)]}"'
        for is_known, run in groupby(seen, lambda look: look[1] is not None):
            points = [(now, ((upper or 0) / 1000 - chart.began) / lasted) for now, upper in run]
            if is_known:
                yield chart.line(points, style, name)


def _lag(chart: Chart, way: Way) -> Iterator[str]:
    longest = max([LEAST_LAG_S, *(lag for _, lag in lags(way))])
    points = [(now, lag / longest) for now, lag in lags(way)]
    yield from chart.frame(f"{way.name}: lag", f"0 to {longest:.0f} s")
    yield chart.line(points, 'stroke="#222"', way.name)


def page(
    timeline: Timeline, ways: Sequence[Way], uppers: Uppers, figures: Mapping[str, object]
) -> str:
    """The report, whole."""
    legend = " ".join(
        f'<span style="color:{colour}">&#9632; {kind}</span>'
        for kind, colour in COLOURS.items()
    )
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in figures.items()
    )
    faults = "".join(
        f"<tr><td>{fault.kind}</td><td>{fault.part}</td>"
        f"<td>{fault.ended - fault.began:.1f} s</td><td>{fault.recovery_s:.1f} s</td></tr>"
        for fault in timeline.faults
    )
    return (
        "<!doctype html><meta charset=utf-8><title>End to end</title>"
        f"<h1>End to end</h1><p>{legend}; pale: until all transfers were in the views</p>"
        f"{picture(timeline, ways, uppers)}<h2>Figures</h2><table>{rows}</table>"
        "<h2>Faults</h2><table><tr><th>fault<th>of<th>lasted<th>then until all was there</tr>"
        f"{faults}</table>"
    )


def write(
    directory: Path,
    timeline: Timeline,
    ways: Sequence[Way],
    uppers: Uppers,
    figures: Mapping[str, object],
) -> None:
    """The page, and the figures as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.html").write_text(page(timeline, ways, uppers, figures))
    (directory / "figures.json").write_text(json.dumps(figures, indent=1, default=str))
