"""Sessions that take key ranges over, as the rows of a table decide it."""

from dataclasses import replace

from connectors.sql.fence import DividedRange, FencedRange, take_over
from tests.support.datadriven import Case


class FenceScript:
    """`open`, `commit` and `rows`; a session is known by its name, which is its nonce too."""

    def __init__(self) -> None:
        self.rows: list[FencedRange] = []
        self.nonces: dict[tuple[int, int], str] = {}
        self.sessions: dict[str, FencedRange] = {}
        self.parts: dict[str, list[tuple[int, int]]] = {}

    def handle(self, case: Case) -> str:
        match case.directive:
            case "new":
                self.rows, self.nonces, self.sessions, self.parts = [], {}, {}, {}
                return ""
            case "open":
                apart = case.get("apart") == "yes"
                return self.open(case["name"], *bounds(case["range"]), may_be_apart=apart)
            case "commit":
                return self.commit(case["name"], case["checkpoint"].encode())
            case _:
                return "\n".join(map(shown, self.rows))

    def open(self, name: str, begin: int, end: int, *, may_be_apart: bool) -> str:
        try:
            takeover = take_over(self.rows, begin, end, may_be_apart=may_be_apart)
        except DividedRange as error:
            return f"refused: {error}"
        self.rows = [
            replace(row, fence=row.fence + row.overlaps(begin, end))
            for row in self.rows
            if row.range not in takeover.deletes
        ]
        self.rows += [*takeover.parts, takeover.row]
        self.nonces = {row.range: self.nonces.get(row.range, "") for row in self.rows}
        self.nonces |= dict.fromkeys((part.range for part in takeover.parts), "")
        self.nonces[takeover.row.range] = name
        self.sessions[name] = takeover.row
        self.parts[name] = [part.range for part in takeover.parts]
        return "\n".join(map(shown, (*takeover.parts, takeover.row)))

    def commit(self, name: str, checkpoint: bytes) -> str:
        """The guard of a commit: the row is still the session's. Rows of its parts go."""
        mine = self.sessions[name]
        rows = [(row.range, row.fence, self.nonces[row.range]) for row in self.rows]
        if (mine.range, mine.fence, name) not in rows:
            return "fenced"
        index = rows.index((mine.range, mine.fence, name))
        self.rows[index] = replace(self.rows[index], checkpoint=checkpoint)
        parts = self.parts.pop(name, ())
        self.rows = [row for row in self.rows if row.range not in parts]
        return "committed"


def bounds(text: str) -> tuple[int, int]:
    """`0-7`: one hexadecimal digit stands for the upper four bits."""
    begin, end = text.split("-")
    return int(begin, 16) << 28, (int(end, 16) << 28) | 0x0FFFFFFF


def shown(row: FencedRange) -> str:
    text = row.checkpoint.hex() if row.checkpoint[:1] == b"\xf8" else row.checkpoint.decode()
    text = text or "none"
    begin, end = row.key_begin >> 28, row.key_end >> 28
    return f"{begin:x}-{end:x} fence={row.fence} opened={row.opened} checkpoint={text}"
