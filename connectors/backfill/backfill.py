"""Writes the initial contents of a task in many key ranges in parallel.

All ranges are written at the same time t, so that the endpoint is at one time once all have
committed, and the follow of the collections goes on from t. What a range has is in the
endpoint alone: after a crash, of a task or of everything, what is missing is asked for again,
and written at the same t.

    1  a session of all keys fences what an attempt before has left, and says what is written
    2  each range that is missing is opened once, one after another: from then on the tasks'
       sessions of different ranges have nothing in common
    3  the job (`connectors.backfill.job`) reads the collections and writes the ranges

A binding without contents at t, since its key is violated or its collection in error, is
written in no range. It stalls, and is left to the follow, which writes it once it is healed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from connectors.answer_timeouts import Patience
from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.plan import Gap, Written, gaps_of, time_of
from connectors.backfill.tasks import Cell, Plan, opening, reaches_of
from connectors.driver import Driver
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.ranges import EVERY_KEY
from connectors.runtime.reader import WAIT_MS
from connectors.runtime.runner import (
    TRIES,
    BackfillProgress,
    Status,
    Stopping,
    can_pass,
    check_divisible,
)
from connectors.runtime.session import DEAD_LETTERS, check_held
from connectors.runtime.task import Materialization
from connectors.runtime.task_setup import AppliedTask, prepare
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.periodic import periodically
from streams.storage.client.backoff import longer_s
from streams.storage.client.shards import Shards
from streams.storage.read.reader import (
    PART_BYTES,
    READ_LEASE_MS,
    protected_chunks,
    snapshot_pieces,
    split_by_bytes,
)

log = logging.getLogger(__name__)

Job = Callable[[Plan, Sequence[Cell], Progress], Outcome]
"""Writes all gaps of a plan, of the bindings that have contents. Errors: InvalidUsage if trying
again is of no use, Determinate."""
UNIT = "key ranges"

RANGES = 8
"""The default number of key ranges of a task."""

RENEWAL_S = READ_LEASE_MS / 4_000


class Backfill:
    """The first contents of a task. One thread."""

    def __init__(  # noqa: PLR0913  dependencies, passed by name
        self,
        task: Materialization,
        driver: Driver,
        shards: Shards,
        *,
        ranges: int,
        job: Job,
        stopping: Stopping,
        report: Callable[[Status], None] = lambda _: None,
        holder: str = "",
    ) -> None:
        """`ranges`: into how many parts all keys are divided at least.

        `holder` names the holds of the task, as those of its follow.
        """
        self._task, self._shards = task, shards
        patience = Patience(answer_s=task.limits.answer_s, is_stopping=stopping.is_set)
        self._driver = Driver(driver.transport, patience)
        self._ranges, self._job, self._stopping = ranges, job, stopping
        self._report = report
        self._following = CollectionFollower(shards, holder or task.task, task.collections)
        self._missing = 0
        """The number of ranges that the last attempt had to write."""
        self._stalled: frozenset[int] = frozenset()
        """The bindings that are left to the follow."""
        self.status = Status(task=task.task, stalls={})

    def run(self) -> Status:
        """Write the missing ranges, unless stopped.

        Errors: InvalidUsage if the task cannot be divided, or its contents not be written;
        what has failed `TRIES` times, without any range written in between.
        """
        tries, pause_s, least = 0, 0.0, -1
        while not self._stopping.is_set():
            try:
                if self._is_complete():
                    break
            except SlackwaterError as error:
                if self._stopping.is_set():
                    break
                is_new = self._missing != least
                least, tries = self._missing, 1 if is_new else tries + 1
                pause_s = longer_s(0.0 if is_new else pause_s)
                if tries >= TRIES or not can_pass(error):
                    self._say(state="failed", message=str(error))
                    raise
                log.warning("backfill failed; another follows", extra={"cause": str(error)})
                self._say(state="stalled", message=str(error))
                self._stopping.wait(pause_s)
        return self.status

    def _is_complete(self) -> bool:
        """Whether nothing is missing; otherwise makes one attempt to write it."""
        prepared = prepare(self._driver, self._task, self._following.open())
        check_divisible(prepared, self._ranges)
        if any(binding.dead_letters for binding in self._task.bindings):
            raise InvalidUsage(DEAD_LETTERS)
        holds = self._following.hold()
        written = self._written(prepared)
        self._check(prepared, written, holds)
        gaps = gaps_of(written, self._ranges, self._stalled)
        if not gaps:
            return True
        self._missing = len(gaps)
        as_of = self._time(prepared, written, list(holds.values()))
        if as_of is None:
            return False
        for gap in gaps:
            self._opened(prepared, gap)
        plan = Plan(
            prepared=prepared,
            topics=tuple(map(self._shards.data_topic, prepared.collections)),
            as_of=as_of,
            gaps=gaps,
            spill=self._task.limits.spill,
        )
        self._write(plan)
        return False

    def _written(self, prepared: AppliedTask) -> Written:
        """For each binding, the frontier of all keys; fences older sessions."""
        return self._opened(prepared, Gap(*EVERY_KEY, frozenset()))

    def _check(
        self, prepared: AppliedTask, written: Written, holds: Mapping[CollectionId, Timestamp]
    ) -> None:
        """What is written is of these collections. Errors: as `check_held`."""
        self._following.sync()
        for bound, collection, reaches in zip(
            prepared.bounds, prepared.collections, written, strict=True
        ):
            frontiers = [reach.frontier for reach in reaches if reach.frontier is not None]
            between = (holds[collection], self._following.upper(collection))
            if frontiers:
                check_held(bound.name, collection, frontiers, between)

    def _opened(self, prepared: AppliedTask, gap: Gap) -> Written:
        """Open a range, and leave it as it is."""
        with self._driver.open(opening(prepared, gap), prepared.extensions) as stream:
            if prepared.extensions.acknowledge:
                stream.acknowledge()
            written = reaches_of(prepared, stream)
            stream.finish()
        return written

    def _time(
        self, prepared: AppliedTask, written: Written, holds: Sequence[Timestamp]
    ) -> Timestamp | None:
        """The time of the contents, once they are complete; None if it is stopped before."""
        self._following.sync()
        while not self._stopping.is_set():
            uppers = {
                collection: self._following.upper(collection)
                for collection in prepared.collections
            }
            if (time := time_of(written, holds, list(uppers.values()))) is not None:
                return time
            self._say(state="waiting", message=f"{', '.join(uppers)}: no complete time yet")
            self._following.wait(partial(self._is_later, uppers), WAIT_MS)
        return None

    def _is_later(self, uppers: Mapping[CollectionId, Timestamp]) -> bool:
        return any(
            self._following.upper(collection) > upper for collection, upper in uppers.items()
        )

    def _write(self, plan: Plan) -> None:
        """Run the job over the present chunks of the collections, which are kept meanwhile."""
        total = len(plan.gaps)
        self._say(
            state="backfilling",
            message=f"{total} key ranges at {plan.as_of}",
            upper=plan.frontier,
            backfill=BackfillProgress(0, total, UNIT),
        )
        collections = dict.fromkeys(plan.prepared.collections)
        progress = self._progress(total)
        with kept(self._shards, list(collections), plan.as_of):
            outcome = self._job(plan, list(self._cells(plan)), progress)
        self._stalled = frozenset(outcome.stalls)
        wanted = [gap for gap in plan.without(outcome.stalls).gaps if gap.bindings]
        progress(len(wanted), outcome.rows)
        self._say(
            message="",
            time=plan.as_of if wanted else self.status.time,
            stalls={
                plan.prepared.bounds[number].name: reason
                for number, reason in outcome.stalls.items()
            },
            backfill=None,
        )

    def _progress(self, total: int) -> Progress:
        """Count what a job has committed, so far, on what was committed before it."""
        rows_before, commits_before = self.status.rows, self.status.commits

        def progress(ranges: int, rows: int) -> None:
            self._say(
                rows=rows_before + rows,
                commits=commits_before + ranges,
                backfill=BackfillProgress(ranges, total, UNIT),
            )

        return progress

    def _cells(self, plan: Plan) -> Iterator[Cell]:
        """The chunks of all collections that are to be read, some at a time."""
        wanted = frozenset[int]().union(*(gap.bindings for gap in plan.gaps))
        for binding in sorted(wanted):
            state = self._shards.state(plan.prepared.collections[binding])
            pieces = snapshot_pieces(state, plan.as_of)
            for some in split_by_bytes(pieces, PART_BYTES) if pieces else ():
                yield Cell(binding, tuple(some))

    def _say(self, **changes: object) -> None:
        status = replace(self.status, **changes)  # type: ignore[arg-type]  # its fields
        if status != self.status:
            self.status = status
            self._report(status)


@contextmanager
def kept(
    shards: Shards, collections: Sequence[CollectionId], as_of: Timestamp
) -> Iterator[None]:
    """Protect the present chunks of collections while the block runs, however long."""
    with ExitStack() as stack:
        for collection in collections:
            renew = stack.enter_context(protected_chunks(shards, collection, as_of))
            renewals = periodically(
                renew, RENEWAL_S, name=f"hold {collection}", warning="cannot renew a hold"
            )
            stack.enter_context(renewals)
        yield


def ranges_of(task: Materialization) -> int:
    """Into how many key ranges a task is divided."""
    stated = None if task.backfill is None else task.backfill.ranges
    return stated or max(task.shards, RANGES)
