"""The command line: maintain every function of DuckDB's catalogue, and compare.

Prints each candidate that is wrong or fails internally, and a table by family. The exit code is
0 if there is none and 1 if there are some.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.catalogue.candidates import candidates, covering
from tests.catalogue.sweep import Sweep


def main() -> int:
    """Run what the command line asks for."""
    arguments = _arguments().parse_args()
    sweep = Sweep()
    if arguments.seconds:
        sweep.stop_at = time.monotonic() + arguments.seconds
    chosen = [
        candidate
        for candidate in candidates(sweep.oracle.connection)
        if (not arguments.family or candidate.family in arguments.family)
        and (not arguments.function or candidate.function in arguments.function)
    ]
    if arguments.covering:
        chosen = list(covering(chosen, sweep.oracle.binds))
    defects = 0
    with Path(arguments.log).open("w") as log:
        for candidate, verdict in sweep.run(chosen):
            parts = [verdict.word, candidate.family, candidate.function, candidate.text]
            log.write("\t".join([*parts, verdict.why]) + "\n")
            log.flush()
            defects += verdict.word in {"WRONG", "INTERNAL", "slow"}
    sys.stdout.write("\n".join([*sweep.table(), ""]))
    return 1 if defects else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.catalogue", description=__doc__)
    parser.add_argument("--family", nargs="*", default=[], help="all if nothing is said")
    parser.add_argument("--function", nargs="*", default=[], help="by the catalogue's name")
    parser.add_argument(
        "--covering",
        action="store_true",
        help="of the calls, those that have each type at each place beside two others",
    )
    parser.add_argument("--seconds", type=float, default=0, help="for how long")
    parser.add_argument(
        "--log", default="catalogue.tsv", metavar="FILE", help="every verdict, a line each"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
