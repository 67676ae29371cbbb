"""An audit finds a view that is not what its query says, and nothing else."""

import json
import logging
from random import Random

import pytest

from streams.adapter.audits import random_time
from streams.adapter.results import Complete, Rows
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.log import Entry
from tests.support.coordinators import NOW, SINK, TOTALS, Environment, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

AMOUNTS = [((1, 0.1), NOW, 1), ((1, 0.2), NOW + 3, 1), ((2, 5.0), NOW + 4, 2)]
SUMS = [
    ((1, 0.1), NOW, 1),
    ((1, 0.1), NOW + 3, -1),
    ((1, 0.30000000000000004), NOW + 3, 1),
    ((2, 10.0), NOW + 4, 1),
]
UPPER = NOW + 10


def with_totals(env: Environment, view: str = TOTALS) -> FakeReplica:
    replica = with_orders(env)
    env.rows(view)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", UPPER, AMOUNTS)
    return replica


def verdicts(env: Environment) -> list[dict[str, object]]:
    topic = Topic("sw.audits")
    tail = env.broker.logs.tail({topic: Offset(0)})
    entries: tuple[Entry, ...] = tail.poll(0)
    tail.close()
    return [json.loads(entry.value) for entry in entries]


def test_a_view_that_is_what_its_query_says_is_right_at_every_time(env: Environment) -> None:
    with_totals(env).append("u2", UPPER, SUMS)
    for time, rows in [(NOW, 1), (NOW + 3, 1), (NOW + 4, 2), (UPPER - 1, 2)]:
        assert env.rows(f"AUDIT totals AS OF {time}") == [["totals", time, rows, 0, 0]]
    assert env.rows("AUDIT totals") == [["totals", UPPER - 1, 2, 0, 0]]
    counts = env.coordinator.audits.verdicts.counts
    assert (counts.right, counts.wrong, counts.observations) == (5, 0, 1 + 1 + 2 + 2 + 2)


@pytest.mark.parametrize(
    ("defect", "missing", "excess"),
    [
        (((2, 10.0), NOW + 5, -1), 1, 0),  # a row that was lost
        (((3, 1.0), NOW + 5, 1), 0, 1),  # one that came from nowhere
        (((1, 0.30000000000000004), NOW + 5, 1), 0, 1),  # a change that was counted twice
    ],
)
def test_a_planted_defect_is_found_from_its_time_on(
    env: Environment,
    caplog: pytest.LogCaptureFixture,
    defect: tuple[tuple[int, float], int, int],
    missing: int,
    excess: int,
) -> None:
    with_totals(env).append("u2", UPPER, [*SUMS, defect])
    assert env.rows(f"AUDIT totals AS OF {NOW + 4}") == [["totals", NOW + 4, 2, 0, 0]]
    assert not caplog.records
    wrong = ["totals", NOW + 5, 2, missing, excess]
    assert env.rows(f"AUDIT totals AS OF {NOW + 5}") == [wrong]
    (record,) = caplog.records
    assert (record.levelno, record.message) == (
        logging.ERROR,
        "a view is not what its query says",
    )
    assert [
        (verdict["time"], verdict["missing"], verdict["excess"]) for verdict in verdicts(env)
    ] == [(NOW + 4, 0, 0), (NOW + 5, missing, excess)]
    counts = env.coordinator.audits.verdicts.counts
    assert (counts.right, counts.wrong, counts.wrong_rows) == (1, 1, missing + excess)


def test_a_last_bit_of_a_sum_is_a_difference(env: Environment) -> None:
    with_totals(env).append(
        "u2", UPPER, [*SUMS[:2], ((1, 0.3), NOW + 3, 1), ((2, 10.0), NOW + 4, 1)]
    )
    assert env.rows("AUDIT totals") == [["totals", UPPER - 1, 2, 1, 1]]


def test_random_times_are_times_of_the_common_history(env: Environment) -> None:
    with_totals(env).append("u2", UPPER - 2, SUMS)
    times = [row[1] for row in env.rows("AUDIT totals TIMES 40")]
    assert len(times) == 40
    assert set(times) <= set(range(NOW, UPPER - 2))
    assert len(set(times)) > 3


