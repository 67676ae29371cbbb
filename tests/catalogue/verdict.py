"""The maintained view of some candidates against DuckDB's answers."""

import time
from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from streams.errors import InvalidStatement
from streams.plan.type_names import stored_type
from streams.testing import Maintained, maintain
from streams.trace.kernel.unions import carrier_type
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


def judge(oracle: Oracle, answered: list[tuple[Candidate, Answer]]) -> Verdict:
    """The verdict on a view of all the candidates, which are of one shape."""
    begun = time.process_time()
    try:
        view = _view(oracle, [candidate for candidate, _ in answered])
    except InvalidStatement as refusal:
        return Verdict("refused", _line(refusal))
    except Exception as error:  # noqa: BLE001 - whatever else the engine raises is a defect
        return Verdict("INTERNAL", f"{type(error).__name__}: {_line(error)}")
    why = _difference(oracle, answered, view)
    if why:
        return Verdict("WRONG", why)
    cpu_s = time.process_time() - begun
    return Verdict("slow", f"{cpu_s:.0f} s") if cpu_s > SLOW else Verdict("right")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _view(oracle: Oracle, candidates: list[Candidate]) -> Maintained:
    names = sorted({name for candidate in candidates for name in candidate.columns})
    definition = "".join(f", {name} {TYPES[name[2:]][0]}" for name in names)
    query = candidates[0].text
    if candidates[0].shape != "query":
        listed = ", ".join(
            f"{candidate.text} AS c{place}" for place, candidate in enumerate(candidates)
        )
        query = _QUERIES[candidates[0].shape].format(listed)
    reference = in_arrow(oracle.connection, "kept", "id").select(["id", "g", *names])
    return maintain(
        query,
        {"every": f"id INTEGER, g INTEGER{definition}"},
        {"every": updates(reference, oracle.changes)},
        list(range(1, LAST + 2)),
    )


def _difference(
    oracle: Oracle, answered: list[tuple[Candidate, Answer]], view: Maintained
) -> str:
    """What is not as DuckDB says; nothing if all is."""
    types = [column.type for column in view.columns]
    shape = answered[0][0].shape
    answers = [answer for _, answer in answered]
    own = types if shape == "query" else types[1:]
    expected = [type_ for answer in answers for type_ in answer.types]
    stored = list(map(stored_type, expected))
    if own != stored:
        return f"types: the view has {own}, DuckDB {stored}"
    try:
        histories = _contents(oracle.connection, view, types, exact=shape == "row")
    except duckdb.Error as error:
        return f"unreadable: {_line(error)}"
    for at in range(view.since, view.upper):
        want, fails = _wanted(oracle, shape, answers, at)
        actual, errors = histories[at], view.errors_at(at)
        if errors and shape == "group":
            actual = _beside_errors(actual, answers, at)
        if fails and errors and shape == "query":
            continue
        if actual != want or fails != bool(errors):
            extra, lacking = list((actual - want).elements()), list((want - actual).elements())
            return f"at {at}: view {extra[:2]}, DuckDB {lacking[:2]}, errors {errors[:1]}"
    return ""


def _beside_errors(actual: Rows, answers: list[Answer], at: int) -> Rows:
    """The rows of groups that do not fail: of others a view may have what is left."""
    failed = {
        str(group)
        for answer in answers
        for (group, time_), cell in answer.cells.items()
        if time_ == at and cell is None
    }
    return Counter({row: count for row, count in actual.items() if row[0] not in failed})


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
            rows[(str(place), *(cell for part in cells if part for cell in part))] += count
    return rows, fails


def _contents(
    connection: duckdb.DuckDBPyConnection, view: Maintained, types: list[str], *, exact: bool
) -> list[Rows]:
    """The view's rows, as text, at each time from 0 on."""
    connection.register("changes", pa.Table.from_batches([view._updates]))
    listed = [(f"c{place}", carrier_type(type_)) for place, type_ in enumerate(types)]
    casts = [
        f"CAST(CAST({column} AS {kind}) AS VARCHAR)"
        if exact
        else as_text(f"CAST({column} AS {kind})", kind)
        for column, kind in listed
    ]
    fetched = connection.execute(
        f"SELECT time, diff, {', '.join(casts)} FROM changes"
    ).fetchall()
    histories = []
    for time_ in range(view.upper):
        rows: Rows = Counter()
        for at, diff, *row in fetched:
            if at <= time_:
                rows[tuple(map(str, row))] += diff
        histories.append(Counter({row: count for row, count in rows.items() if count}))
    return histories
