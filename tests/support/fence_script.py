"""Sessions that take key ranges over, as the rows of a table decide it."""

from dataclasses import replace

from connectors.sql.fence import DividedRange, Held, take_over
from tests.support.datadriven import Case


class FenceScript:
    """`open`, `commit` and `rows`; a session is known by its name."""

    def __init__(self) -> None:
        self.rows: list[Held] = []
        self.sessions: dict[str, Held] = {}

    def handle(self, case: Case) -> str:
        match case.directive:
            case "new":
                self.rows, self.sessions = [], {}
                return ""
            case "open":
                return self.open(case["name"], *bounds(case["range"]))
            case "commit":
                return self.commit(case["name"], case["checkpoint"].encode())
            case _:
                return "\n".join(map(shown, self.rows))

    def open(self, name: str, begin: int, end: int) -> str:
        try:
            taken = take_over(self.rows, begin, end)
        except DividedRange as error:
            return f"refused: {error}"
        self.rows = [
            replace(row, fence=row.fence + 1)
            if row.key_begin <= end and row.key_end >= begin
            else row
            for row in self.rows
            if (row.key_begin, row.key_end) != (begin, end)
        ]
        row = Held(
            key_begin=begin,
            key_end=end,
            fence=taken.fence,
            opened=taken.opened,
            checkpoint=taken.checkpoint,
        )
        self.rows.append(row)
        self.sessions[name] = row
        return shown(row)

    def commit(self, name: str, checkpoint: bytes) -> str:
        """The guard of a commit: the row is still the session's."""
        mine = self.sessions[name]
        known = [(row.key_begin, row.key_end, row.fence) for row in self.rows]
        if (mine.key_begin, mine.key_end, mine.fence) not in known:
            return "fenced"
        index = known.index((mine.key_begin, mine.key_end, mine.fence))
        self.rows[index] = replace(self.rows[index], checkpoint=checkpoint)
        return "committed"


def bounds(text: str) -> tuple[int, int]:
    """`0-7`: one hexadecimal digit stands for the upper four bits."""
    begin, end = text.split("-")
    return int(begin, 16) << 28, (int(end, 16) << 28) | 0x0FFFFFFF


def shown(row: Held) -> str:
    text = row.checkpoint.hex() if row.checkpoint[:1] == b"\xf8" else row.checkpoint.decode()
    begin, end = row.key_begin >> 28, row.key_end >> 28
    return f"{begin:x}-{end:x} fence={row.fence} opened={row.opened} checkpoint={text}"
