"""Dead letters as the coordinator's SQL answers them: queries and rows. Pure.

Bytes travel as base64: a value of the wire is text. Headers of messages are in no letter.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from streams.app.printable import printable
from streams.app.topic.record_output import NOTHING, readable, word
from streams.compute.dead_letters import SUFFIX
from streams.compute.skipped_offsets import PREFIX
from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import Topic
from streams.kafka.client.transactions import OutRecord
from streams.plan.sql.select import Select
from streams.plan.sql.statements import parse
from streams.plan.type_names import quoted

_COLUMNS = 'topic, partition, "offset", time, base64(key), base64(value), reason'
_ORDER = 'topic, partition, "offset"'
_NOT_KEPT = re.compile(
    r"(?P<key>; the key, \d+ bytes, is not kept)?"
    r"(?P<value>; the value, \d+ bytes, is not kept)?$"
)
"""The end of a reason whose letter lacks bytes (`streams.replica.ingest.refusals`)."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that its source could not use: where it was, its bytes, and why."""

    topic: str
    partition: int
    offset: int
    time: str | None
    key: bytes | None
    value: bytes | None
    reason: str

    @property
    def place(self) -> str:
        """The message's place: TOPIC, PARTITION@OFFSET."""
        return f"{self.topic}, {self.partition}@{self.offset}"

    @property
    def is_message(self) -> bool:
        """Whether it is of one message: of messages that are never read there is a range."""
        return not self.reason.startswith(PREFIX)

    @property
    def is_whole(self) -> bool:
        """Whether both key and value are the message's: large ones are not kept."""
        end = _NOT_KEPT.search(self.reason)
        assert end is not None  # it may be empty
        lost_key = self.key is None and end["key"] is not None
        return not lost_key and not (self.value is None and end["value"] is not None)

    def as_object(self) -> dict[str, object]:
        """The letter for programs; bytes that are no text are `{"base64": ...}`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "time": self.time,
            "key": readable(self.key),
            "value": readable(self.value),
            "reason": self.reason,
        }

    def as_line(self) -> str:
        """The letter for people: its place, time, key, value and reason."""
        key, value = word(readable(self.key)), word(readable(self.value))
        place = f"{self.partition}@{self.offset}"
        return f"{place}  {moment(self.time)}  {key}  {value}\n  {printable(self.reason)}"


def letter(row: Sequence[object]) -> Letter:
    """The letter in a row of `query`."""
    topic, partition, offset, time, key, value, reason = row
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    told = None if time is None else str(time)
    return Letter(str(topic), partition, offset, told, _bytes(key), _bytes(value), str(reason))


def _bytes(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text), validate=True)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters: of a partition, an offset, from a time on, by a condition of SQL."""

    partition: int | None = None
    offset: int | None = None
    since: datetime | None = None
    where: str = ""
    limit: int | None = None

    def query(self, source: str) -> str:
        """The SELECT of the source's letters, in the order of their places.

        Errors: InvalidUsage for a condition that is none.
        """
        conditions = [
            *([] if self.partition is None else [f"partition = {self.partition}"]),
            *([] if self.offset is None else [f'"offset" = {self.offset}']),
            *([] if self.since is None else [_since(self.since)]),
            *([f"(\n{self.where}\n)"] if self.where else []),  # it may end with a comment
        ]
        text = f"SELECT {_COLUMNS} FROM {relation(source)}"
        text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        text += f" ORDER BY {_ORDER}"
        text += "" if self.limit is None else f" LIMIT {self.limit}"
        _expect_one(text, self.where)
        return text


def _expect_one(text: str, where: str) -> None:
    """Errors: InvalidUsage if a condition makes more of the text than one SELECT."""
    try:
        statements = parse(text)
    except InvalidStatement as error:
        raise InvalidUsage(f"--where: expected a condition of SQL, actual {where!r}") from error
    if len(statements) != 1 or not isinstance(statements[0], Select):
        raise InvalidUsage(f"--where: expected one condition of SQL, actual {where!r}")


def _since(time: datetime) -> str:
    """The condition that a letter came since; one that tells no time may have."""
    utc = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    return f"(time IS NULL OR time >= TIMESTAMP '{utc:%Y-%m-%d %H:%M:%S.%f}')"


def relation(source: str) -> str:
    """The name of a source's dead letters in SQL."""
    return f"{quoted(source)}{SUFFIX}"


def records(letters: Sequence[Letter], to: Topic | None) -> list[OutRecord]:
    """The messages again: to a topic, by their keys, or each to the partition it was in.

    Expects letters that are messages. Errors: InvalidUsage, naming the first letter that lacks
    bytes.
    """
    broken = [letter for letter in letters if not letter.is_whole]
    if broken:
        raise InvalidUsage(
            f"{len(broken):,} of {len(letters):,} dead letters cannot be replayed, since not"
            f" all of their bytes are kept; the first is {broken[0].place}: {broken[0].reason}."
            " Leave them out with --where \"reason NOT LIKE '% bytes, is not kept'\""
        )
    if to is not None:
        return [OutRecord(to, letter.key, letter.value) for letter in letters]
    return [
        OutRecord(Topic(letter.topic), letter.key, letter.value, partition=letter.partition)
        for letter in letters
    ]


def summary(letters: Sequence[Letter]) -> list[Mapping[str, object]]:
    """For each partition the number of letters, with the first and last offset.

    Expects them in the order of their places.
    """
    places: dict[tuple[str, int], list[Letter]] = {}
    for letter in letters:
        places.setdefault((letter.topic, letter.partition), []).append(letter)
    return [
        {
            "topic": topic,
            "partition": partition,
            "letters": len(some),
            "first_offset": some[0].offset,
            "last_offset": some[-1].offset,
        }
        for (topic, partition), some in places.items()
    ]


def moment(text: object) -> str:
    """A time for people; a dash if there is none."""
    return NOTHING if text is None else str(text)
