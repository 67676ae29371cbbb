"""The events of a dataflow in a replica, and the effects that it requests.

`Event` is the input of `Dataflow.step` (`streams.replica.driver.dataflow`), `Effect` its output
beside the next dataflow. The end of an attempt to append is an event as well
(`streams.replica.driver.append_attempt`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.ids import CollectionId, Offset
from streams.progress import Antichain
from streams.replica.driver.dataflow_state import Build, OwnState, Record
from streams.replica.driver.retry_policy import Failure

# Work begins and ends


@dataclass(frozen=True, slots=True)
class Taken:
    """A micro-batch, an idle append or a recovery of it begins.

    `read_from` maps each import to the offset of its log at which the micro-batch was planned;
    None leaves it. `alone` is the number of the micro-batch if it has the dataflow alone.
    """

    read_from: Mapping[CollectionId, Offset] | None = None
    alone: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The work has ended, however it ended."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The tasks of its step took so many milliseconds of worker time."""

    milliseconds: float


@dataclass(frozen=True, slots=True)
class Waits:
    """It cannot step before the uppers of these imports move."""

    imports: tuple[CollectionId, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Nobody reads its export before this time any more."""

    since: Antichain


@dataclass(frozen=True, slots=True)
class Dropped:
    """The controller has dropped it."""


# Recovery


@dataclass(frozen=True, slots=True)
class Known:
    """These are the records that may be used."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Its state is this."""

    own: OwnState


@dataclass(frozen=True, slots=True)
class Hydrates:
    """Its state is built from nothing, or further from where a build stands; `own` is empty."""

    own: OwnState
    build: Build


@dataclass(frozen=True, slots=True)
class Restarted:
    """Its state is useless: it is looked up again, as after a restart of the process."""


# A source decides


@dataclass(frozen=True, slots=True)
class Followed:
    """A source's state moves to another position without any work."""

    own: OwnState


@dataclass(frozen=True, slots=True)
class Divided:
    """A source has more work than fits in one micro-batch."""

    build: Build


# An attempt to append ends


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step or an idle interval counts."""

    own: OwnState


@dataclass(frozen=True, slots=True)
class Sliced:
    """A slice counts that is not the last one."""

    build: Build


@dataclass(frozen=True, slots=True)
class Built:
    """The last slice of a build counts."""

    build: Build


@dataclass(frozen=True, slots=True)
class Void:
    """Another writer was faster with other updates, or an awaited attempt did not count."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another version of the dataflow has written the shard last (rule 24)."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """A collector may have taken its chunks: the step is repeated (rule 7)."""


@dataclass(frozen=True, slots=True)
class Unstaged:
    """Some staged chunks are gone, or are there twice: the build starts over."""


# Failures and records


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure of this dataflow; `for_good` if no retry can help."""

    failure: Failure
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class BatchLost:
    """Its micro-batch was lost as a whole."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of its state was written; `upper` is that of its shard, None if not known."""

    record: Record
    upper: Antichain | None


Occupation = Taken | Released | Ran | Waits | Compacted | Dropped
"""Events about time, not state."""

Discovery = Known | Recovered | Hydrates | Followed | Divided
"""Events about the location of its state."""

Counted = Stepped | Sliced | Built

End = Counted | Void | Superseded | Reclaimed | Unstaged | Failed
"""The ends of an attempt to append; a failure may occur without one."""

Event = Occupation | Discovery | End | BatchLost | Restarted | Recorded


@dataclass(frozen=True, slots=True)
class Ring:
    """Wake those who wait for work."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete everything that is stored of it."""


@dataclass(frozen=True, slots=True)
class ForgetBuild:
    """Delete the stored progress of its build."""


@dataclass(frozen=True, slots=True)
class ForgetRecords:
    """Delete these records, and the progress of a finished build; no restart needs them."""

    records: tuple[Record, ...]
    build: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """Log a line about it, at a level of `logging`."""

    level: int
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)


Effect = Ring | Forget | ForgetBuild | ForgetRecords | Log
