"""What is remembered of outcomes, and what is stale."""

from streams.ids import EventId, Offset
from streams.storage.outcomes import Created, Dropped
from streams.storage.window import WINDOW, Decided, Window, is_stale, window_of


def filled(offsets: int) -> Window:
    return window_of(
        Decided(EventId(f"e{offset}"), Offset(offset), Created()) for offset in range(offsets)
    )


def test_exactly_the_window_is_remembered() -> None:
    window = filled(3_000)
    remembered = list(window.remembered(Offset(2_999)))
    assert [each.offset for each in remembered] == list(range(2_999 - WINDOW, 3_000))


def test_whatever_is_not_stale_is_found() -> None:
    """A copy whose first was decided after `seen` is found as long as `seen` is not stale."""
    window = filled(3_000)
    at = Offset(3_000)
    for seen in range(at - WINDOW, at - 1):
        assert not is_stale(Offset(seen), at)
        assert window.find(EventId(f"e{seen + 1}"), Offset(seen)) == Created()
    assert is_stale(Offset(at - WINDOW - 1), at)


def test_an_id_decided_before_the_writer_looked_is_another_event() -> None:
    window = filled(10)
    assert window.find(EventId("e5"), Offset(5)) is None
    assert window.find(EventId("e5"), Offset(4)) == Created()


def test_recording_leaves_the_window_before_as_it_was() -> None:
    before = filled(70)
    after = before.record(Decided(EventId("new"), Offset(70), Dropped()))
    assert before.find(EventId("new"), Offset(-1)) is None
    assert after.find(EventId("new"), Offset(-1)) == Dropped()


def test_an_id_that_is_decided_anew_is_the_last_of_its_block() -> None:
    """Else a copy would look like one of before, and count again."""
    window = filled(9).record(Decided(EventId("e5"), Offset(9), Dropped()))
    assert window.find(EventId("e5"), Offset(8)) == Dropped()
