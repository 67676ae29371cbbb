"""The picture of a shard's batches."""

from hypothesis import given
from hypothesis import strategies as st

from streams.app.shard.batch_chart import class_text, draw, shade, size_class
from streams.app.shard.show import picture_lines
from streams.progress import EMPTY, frontier
from tests.unit.app.shard.test_shard_info import batch, ref

KIB = 1024


def test_a_shard_of_three_sizes() -> None:
    batches = [
        batch(0, 50, ref(1, size=1 << 20)),
        batch(50, 80, ref(2, size=64 * KIB)),
        *(batch(time, time + 1, ref(time, size=100)) for time in range(80, 100)),
    ]
    picture = draw(batches, frontier(50), frontier(100), 20)
    assert picture is not None
    assert list(picture_lines(picture)) == [
        " ≥ 1 MiB │██████████          │ 1 batch",
        "≥ 64 KiB │          ██████    │ 1 batch",
        " < 4 KiB │                ▒▒▒▒│ 20 batches",
        "         └────────────────────┘",
        "                    s        u   s since, u upper, * both",
        "          0  to  100",
        "          █ one batch  ▓ 2 to 4  ▒ 5 to 16  ░ more",
    ]


def test_a_first_snapshot_is_one_column() -> None:
    day = 1_785_000_000_000
    batches = [batch(0, day, ref(1, size=5 * KIB)), batch(day, day + 10), batch(day + 10, None)]
    picture = draw(batches, frontier(day), EMPTY, 11)
    assert picture is not None
    lines = list(picture_lines(picture))
    assert lines[0] == "≥ 4 KiB │█          │ 1 batch"
    assert lines[1] == "no rows │ ██████████│ 2 batches"
    assert lines[2] == "        └┄──────────┘"
    assert "2026-07-25" in lines[4]
    assert "the first column covers all earlier times" in lines[5]


def test_without_batches_there_is_no_picture() -> None:
    assert draw([], frontier(0), frontier(0), 20) is None


def test_classes_are_named_by_their_least_size() -> None:
    for size, name in [(1, "< 4 KiB"), (4 * KIB, "≥ 4 KiB"), (64 * KIB - 1, "≥ 4 KiB")]:
        assert class_text(size_class(batch(0, 1, ref(0, size=size)))) == name
    assert class_text(size_class(batch(0, 1))) == "no rows"


def test_the_more_batches_the_lighter_a_cell() -> None:
    assert "".join(shade(count) for count in (0, 1, 2, 4, 5, 16, 17)) == " █▓▓▒▒░"


@given(
    st.lists(st.tuples(st.integers(0, 1 << 41), st.integers(1, 1 << 41)), max_size=20),
    st.integers(1, 80),
    st.booleans(),
)
def test_every_batch_is_drawn_inside_the_frame(spans, width, sealed) -> None:
    batches = [
        batch(low, None if sealed else low + long, ref(0, size=long)) for low, long in spans
    ]
    picture = draw(batches, frontier(5), EMPTY if sealed else frontier(7), width)
    assert (picture is None) == (not batches)
    if picture is not None:
        assert sum(row.batches for row in picture.rows) == len(batches)
        assert all(len(row.cells) == width and row.cells.strip() for row in picture.rows)
