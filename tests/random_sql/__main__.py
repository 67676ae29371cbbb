"""The command line: search for a view that DuckDB does not agree with.

Writes the script of each failure, shrunk, and says what the cases used. The exit code is 0 if
none failed and 1 if some did.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from tests.random_sql.search import Failure, Search

_MANY = 10**9


def main() -> int:
    """Run what the command line asks for."""
    arguments = _arguments().parse_args()
    keep = Path(arguments.keep)
    with Progress("random SQL", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        many = arguments.cases or (_MANY if arguments.seconds else 1000)
        task = bar.add_task("", total=None if many == _MANY else many)
        search = Search(arguments.engine, tick=lambda: bar.advance(task))
        if arguments.seconds:
            search.stop_at = time.monotonic() + arguments.seconds
        failures = 0
        for failure in search.run(arguments.seed, many):
            failures += 1
            bar.console.print(f"wrote {write(keep, failure)}", markup=False)
    summary = f"seeds from {arguments.seed}, engine {arguments.engine}: {failures} failures"
    sys.stdout.write("\n".join([*search.coverage.lines(), summary, ""]))
    return 1 if failures else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.random_sql", description=__doc__)
    parser.add_argument(
        "--cases", type=int, default=0, help="how many; 1000 if nothing is said"
    )
    parser.add_argument("--seconds", type=float, default=0, help="for how long")
    parser.add_argument("--seed", type=int, default=1, help="of the first hundred cases")
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--keep", default=".", metavar="DIRECTORY", help="where scripts go")
    return parser


def write(directory: Path, failure: Failure) -> Path:
    """The script of a failure, with what was wrong as its comment."""
    directory.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in directory.glob("random-*.txt")) + 1
    path = directory / f"random-{number}.txt"
    message = f"{type(failure.error).__name__}: {failure.error}"
    wrong = "\n".join(f"# {line}" for line in message.splitlines() if line)
    how = f"# cuts {failure.case.cuts}, {failure.case.buckets} buckets"
    path.write_text(f"{wrong}\n{how}\n{failure.case.script()}\n----\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
