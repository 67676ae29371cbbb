"""Limits of messages that cannot be decoded: when they are passed, and what is counted."""

from dataclasses import replace

import pytest

from streams.compute import binding, error_limit
from streams.compute.binding import Fact
from streams.compute.description import IngestionDescription, Start
from streams.compute.event_time import Seen
from streams.ids import Topic
from streams.plan.metadata import ErrorLimit


def source(limit: ErrorLimit | None, generation: int = 0) -> IngestionDescription:
    return IngestionDescription(
        topic=Topic("raw"),
        topic_id="id",
        envelope="none",
        error_limit=limit,
        start=Start(generation),
    )


@pytest.mark.parametrize(
    ("limit", "refused", "messages", "passed"),
    [
        (ErrorLimit(number=5), 5, 5, False),
        (ErrorLimit(number=5), 6, 10**9, True),
        (ErrorLimit(number=0), 1, 1, True),
        (ErrorLimit(millionths=10_000), 999, 999, False),
        (ErrorLimit(millionths=10_000), 10, 1_000, False),
        (ErrorLimit(millionths=10_000), 11, 1_000, True),
        (ErrorLimit(millionths=10_000), 11, 1_100, False),
        (ErrorLimit(), 10**9, 10**9, False),
    ],
)
def test_a_number_and_a_share_from_a_thousand_messages_on(limit, refused, messages, passed):
    assert error_limit.is_passed(limit, refused, messages) is passed


def test_counts_begin_where_the_limit_was_declared():
    first = source(ErrorLimit(number=3))
    bound = error_limit.counted(first, {0: 9}, Seen(bad={0: 2}, messages={0: 9}))
    assert error_limit.counts(first, bound) == (2, 9)
    declared = source(ErrorLimit(number=3, refused_before=2, messages_before=9))
    to = error_limit.counted(declared, bound, Seen(bad={1: 3}, messages={0: 1, 1: 4}))
    assert error_limit.counts(declared, to) == (3, 5)
    assert error_limit.limit_objection(declared, bound, to) is None
    assert "5 of 14 messages cannot be decoded, and 2 of 9 are counted" in str(
        error_limit.limit_objection(first, bound, to)
    )
    assert error_limit.counts(source(ErrorLimit(number=3), generation=1), to) == (0, 0)


def test_without_a_limit_errors_of_the_source_alone_are_counted():
    bound = {0: 9}
    seen = Seen(bad={0: 2}, messages={0: 9})
    letters = replace(source(None), on_error="dead_letter")
    assert error_limit.counted(letters, bound, seen) == bound
    assert error_limit.counts_of(letters) == ()
    inline = replace(source(None), on_error="inline")
    errors = binding.counted(bound, 0, seen.bad, Fact.REFUSED)
    assert error_limit.counted(inline, bound, seen) == errors != bound
    assert error_limit.counts_of(inline) == (Fact.REFUSED,)
    assert error_limit.limit_objection(source(None), bound, bound) is None
    assert binding.total(bound, binding.Fact.REFUSED) == 0


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (ErrorLimit(number=100), "100"),
        (ErrorLimit(millionths=10_000), "'1 %"),
        (ErrorLimit(millionths=100_000), "'10 %"),
        (ErrorLimit(millionths=5_001), "'0.5001 %"),
        (ErrorLimit(), "NONE"),
    ],
)
def test_a_limit_is_written_as_in_the_statement(limit, text):
    assert str(limit).rstrip("'") == text
