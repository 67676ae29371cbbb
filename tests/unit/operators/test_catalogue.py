"""That the sweep over DuckDB's catalogue reaches every function, and finds what is wrong."""

import random
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest

from streams.bench.sql.columns import COLUMNS
from tests.catalogue.candidates import PARTNERS, Candidate, candidates, covering, known
from tests.catalogue.oracle import Answer, Oracle, Unanswered
from tests.catalogue.sweep import Sweep
from tests.catalogue.verdict import Verdict
from tests.support.plan_tables import as_text, connect, in_arrow

INTERNAL = (
    "inequal num bindings", "failed to cast expression", "INTERNAL Error",
    "Could not retrieve required statistics", "ArrowNotImplementedError", "IndexError",
    "KeyError", "AssertionError",
)  # fmt: skip
"""What DuckDB and Python call a defect of theirs or ours."""

RIGHT = [
    Candidate("numeric", "+", "(x_i + y_i)"),  # overflows in some rows
    Candidate("list", "list_sort", "list_sort(x_ld)"),
    Candidate("string", "upper", "upper(x_s)"),
    Candidate("cast", "INTERVAL", "CAST(x_iv AS VARCHAR)"),
    Candidate("blob", "from_hex", "from_hex(x_s)"),
    Candidate("aggregate", "sum", "sum(x_i)", "group"),
    Candidate("aggregate", "list", "list(x_st ORDER BY id)", "group"),
    Candidate("key", "group", "SELECT x_sd AS c, count(*) AS n FROM every GROUP BY 1", "query"),
]


def test_each_function_and_each_type_is_tried() -> None:
    oracle = Oracle()
    assert {candidate.function for candidate in _all()} >= {
        signature.name for signature in known(oracle.connection)
    }
    assert {"key", "window", "cast", "try_cast"} <= {candidate.family for candidate in _all()}


def test_a_covering_sweep_has_each_type_at_each_place_beside_two_others() -> None:
    binds = cache(Oracle().binds)
    calls = [
        candidate
        for candidate in _all()
        if candidate.function in {"arg_min", "max_by", "list_concat"}
    ]
    chosen = list(covering(calls, binds))
    assert len(chosen) < len(calls) / 2
    assert chosen == list(covering(calls, binds))
    for form in ("arg_min({}, {} ORDER BY id)", "max_by({}, {}, {} ORDER BY id)"):
        pattern = re.compile(re.escape(form).replace(r"\{\}", r"([xy]_\w+|2)"))
        arguments = [
            match.groups()
            for candidate in chosen
            if (match := pattern.fullmatch(candidate.text))
        ]
        for place, other in ((0, 1), (1, 0)):
            beside = defaultdict[str, set[str]](set)
            for call in arguments:
                beside[call[place][2:]].add(call[other])
            assert all(len(beside[name]) >= PARTNERS for name in COLUMNS)


def test_a_covering_sweep_leaves_out_no_cast_key_or_window() -> None:
    others = [
        candidate for candidate in _all() if candidate.family in {"cast", "key", "window"}
    ]
    assert list(covering(others, lambda candidate: False)) == others


def test_what_duckdb_agrees_with_is_right() -> None:
    sweep = Sweep()
    words = {one: verdict.word for one, verdict in sweep.run(RIGHT)}
    assert words == dict.fromkeys(RIGHT, "right")
    assert sum(sweep.counts.values()) == len(RIGHT)


UNIONS = [
    Candidate("union", "IS NULL", "(x_un IS NULL)"),
    Candidate("union", "union_tag", "union_tag(x_us)"),
    Candidate("union", "list", "list(x_lu ORDER BY id)", "group"),
    Candidate("key", "group", "SELECT x_un AS c, count(*) AS n FROM every GROUP BY 1", "query"),
    Candidate("key", "distinct", "SELECT DISTINCT x_su AS c FROM every", "query"),
    Candidate(
        "window", "lag", "SELECT id, lag(x_un) OVER (ORDER BY id) AS c FROM every", "query"
    ),
]
"""What a union that is NULL answers otherwise than one whose member is NULL."""


def test_a_union_of_which_a_member_is_null_reaches_the_view_as_it_is() -> None:
    sweep = Sweep()
    words = {one: verdict.word for one, verdict in sweep.run(UNIONS)}
    assert words == dict.fromkeys(UNIONS, "right")


def test_joins_that_order_unions_as_no_expression_does_are_undetermined() -> None:
    text = "SELECT a.id, b.id AS other FROM every a JOIN every b ON a.x_un < b.y_un"
    ((_, verdict),) = Sweep().run([Candidate("key", "less join", text, "query")])
    assert verdict.word == "undetermined"