def test_random_times_are_denser_towards_the_end() -> None:
    random = Random(1)
    times = [random_time(0, 1_000_000, random) for _ in range(2_000)]
    assert min(times) >= 0
    assert max(times) == 1_000_000
    recent = sum(time > 999_000 for time in times)
    assert 900 < recent < 1_100
    assert {random_time(7, 7, random) for _ in range(20)} == {7}


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ("SELECT id FROM orders ORDER BY amount LIMIT 1 -- the least", [((1,), NOW, 1)]),
        (
            "WITH MUTUALLY RECURSIVE r(n INT) AS (SELECT 1 UNION SELECT n + 1 FROM r"
            " WHERE n < 3) SELECT n FROM r",
            [((n,), NOW, 1) for n in (1, 2, 3)],
        ),
        (
            f"SELECT id FROM orders WHERE mz_now() < {NOW + 10} + id",
            [((1,), NOW, 1), ((1,), NOW + 3, 1), ((2,), NOW + 4, 2)],
        ),
        ("SELECT DISTINCT {'a': id, 'b': [amount]} AS s FROM orders WHERE id = 2", None),
    ],
)
def test_every_kind_of_query_can_be_audited(
    env: Environment, view: str, rows: list[tuple[tuple[object, ...], int, int]] | None
) -> None:
    replica = with_totals(env, f'CREATE MATERIALIZED VIEW "the view" AS {view}')
    nested = [(({"a": 2, "b": [5.0]},), NOW + 4, 1)]
    replica.append("u2", UPPER, nested if rows is None else rows)
    ((_, time, _, missing, excess),) = env.rows('AUDIT "the view"')
    assert (time, missing, excess) == (UPPER - 1, 0, 0)


def test_what_cannot_be_audited_is_refused_by_name(env: Environment) -> None:
    with_orders(env)
    assert env.fails("AUDIT orders").message == "source orders cannot be audited"
    assert env.fails("AUDIT nothing").message.startswith("nothing does not exist")
    env.rows(TOTALS)
    env.rows(SINK)
    assert env.fails("AUDIT out").message == "sink out cannot be read"
    assert env.fails("AUDIT totals TIMES 0").message == (
        "expected a number from 1 to 1000, actual 0"
    )
    assert "AUDIT view" in env.fails("AUDIT totals AS").hint


def test_the_audit_of_any_view_takes_the_views(env: Environment) -> None:
    audits = env.coordinator.audits
    audits.audit_any()  # there is none
    replica = with_totals(env)
    audits.audit_any()
    assert audits.verdicts.counts.refused == 1  # nothing is final
    replica.append("u2", UPPER, SUMS)
    for name in ("orders", "totals"):  # the coordinator has heard of both
        env.rows(f"SELECT * FROM {name} AS OF {UPPER - 1}")
    for _ in range(3):
        audits.audit_any()
    counts = audits.verdicts.counts
    assert (counts.right, counts.wrong, counts.refused) == (3, 0, 1)
    assert counts.last_ms == NOW


def test_verdicts_that_cannot_be_written_are_written_later(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_totals(env).append("u2", UPPER, SUMS)

    def down(_: object) -> None:
        raise Determinate("no broker answers")

    with monkeypatch.context() as outage:
        outage.setattr(env.broker.logs, "append", down)
        assert env.rows("AUDIT totals") == [["totals", UPPER - 1, 2, 0, 0]]
    result = env.sql(f"AUDIT totals AS OF {NOW}")
    assert isinstance(result[1], Rows)
    assert result[-1] == Complete("AUDIT 1")
    assert [verdict["time"] for verdict in verdicts(env)] == [UPPER - 1, NOW]


def test_verdicts_are_a_topic_for_a_source(env: Environment) -> None:
    with_totals(env).append("u2", UPPER, SUMS)
    env.rows("AUDIT totals")
    (verdict,) = verdicts(env)
    assert verdict == {
        "view": "totals",
        "id": "u2",
        "time": UPPER - 1,
        "rows": 2,
        "missing": 0,
        "excess": 0,
        "at": NOW,
    }
    results = env.sql(
        "CREATE SOURCE verdicts FROM KAFKA (TOPIC 'sw.audits') (view VARCHAR) FORMAT JSON"
    )
    assert results[-1] == Complete("CREATE SOURCE", {"id": "s3"})
    assert env.fails(
        "CREATE SINK out FROM totals INTO KAFKA (TOPIC 'sw.audits') KEY (id)"
    ).message.startswith("topic sw.audits belongs to this environment")
