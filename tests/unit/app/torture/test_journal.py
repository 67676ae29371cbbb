"""Journals: what is noted comes back, but for a line that was cut off."""

from contextlib import closing
from pathlib import Path

from streams.torture.journal import (
    Answer,
    Entry,
    Event,
    FileJournal,
    Followed,
    ReadResult,
    Share,
    Wrong,
    Wrote,
    line,
    parse,
    read_journal,
)

ROW = ("writer", 7)
ENTRIES: list[Entry] = [
    Wrote("1", (Share("c", "cap", 0, 5, ((ROW, 1, 1), (ROW, 3, -1))),)),
    Answer("1", counted=True),
    ReadResult("r", "c", 4, None, ((ROW, 2),)),
    ReadResult("r", "c", 4, 20, (), is_last=True),
    Followed("r", "c", 3, 9, None, ((ROW, 3, 1),)),
    Wrong("r", "a text with \n in it"),
    Event("r", "kills", 3),
]


def test_entries_come_back() -> None:
    assert [parse(line(entry)) for entry in ENTRIES] == ENTRIES


def test_a_journal_survives_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with closing(FileJournal(path)) as journal:
        for entry in ENTRIES:
            journal.note(entry)
    with closing(FileJournal(path)) as again:  # another incarnation goes on
        again.note(ENTRIES[0])
    with path.open("ab") as file:
        file.write(b'["Did",{"who":"r","wh')
    assert read_journal(path) == [*ENTRIES, ENTRIES[0]]
