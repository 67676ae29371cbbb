"""`slackwater shard verify` and `repair`: finds faults in logs, and skips damaged records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streams.app.error_output import Refused
from streams.app.service_process import new_id
from streams.app.shard.attach import AttachedNamespace
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import EventId
from streams.storage.client.group import Group
from streams.storage.client.log_verification import Flaw, Verdict, skip, verify

SHOWN_BYTES = 24


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding about a group: a verdict, or why it cannot be read."""

    group: str
    verdict: Verdict | None
    failure: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict is not None and self.verdict.is_sound

    def lines(self) -> Iterator[str]:
        """The finding for people."""
        if self.verdict is None:
            yield f"{self.group}: cannot be read: {self.failure}"
            return
        verdict = self.verdict
        records = f"offsets {verdict.start} to {verdict.end - 1} agree with its rollups"
        yield f"{self.group}: {records if self.is_sound else counted(len(verdict.flaws))}"
        for event in verdict.skipped:
            yield f"  offset {event.offset} is skipped: {event.reason}"
        for flaw in verdict.flaws:
            yield f"  {described(flaw)}"
            if flaw.offset is not None:
                command = f"slackwater shard repair {self.group} --skip {flaw.offset}"
                yield f"    to skip it: {command}"

    def facts(self) -> Mapping[str, object]:
        """The finding for programs."""
        verdict = self.verdict
        if verdict is None:
            return {"group": self.group, "failure": self.failure}
        return {
            "group": self.group,
            "from": verdict.start,
            "to": verdict.end - 1,
            "skipped": [event.offset for event in verdict.skipped],
            "flaws": [{"offset": flaw.offset, "reason": flaw.reason} for flaw in verdict.flaws],
        }


def counted(flaws: int) -> str:
    """The number of flaws, for people."""
    return "1 flaw" if flaws == 1 else f"{flaws} flaws"


def described(flaw: Flaw) -> str:
    """A flaw in a line: where it is, what is wrong, and how the record begins."""
    if flaw.offset is None:
        return flaw.reason
    shown = flaw.value[:SHOWN_BYTES].hex(" ")
    record = f" ({len(flaw.value)} bytes: {shown})" if flaw.checksum is not None else ""
    return f"offset {flaw.offset}: {flaw.reason}{record}"


def findings(
    at: AttachedNamespace, groups: tuple[str, ...], *, with_chunks: bool
) -> Iterator[Finding]:
    """The findings about each named group, or group of a named collection, or about all."""
    for name in map(at.group_named, groups or at.groups()):
        try:
            yield Finding(name, verdict_of(at, name, with_chunks=with_chunks))
        except SlackwaterError as failure:
            yield Finding(name, None, str(failure))


def verdict_of(at: AttachedNamespace, name: str, *, with_chunks: bool) -> Verdict:
    """Check a group. Errors: Refused when there is none; as `verify`."""
    identity = at.shards.identity(name)
    if identity is None:
        names = ", ".join(at.groups()) or "none"
        raise Refused(f"group {name} does not exist", f"groups of {at.namespace}: {names}")
    group = Group(at.shards.names(name), topic_id=identity, uuid=identity)
    return verify(at.shards.logs, at.shards.chunks, group, with_chunks=with_chunks)


def repaired(
    at: AttachedNamespace, name: str, offset: int, reason: str, *, is_meant: bool
) -> str:
    """Have all readers pass over a record; what was done.

    Errors: Refused unless it `is_meant`; InvalidUsage when nothing is wrong there.
    """
    name = at.group_named(name)
    verdict = verdict_of(at, name, with_chunks=False)
    said = described(verdict.flaw_at(offset))
    if not is_meant:
        raise Refused(
            f"group {name}: {said}",
            "every reader of the log would skip it permanently, regardless of its content",
            "pass --yes to do it",
        )
    skip(at.shards.logs, verdict, offset, EventId(new_id()), reason or said)
    left = verdict_of(at, name, with_chunks=False)
    if any(flaw.offset == offset for flaw in left.flaws):
        raise InvalidUsage(f"group {name}: offset {offset} is not skipped: {said}")
    rest = f"; left: {counted(len(left.flaws))}" if left.flaws else ""
    return f"group {name}: skipped {said}{rest}"
