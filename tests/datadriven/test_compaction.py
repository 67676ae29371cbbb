"""What the compaction planner decides, as scripts.

plan since=S [upper=U] [whole]
LOWER UPPER BYTES [SINCE]        one line a batch; an UPPER of - has no end
----
[lower, upper) <- how many batches, advanced to a time, or nothing
"""

from pathlib import Path

import pytest

from streams.compaction import plan
from streams.compaction.plan import Merge
from streams.ids import CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log.batches import Batch, trace_of
from streams.storage.log.state import Capabilities, CollectionState
from tests.support import datadriven
from tests.support.datadriven import Case


def to_frontier(word: str) -> Antichain:
    return EMPTY if word == "-" else frontier(int(word))


def batch(number: int, words: list[str]) -> Batch:
    size = int(words[2])
    since = Timestamp(int(words[3])) if len(words) > 3 else Timestamp(0)
    chunks = (ChunkRef(0, Offset(number), f"k{number}", 0, 1, size),) if size else ()
    lower, upper = Timestamp(int(words[0])), to_frontier(words[1])
    return Batch(lower, upper, chunks, Offset(number), 0, since, None)


def shown(merge: Merge) -> str:
    upper = "-" if merge.upper.is_empty else str(merge.upper.time)
    count = len(merge.batches)
    return f"[{merge.lower}, {upper}) <- {count}, advanced to {merge.advance_to}"


def handle(case: Case) -> str:
    assert case.directive == "plan"
    batches = [batch(number, words) for number, words in enumerate(case.lines())]
    last = max(batches, key=plan.top).upper
    state = CollectionState(
        id=CollectionId("u1"),
        description="",
        since=to_frontier(case["since"]),
        upper=to_frontier(case["upper"]) if case.get("upper") else last,
        batches=trace_of(batches),
        capabilities=Capabilities(),
    )
    merges = plan.whole(state) if "whole" in case.arguments else plan.geometric(state)
    return "\n".join(map(shown, merges)) or "nothing"


@pytest.mark.parametrize("script", datadriven.scripts("compaction"), ids=lambda path: path.stem)
def test_compaction(script: Path) -> None:
    datadriven.run(script, handle)