LONG_INTERVALS = [
    Candidate("temporal", "to_hours", "to_hours(x_i)"),  # 2147483647 hours, and -2147483648
    Candidate("temporal", "list_value", "[to_hours(x_i), NULL]"),
    Candidate("aggregate", "max", "max(to_hours(x_i))", "group"),
    Candidate("key", "in order", "SELECT id, to_hours(x_i) AS c FROM every", "query"),
]
"""DuckDB has them, Arrow has no room for them."""


def test_intervals_for_which_arrow_has_no_room_are_failures() -> None:
    oracle, sweep = Oracle(), Sweep()
    assert all(oracle.answer(candidate).fails for candidate in LONG_INTERVALS)
    words = {one: verdict.word for one, verdict in sweep.run(LONG_INTERVALS)}
    assert words == dict.fromkeys(LONG_INTERVALS, "right")


@pytest.mark.parametrize("type_", ["UNION(n INTEGER, t VARCHAR)", "UNION(n INTEGER)[]"])
def test_a_null_is_told_from_a_member_that_is_null(type_: str) -> None:
    connection = connect()
    connection.execute(f"CREATE TABLE t (u {type_})")
    member = "union_value(n := NULL::INTEGER)"
    for value in ("NULL", member):
        value_of = f"[{value}]" if type_.endswith("[]") else value
        connection.execute(f"INSERT INTO t VALUES ({value_of})")
    texts = connection.execute(f"SELECT {as_text('u', type_)} FROM t").fetchall()
    assert len(set(texts)) == len(texts)
    rows = in_arrow(connection, "t", "rowid")["u"].to_pylist()
    assert rows[0] != rows[1]


@pytest.mark.parametrize("which", [0, 1], ids=["the even ones", "the odd ones"])
def test_other_answers_are_found_among_right_ones(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, wrong = Oracle.answer, RIGHT[which::2]

    def answer(oracle: Oracle, candidate: Candidate) -> Answer:
        verdict = own(oracle, candidate)
        if candidate not in wrong:
            return verdict
        if verdict.rows:
            return replace(verdict, rows=(verdict.rows[0], *verdict.rows[:-1]))
        place = min(place for place, cell in verdict.cells.items() if cell is not None)
        return replace(verdict, cells=verdict.cells | {place: ("another",)})

    def unanswered(oracle: Oracle, candidate: Candidate) -> Answer:
        raise Unanswered("what is planted is not what a constant has")

    monkeypatch.setattr(Oracle, "answer", answer)
    monkeypatch.setattr(Oracle, "with_constants", unanswered)
    sweep = Sweep()
    words = {one: verdict.word for one, verdict in sweep.run(RIGHT)}
    assert words == dict.fromkeys(RIGHT, "right") | dict.fromkeys(wrong, "WRONG")


def test_refusals_and_what_duckdb_does_not_bind_are_counted() -> None:
    sweep = Sweep()
    cases = [
        Candidate("aggregate", "approx_quantile", "approx_quantile(x_i, 0.5)", "group"),
        Candidate("numeric", "abs", "abs(x_s)"),
    ]
    (result,) = sweep.run(cases)
    assert result[1].word == "refused"
    assert "approx_quantile" in result[1].why
    assert sweep.counts == {("aggregate", "refused"): 1, ("numeric", "unanswered"): 1}
    assert "        0             1" in sweep.table()[-1]


SAMPLE = 32
PARTS = 16


@cache
def _all() -> list[Candidate]:
    return list(dict.fromkeys(candidates(connect())))


def test_a_sample_of_the_catalogue_is_right_or_refused_by_name() -> None:
    problems = _wrong(random.Random(5).sample(_all(), SAMPLE))
    assert problems == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_all_of_the_catalogue_is_right_or_refused_by_name(part: int) -> None:
    """Hours, all together: `python -m tests.catalogue` says what has been seen so far."""
    assert _wrong(_all()[part::PARTS]) == []


def _wrong(asked: list[Candidate]) -> list[tuple[str, str]]:
    """What is neither right nor refused by name; how long it takes is the machine's affair."""
    sweep = Sweep()
    problems = [
        (candidate.text, verdict.why)
        for candidate, verdict in sweep.run(asked)
        if verdict.word in {"WRONG", "INTERNAL"} or _is_nameless(verdict)
    ]
    assert sum(sweep.counts.values()) == len(asked)
    return problems


def _is_nameless(verdict: Verdict) -> bool:
    """Whether a refusal says something of the engine, and nothing of the query."""
    return verdict.word == "refused" and any(text in verdict.why for text in INTERNAL)
