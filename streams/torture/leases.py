"""Checks whether a lease was honoured, using only the log's clock.

    renewed between `before` and `after`      what the holder had folded around the command
    it ends between before + lease and after + lease

So a refusal is wrong while the log's clock is below before + lease, and a use of the lease is
wrong if the clock had passed after + lease before it was sent.
"""

from dataclasses import dataclass, field

from streams.storage import Storage
from streams.torture.journal import Wrong


@dataclass(slots=True)
class Lease:
    """One capability's lease, watched by its holder through one client."""

    who: str
    storage: Storage
    group: str
    lease_ms: int
    before: int = field(init=False)
    after: int = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.after = self.clock()

    def clock(self) -> int:
        """The log's clock, up to the last folded record."""
        return self.storage.shards.group_state(self.group).clock_ms

    def renewed(self, sent_at: int) -> None:
        """A command that renews was carried out; the clock stood at `sent_at` before it."""
        self.before, self.after = sent_at, self.clock()

    def perhaps_renewed(self) -> None:
        """A command that renews only when half of the lease is over was carried out."""
        self.after = self.clock()

    def too_late(self, sent_at: int) -> Wrong | None:
        """The violation if a command that is sent now is honoured; None if it may be."""
        late = sent_at - self.after - self.lease_ms
        if late < 0:
            return None
        return Wrong(self.who, f"a lease of {self.group} was honoured {late} ms after its end")

    def refused(self) -> Wrong | None:
        """The capability was refused: whether it should not have been."""
        self.storage.shards.sync_group(self.group)
        early = self.before + self.lease_ms - self.clock()
        if early <= 0:
            return None
        return Wrong(self.who, f"a lease of {self.group} was refused {early} ms before its end")
