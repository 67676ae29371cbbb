"""The maintained view of some candidates against DuckDB's answers."""

import time
from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from streams.errors import InvalidStatement
from streams.plan.type_names import stored as stored_type
from streams.testing import Maintained, maintain
from streams.trace.kernel.unions import carried
from tests.catalogue.candidates import Candidate
from tests.catalogue.oracle import Answer, Oracle, Rows
from tests.catalogue.values import LAST, TYPES, updates
from tests.support.plan_tables import as_text, in_arrow

SLOW = 10.0
"""Seconds of processor time beyond which a view is slow: what else runs does not count."""
VERDICTS = ("right", "undetermined", "refused", "WRONG", "INTERNAL", "slow")
_QUERIES = {
    "row": "SELECT id, {} FROM every",
    "group": "SELECT g, {} FROM every GROUP BY g",
    "query": "{}",
}


@dataclass(frozen=True)
class Verdict:
    """What became of candidates: one of VERDICTS, and the reason."""

    word: str
    why: str = ""


def judge(oracle: Oracle, asked: list[tuple[Candidate, Answer]]) -> Verdict:
    """The verdict on a view of all the candidates, which are of one shape."""
    begun = time.process_time()
    try:
        view = _view(oracle, [candidate for candidate, _ in asked])
    except InvalidStatement as refusal:
        return Verdict("refused", _line(refusal))
    except Exception as error:  # noqa: BLE001 - whatever else the engine raises is a defect
        return Verdict("INTERNAL", f"{type(error).__name__}: {_line(error)}")
    why = _difference(oracle, asked, view)
    if why:
        return Verdict("WRONG", why)
    taken = time.process_time() - begun
    return Verdict("slow", f"{taken:.0f} s") if taken > SLOW else Verdict("right")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _view(oracle: Oracle, asked: list[Candidate]) -> Maintained:
    names = sorted({name for candidate in asked for name in candidate.columns})
    definition = "".join(f", {name} {TYPES[name[2:]][0]}" for name in names)
    query = asked[0].text
    if asked[0].shape != "query":
        listed = ", ".join(f"{each.text} AS c{place}" for place, each in enumerate(asked))
        query = _QUERIES[asked[0].shape].format(listed)
    kept = in_arrow(oracle.connection, "kept", "id").select(["id", "g", *names])
    return maintain(
        query,
        {"every": f"id INTEGER, g INTEGER{definition}"},
        {"every": updates(kept, oracle.changes)},
        list(range(1, LAST + 2)),
    )


def _difference(oracle: Oracle, asked: list[tuple[Candidate, Answer]], view: Maintained) -> str:
    """What is not as DuckDB says; nothing if all is."""
    types = [column.type for column in view.columns]
    shape = asked[0][0].shape
    answers = [answer for _, answer in asked]
    own = types if shape == "query" else types[1:]
    wanted = [type_ for answer in answers for type_ in answer.types]
    stored = list(map(stored_type, wanted))
    if own != stored:
        return f"types: the view has {own}, DuckDB {stored}"
    try:
        histories = _contents(oracle.connection, view, types, exact=shape == "row")
    except duckdb.Error as error:
        return f"unreadable: {_line(error)}"
    for at in range(view.since, view.upper):
        want, fails = _wanted(oracle, shape, answers, at)
        got, errors = histories[at], view.errors_at(at)
        if errors and shape == "group":
            got = _beside_errors(got, answers, at)
        if fails and errors and shape == "query":
            continue
        if got != want or fails != bool(errors):
            extra, lacking = list((got - want).elements()), list((want - got).elements())
            return f"at {at}: view {extra[:2]}, DuckDB {lacking[:2]}, errors {errors[:1]}"
    return ""


def _beside_errors(got: Rows, answers: list[Answer], at: int) -> Rows:
    """The rows of groups that do not fail: of others a view may have what is left."""
    failed = {
        str(group)
        for answer in answers
        for (group, time_), cell in answer.cells.items()
        if time_ == at and cell is None
    }
    return Counter({row: count for row, count in got.items() if row[0] not in failed})


def _wanted(oracle: Oracle, shape: str, answers: list[Answer], at: int) -> tuple[Rows, bool]:
    """DuckDB's rows at a time but those that fail, and whether some do."""
    if shape == "query":
        return answers[0].rows[at]
    live = oracle.changes.at(at)
    counts = live if shape == "row" else Counter({row % 3 for row in live})
    rows: Rows = Counter()
    fails = False
    for place, count in counts.items():
        cells = [answer.cells[place, 0 if shape == "row" else at] for answer in answers]
        if None in cells:
            fails = True
        else:
            rows[(str(place), *(cell for each in cells if each for cell in each))] += count
    return rows, fails


def _contents(
    connection: duckdb.DuckDBPyConnection, view: Maintained, types: list[str], *, exact: bool
) -> list[Rows]:
    """The view's rows, as text, at each time from 0 on."""
    connection.register("changes", pa.Table.from_batches([view._updates]))
    listed = [(f"c{place}", carried(type_)) for place, type_ in enumerate(types)]
    casts = [
        f"CAST(CAST({column} AS {kind}) AS VARCHAR)"
        if exact
        else as_text(f"CAST({column} AS {kind})", kind)
        for column, kind in listed
    ]
    found = connection.execute(f"SELECT time, diff, {', '.join(casts)} FROM changes").fetchall()
    histories = []
    for time_ in range(view.upper):
        rows: Rows = Counter()
        for at, diff, *row in found:
            if at <= time_:
                rows[tuple(map(str, row))] += diff
        histories.append(Counter({row: count for row, count in rows.items() if count}))
    return histories
