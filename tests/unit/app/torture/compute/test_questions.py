"""Answers to peeks are compared with the truth: how many there are, and what they say."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.compute.description import DataflowDescription
from streams.compute.peeks import (
    Peek,
    PeekCanceled,
    PeekError,
    PeekOutcome,
    PeekRows,
    PeekTarget,
)
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import Column
from streams.torture.compute.objects import Maintained
from streams.torture.compute.questions import Question, key_stream
from streams.torture.compute.truth import Rows, answered, different

VIEW = Maintained(
    DataflowDescription(
        export=CollectionId("v1"),
        kind="view",
        name="v1",
        group="v1",
        columns=(Column("k", "BIGINT"),),
        as_of=Timestamp(1),
    )
)
PEEK = Peek(
    uuid="p",
    target=PeekTarget(CollectionId("v1"), "v1"),
    time=Timestamp(3),
    plan="",
    project=(0,),
    most_bytes=1,
)
BY_INDEX = replace(PEEK, target=replace(PEEK.target, index=CollectionId("i1")))
QUESTION = Question(PEEK, VIEW, "true", 1)
RIGHT = PeekRows(2, key_stream([1, 2]))


class Known:
    """The truth of one view at one time."""

    def rows(self, view: Maintained, time: int, where: str) -> Rows:
        assert (view, time, where) == (VIEW, 3, "true")
        return Counter([(1,), (2,)])


TRUTH: Any = Known()


@pytest.mark.parametrize(
    ("question", "outcomes"),
    [
        (QUESTION, [RIGHT]),
        (replace(QUESTION, is_canceled=True), []),
        (replace(QUESTION, is_canceled=True), [RIGHT]),
        (replace(QUESTION, is_killed=True), []),
        (replace(QUESTION, peek=BY_INDEX), [PeekError("its history has been compacted")]),
    ],
    ids=["answered", "canceled", "answered-before", "controller-killed", "index-is-younger"],
)
def test_what_may_be(question: Question, outcomes: Sequence[PeekOutcome]) -> None:
    assert not question.wrong(outcomes, TRUTH)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "0 answers"),
        ([RIGHT, RIGHT], "2 answers"),
        ([PeekRows(2, key_stream([1, 3]))], "missing [((2,), 1)], too much [((3,), 1)]"),
        ([PeekRows(3, key_stream([1, 2]))], "not 3 rows"),
        ([PeekError("its history has been compacted")], "has been compacted"),
        ([PeekCanceled()], "it was canceled"),
    ],
    ids=["none", "two", "other-rows", "another-count", "error", "canceled"],
)
def test_what_may_not_be(outcomes: Sequence[PeekOutcome], said: str) -> None:
    assert said in QUESTION.wrong(outcomes, TRUTH)


def test_a_row_counts_as_often_as_it_is_there() -> None:
    rows = answered(key_stream([4, 4]))
    assert rows == {(4,): 2}
    assert different(Counter({(4,): 1}), rows)
