"""A resident task: runs micro-batches that the driver asks for, until the driver leaves.

It runs all rounds of a micro-batch, one after another and bucket by bucket, with the functions
that a job of Spark runs (`streams.replica.tasks.rounds`), from the same descriptor. Its answer
is what the driver would collect from the job: reports and failures of dataflows.

A micro-batch has a limit, which the kernel enforces: an interval timer kills the process, also
in the middle of a C function. Spark then runs the task again, in another process.
"""

import json
import logging
import signal
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import pyarrow as pa

from streams.errors import Indeterminate
from streams.replica.tasks import rounds
from streams.replica.tasks.authenticated_frames import Door, Frames
from streams.replica.tasks.exchange_blobs import SCHEMA, Head, blobs, peek, rows

log = logging.getLogger(__name__)

MOST_REQUEST = 64 << 10
MOST_ANSWER = 64 << 20
SEND_S = 10.0

_DONE, _FAILED = b"\0", b"\1"

Blob = tuple[int, pa.Buffer]
"""A blob and its bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentStep:
    """A micro-batch to run: its descriptor, tasks of round 0 and rounds; its limit."""

    step: str
    tasks: int
    depth: int
    limit_s: float

    def dumps(self) -> bytes:
        """Return it as a frame."""
        return json.dumps(asdict(self)).encode()


def serve(door: Door, place: str, _: Iterable[object] = ()) -> None:
    """Connect to the driver and run what it asks for; returns when it leaves, or has left.

    Errors: OSError when it cannot be reached otherwise, or is another.
    """
    try:
        with door.connect() as frames:
            while (request := frames.receive(MOST_REQUEST)) is not None:
                frames.send(answer(place, ResidentStep(**json.loads(request))), SEND_S)
    except ConnectionError:
        log.debug("the driver left")


def answer(place: str, wanted: ResidentStep) -> bytes:
    """Run a micro-batch; return the answer's frame, also for one that fails."""
    try:
        with killed_after(wanted.limit_s):
            done = run(place, wanted)
        frame = _DONE + _encoded(done)
    except Exception:  # noqa: BLE001  whatever it is, the query of the lane tries next
        return _FAILED + traceback.format_exc(limit=-3).encode()
    if len(frame) > MOST_ANSWER:
        return _FAILED + f"an answer of {len(frame)} bytes".encode()
    return frame


def heads(frame: bytes) -> Sequence[Head]:
    """Return the reports and failures in an answer. Errors: Indeterminate if there are none."""
    kind, body = frame[:1], memoryview(frame)[1:]
    if kind != _DONE:
        raise Indeterminate(bytes(body).decode(errors="replace"))
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return [peek(blob) for _, blob in blobs(reader)]


def ask(frames: Frames, wanted: ResidentStep, patience_s: float) -> Sequence[Head]:
    """Have a micro-batch run, as the driver; return its reports and failures.

    Errors: OSError if the task is lost or late, ValueError if it answers nonsense;
    Indeterminate if the micro-batch failed.
    """
    frames.send(wanted.dumps(), SEND_S)
    frame = frames.receive(MOST_ANSWER, wanted.limit_s + patience_s)
    if frame is None:
        raise ConnectionResetError("the resident task ended")
    answered = heads(frame)
    if any(head.step != wanted.step for head in answered):
        raise ValueError(f"expected the answer to {wanted.step}, actual another one")
    return answered


def run(place: str, wanted: ResidentStep) -> Sequence[Blob]:
    """Run all rounds of a micro-batch; return the blobs after the last one."""
    sent = [
        blob
        for index in range(wanted.tasks)
        for blob in blobs(rounds.start_round(place, wanted.step, index))
    ]
    for level in range(1, wanted.depth + 1):
        sent = [
            blob
            for mine in by_bucket(sent).values()
            for blob in blobs(rounds.advance_round(level, place, _batches(mine)))
        ]
    return sent


def by_bucket(sent: Iterable[Blob]) -> Mapping[int, Sequence[Blob]]:
    """Return the blobs by bucket, as the exchange of a job does."""
    blobs_of: dict[int, list[Blob]] = {}
    for bucket, blob in sent:
        blobs_of.setdefault(bucket, []).append((bucket, blob))
    return blobs_of


@contextmanager
def killed_after(limit_s: float) -> Iterator[None]:
    """Kill this process unless the block ends within a time."""
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _batches(sent: Sequence[Blob]) -> Iterator[pa.RecordBatch]:
    return rows([(bucket, blob.to_pybytes()) for bucket, blob in sent])


def _encoded(sent: Sequence[Blob]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for batch in _batches(sent):
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body
