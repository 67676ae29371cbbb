"""A process that reads the bank's tables in PostgreSQL continuously, as a client would.

Each time it asks the bank's questions in one transaction of one snapshot, and two totals of two
tables as two statements. Run as `python -m streams.bench.consistency.reader CONFIG`; it ends
with its standard input, and then prints how often each check was looked at and was wrong.
"""

import json
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict

from connectors import postgres
from connectors.sql.dialect import Database
from streams.bench.consistency.bank import CHECKS
from streams.bench.consistency.subscription_check import Tally, tallies
from streams.errors import Determinate

SNAPSHOT = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
TWO_TOTALS = "credits beside debits"
TOTALS = ("SELECT sum(credits) FROM credits", "SELECT sum(debits) FROM debits")


def look(
    database: Database, checks: Mapping[str, str], tallies_by_check: Mapping[str, Tally]
) -> None:
    """One transaction: the two totals, then every check."""
    database.execute(SNAPSHOT)
    credit, debit = (next(iter(database.select(sql)))[0] for sql in TOTALS)
    tallies_by_check[TWO_TOTALS].note(holds=credit is not None and credit == debit)
    for name, sql in checks.items():
        (row,) = database.select(sql)
        tallies_by_check[name].note(holds=row[0] is True)
    database.execute("COMMIT")


def read(config: str, checks: Mapping[str, str]) -> Mapping[str, Tally]:
    """Look until standard input ends. Errors: Determinate."""
    tallies_by_check = tallies([TWO_TOTALS, *checks])
    with postgres.connect({}, postgres.Config.model_validate_json(config)) as database:
        look(database, checks, tallies_by_check)
        print("reading", flush=True)  # noqa: T201  the parent waits for this line
        while not select.select([sys.stdin], [], [], 0)[0]:
            look(database, checks, tallies_by_check)
    return tallies_by_check


class Reader:
    """The process, which reads once this is made. `checks` are names, by default all."""

    def __init__(self, config: Mapping[str, object], checks: tuple[str, ...] = ()) -> None:
        names = checks or tuple(CHECKS)
        command = [sys.executable, "-m", __name__, json.dumps(dict(config)), *names]
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> Mapping[str, Tally]:
        """Have it end; what it saw. Errors: Determinate if it could not go on."""
        answer, said = self._process.communicate()
        if self._process.returncode:
            raise Determinate(f"the reader of PostgreSQL could not go on: {said.decode()}")
        return {name: Tally(**tally) for name, tally in json.loads(answer).items()}

    def kill(self) -> None:
        """Have it end at once, whatever it saw."""
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    seen = read(sys.argv[1], {name: CHECKS[name] for name in sys.argv[2:]})
    print(json.dumps({name: asdict(tally) for name, tally in seen.items()}))  # noqa: T201  its answer
