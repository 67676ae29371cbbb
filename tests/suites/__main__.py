"""The command line: every query of a directory's scripts, a line of JSON for each.

The exit code is 1 if a view was wrong or failed by itself.
"""

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pyarrow as pa

from tests.suites.judge import SLOW, SuiteJudge, Verdict
from tests.suites.replay import Replay
from tests.suites.scripts import SUFFIXES, Statement, statements

LIMIT = 120
"""Seconds that one query may take, with DuckDB's answers."""


@dataclass
class Run:
    """A run over the scripts below a directory."""

    root: Path
    stop_at: float = float("inf")
    reads_tables: bool = False
    """Whether queries of constants alone are left out."""

    judge: SuiteJudge = field(default_factory=SuiteJudge)

    def script(self, path: Path) -> Iterator[dict[str, Any]]:
        """What became of each query that DuckDB answers; a repeated one is judged once."""
        replay, requests = Replay(), set[tuple[int, str]]()
        with suppress(OSError):  # a file that is included is not there
            for statement in statements(path, self.root):
                if time.monotonic() > self.stop_at:
                    return
                if not statement.is_query:
                    replay.carry_out(statement)
                    continue
                query = replay.own(statement.text)
                if (replay.version, query) not in requests:
                    requests.add((replay.version, query))
                    yield from self._told(statement, query, replay)

    def _told(
        self, statement: Statement, query: str, replay: Replay
    ) -> Iterator[dict[str, Any]]:
        signal.alarm(LIMIT)
        try:
            verdict = self._verdict(statement, query, replay)
        except TimeoutError:
            verdict = Verdict("slow", "", float(LIMIT))
        except (duckdb.Error, pa.ArrowException) as error:  # rows that Python cannot have
            verdict = Verdict("unanswered", str(error), 0.0)
        finally:
            signal.alarm(0)
        if verdict is None:
            return
        if verdict.word in {"slow", "BROKEN"}:
            self.judge = SuiteJudge()  # DuckDB takes no query after that
        yield {
            "file": statement.file,
            "line": statement.line,
            "word": verdict.word,
            "why": verdict.why,
            "seconds": round(verdict.seconds, 2),
            "query": query,
        }

    def _verdict(self, statement: Statement, query: str, replay: Replay) -> Verdict | None:
        if not replay.answers(query):
            return None
        tables = replay.tables(query)
        if self.reads_tables and not tables:
            return None
        return self.judge.verdict(query, tables, f"{statement.file}:{statement.line}")


def main() -> int:
    """Run what the command line asks for."""
    arguments = _arguments().parse_args()
    root, results = Path(arguments.directory).resolve(), Path(arguments.keep)
    part, parts = map(int, arguments.share.split("/"))
    done = _done(results)
    paths = [
        path
        for path in sorted(root.rglob("*"))
        if path.suffix in SUFFIXES and str(path.relative_to(root)) not in done
    ]
    signal.signal(signal.SIGALRM, _late)
    run = Run(root, reads_tables=arguments.tables)
    if arguments.seconds:
        run.stop_at = time.monotonic() + arguments.seconds
    with results.open("a", encoding="utf-8") as lines:
        for path in paths[part - 1 :: parts]:
            for result in run.script(path):
                lines.write(json.dumps(result) + "\n")
                lines.flush()
    words = Counter(result["word"] for result in _read(results))
    slow = sum(result["seconds"] > SLOW for result in _read(results))
    counted = [*words.most_common(), ("over 10 s", slow)]
    sys.stdout.write("".join(f"{word:14}{count:8,}\n" for word, count in counted))
    return 1 if words["WRONG"] or words["INTERNAL"] else 0


def _read(directory: Path) -> list[dict[str, Any]]:
    lines = directory.read_text(encoding="utf-8").splitlines() if directory.exists() else []
    return [json.loads(line) for line in lines]


def _done(directory: Path) -> set[Any]:
    """The files of which a run before this one has said something."""
    return {result["file"] for result in _read(directory)}


def _late(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=0, help="for how long")
    parser.add_argument("--share", default="1/1", help="which part of the files: 1/2, 2/2")
    parser.add_argument("--tables", action="store_true", help="only queries that read one")
    parser.add_argument("--keep", default="suite.jsonl", metavar="FILE", help="a line a query")
    return parser


if __name__ == "__main__":
    sys.exit(main())
