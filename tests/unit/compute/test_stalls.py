"""What keeps a source from reading on, and what does not."""

from dataclasses import replace

import pytest

from streams.compute import binding
from streams.compute.description import IngestionDescription, Start
from streams.compute.reclocking import Ends
from streams.compute.stalls import SETTLED, StaleEnds, Stalled, TopicReport, reading_obstacle
from streams.ids import Topic

SOURCE = IngestionDescription(topic=Topic("events"), topic_id="a", envelope="none")


@pytest.mark.parametrize(
    ("bound", "report", "obstacle"),
    [
        ({0: 5}, TopicReport("a", {0: Ends(2, 9)}), None),
        ({}, TopicReport("a", {0: Ends(7, 9)}), None),
        ({0: 5}, TopicReport("a", {0: Ends(0, 5), 1: Ends(0, 3)}), None),
        ({}, TopicReport(None, {}), 'topic "events" does not exist'),
        (
            {0: 5},
            TopicReport("b", {0: Ends(0, 9)}),
            'topic "events" was re-created: expected id a, actual b',
        ),
        (
            {0: 5},
            TopicReport("a", {0: Ends(0, 9)}, shrunk={0: 4}),
            'topic "events" has lost records at the end of partition 0 (from offset 4 on)',
        ),
        ({0: 4}, TopicReport("a", {0: Ends(0, 9)}, shrunk={0: 4}), None),
        (
            {0: 5},
            TopicReport("a", {0: Ends(8, 9)}),
            'topic "events", partition 0: offsets 5 to 7 were deleted before they were read',
        ),
        (
            {0: 5},
            TopicReport("a", {0: Ends(0, 5), 1: Ends(2, 3)}),
            'topic "events", partition 1: offsets 0 to 1 were deleted before they were read',
        ),
        ({0: 5}, TopicReport("a", {0: Ends(0, 4)}), StaleEnds()),
        (
            {0: 5},
            TopicReport("a", {0: Ends(0, 4)}, repeats=SETTLED),
            'topic "events", partition 0: expected to reach offset 5, actual an end at 4',
        ),
        (
            {0: 5, 1: 0},
            TopicReport("a", {0: Ends(0, 5)}, repeats=SETTLED),
            'topic "events", partition 1: expected offset 0, actual no such partition',
        ),
    ],
    ids=[
        "goes on",
        "starts at what is held",
        "new partition",
        "gone",
        "re-created",
        "shrunk",
        "shrunk beyond what was read",
        "overtaken",
        "new partition overtaken",
        "old answer",
        "truncated",
        "partition lost",
    ],
)
def test_nothing_is_passed_over(bound, report, obstacle):
    expected = Stalled(obstacle) if isinstance(obstacle, str) else obstacle
    assert reading_obstacle(SOURCE, bound, report) == expected


@pytest.mark.parametrize(
    ("report", "obstacle"),
    [
        (TopicReport("a", {0: Ends(0, 5)}), None),
        (TopicReport("a", {0: Ends(0, 3)}), StaleEnds()),
        (
            TopicReport("a", {0: Ends(0, 3)}, repeats=SETTLED),
            'topic "events", partition 0: expected to reach offset 5, actual an end at 3',
        ),
        (
            TopicReport("a", {0: Ends(0, 9)}, shrunk={0: 3}),
            'topic "events" has lost records at the end of partition 0 (from offset 3 on)',
        ),
        (TopicReport("a", {0: Ends(0, 9)}, shrunk={0: 5}), None),
    ],
    ids=["goes on", "old answer", "truncated", "shrunk", "shrunk beyond what is settled"],
)
@pytest.mark.parametrize("bound", [{}, {0: 2}], ids=["nothing bound", "bound"])
def test_an_end_before_dead_letters_is_lost_too(bound, report, obstacle):
    expected = Stalled(obstacle) if isinstance(obstacle, str) else obstacle
    assert reading_obstacle(SOURCE, bound, report, {0: 5}) == expected


def started(generation: int, **offsets: int) -> IngestionDescription:
    pairs = tuple((int(name[1:]), offset) for name, offset in offsets.items())
    return replace(SOURCE, start=Start(generation, pairs))


def test_a_source_that_has_read_nothing_needs_the_offsets_that_it_starts_at():
    report = TopicReport("a", {0: Ends(3, 9)})
    assert reading_obstacle(started(0, p0=3), {}, report) is None
    assert reading_obstacle(started(0, p0=2), {}, report) == Stalled(
        'topic "events", partition 0: offsets 2 to 2 were deleted before they were read'
    )


def test_a_source_that_resumes_is_not_measured_by_where_it_stalled():
    report = TopicReport("a", {0: Ends(3, 9)}, shrunk={0: 4})
    bound = {0: 50}
    assert isinstance(reading_obstacle(SOURCE, bound, report), Stalled)
    assert reading_obstacle(started(1, p0=4), bound, report) is None
    bound = binding.extended(bound, 1, {0: 9})
    assert isinstance(
        reading_obstacle(started(1, p0=4), bound, report), Stalled
    )  # 4 to 8 were lost
    assert reading_obstacle(started(2, p0=3), bound, report) is None
