"""Peeks that were sent, and checks that each answer is the expected one."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from streams.compute.peeks import (
    MOST_COPIED,
    CopyFiles,
    KeyLookup,
    Peek,
    PeekCanceled,
    PeekError,
    PeekFiles,
    PeekOutcome,
    PeekRows,
    PeekTarget,
)
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plan_json
from streams.plan.compile import Relation, compile_select
from streams.storage.client.shards import fresh_uuid
from streams.torture.compute.objects import Maintained
from streams.torture.compute.truth import Rows, Truth, answered, different

MOST_BYTES = 16 << 20
FILE_BYTES = 1 << 14
MOST_KEYS = 3
COMPACTED = "has been compacted"
"""A replica that starts loads an index anew, and knows nothing of it from before."""

KEYS = 12
"""Keys of orders: looked up are more than these."""


@dataclass(slots=True)
class Question:
    """A peek of a view, and its outcome.

    `epoch` is that of its controller. `is_killed` says that this one was before it answered.
    """

    peek: Peek
    view: Maintained
    where: str
    epoch: int
    is_canceled: bool = False
    is_killed: bool = False

    @property
    def kind(self) -> str:
        """What sort of peek it is."""
        if self.peek.files is not None:
            return "copies"
        return "peeks by index" if self.peek.target.index else "peeks of shards"

    def wrong(self, outcomes: Sequence[PeekOutcome], truth: Truth) -> str:
        """What is wrong with the answers; empty if nothing is."""
        asked = f"{self.kind} at {self.peek.time} of {self.view.name} where {self.where}"
        is_owed = not self.is_canceled and not self.is_killed
        if len(outcomes) > 1 or (is_owed and not outcomes):
            return f"{asked}: {len(outcomes)} answers"
        for outcome in outcomes:
            fault = self._fault(outcome, truth)
            if fault:
                return f"{asked}: {fault}"
        return ""

    def _fault(self, outcome: PeekOutcome, truth: Truth) -> str:
        match outcome:
            case PeekRows(count, rows):
                actual = answered(rows)
                is_whole = actual.total() == count
                return self._different(actual, truth) if is_whole else f"not {count} rows"
            case PeekFiles():
                return self._different(copied(self.peek), truth)
            case PeekError(message):
                return "" if self.peek.target.index and COMPACTED in message else message
            case PeekCanceled():
                return "it was canceled"

    def _different(self, actual: Rows, truth: Truth) -> str:
        return different(truth.rows(self.view, self.peek.time, self.where), actual)


def copied(peek: Peek) -> Rows:
    """The rows in the files of a copy."""
    assert peek.files is not None, "it is a copy"
    directory = Path(peek.files.uri.removeprefix("file://"))
    tables = [pq.read_table(file) for file in sorted(directory.glob("*.parquet"))]
    rows: Rows = Counter()
    for table in tables:
        rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows


@dataclass(slots=True)
class Questioner:
    """Asks peeks at random; copies go below `exports`."""

    rng: Random
    exports: Path
    asked: dict[str, Question] = field(default_factory=dict)

    def ask(
        self, view: Maintained, index: CollectionId | None, time: int, epoch: int
    ) -> Question:
        """A peek of a view at a time: all of it or a few keys, what an expression keeps."""
        first = view.flow.columns[0].name
        wheres, lookup = list[str](), None
        if self.rng.random() < 0.3:  # noqa: PLR2004  now and then
            wheres.append(f'"{first}" % 2 = {self.rng.randrange(2)}')
        text = " AND ".join(["true", *wheres])
        plan, project = planned(view, text)
        if index is not None:
            keys = self.rng.sample(range(KEYS + 2), k=self.rng.randint(1, MOST_KEYS))
            lookup = KeyLookup((0,), key_stream(keys))
            wheres.append(f'"{first}" IN ({", ".join(map(str, keys))})')
        peek = Peek(
            uuid=fresh_uuid(),
            target=PeekTarget(view.flow.export, view.flow.group, index),
            time=Timestamp(time),
            plan=plan,
            project=project,
            most_bytes=MOST_BYTES,
            lookup=lookup,
        )
        if index is None and self.rng.random() < 0.15:  # noqa: PLR2004  now and then
            peek = self._copy(peek, view)
        where = " AND ".join(["true", *wheres])
        question = self.asked[peek.uuid] = Question(peek, view, where, epoch)
        return question

    def _copy(self, peek: Peek, view: Maintained) -> Peek:
        names = tuple(column.name for column in view.flow.columns)
        files = CopyFiles(f"{self.exports.as_uri()}/{peek.uuid}", names, FILE_BYTES)
        return Peek(
            uuid=peek.uuid,
            target=peek.target,
            time=peek.time,
            plan=peek.plan,
            project=peek.project,
            most_bytes=MOST_COPIED,
            files=files,
        )

    def open(self, answers: Mapping[str, Sequence[PeekOutcome]]) -> list[Question]:
        """Those that are owed an answer and have none."""
        return [
            question
            for uuid, question in self.asked.items()
            if not answers.get(uuid) and not question.is_canceled and not question.is_killed
        ]

    def wrong(
        self, answers: Mapping[str, Sequence[PeekOutcome]], truth: Truth
    ) -> Iterator[str]:
        """What is wrong with any answer."""
        for uuid in answers.keys() - self.asked.keys():
            yield f"peek {uuid} was not asked"
        for uuid, question in self.asked.items():
            fault = question.wrong(answers.get(uuid, ()), truth)
            if fault:
                yield fault


def planned(view: Maintained, where: str) -> tuple[str, tuple[int, ...]]:
    """The plan of a SELECT of all columns, and their places."""
    relation = Relation(view.flow.export, view.flow.columns)
    selected = compile_select(
        f'SELECT * FROM "{view.name}" WHERE {where}', {view.name: relation}
    )
    return plan_json.dumps(selected.dataflow), tuple(range(len(selected.shown)))


def key_stream(keys: Sequence[int]) -> bytes:
    """Keys as an Arrow IPC stream."""
    rows = pa.record_batch([pa.array(keys, pa.int64())], names=["key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
