"""A CREATE MATERIALIZATION is judged by what its connector says of itself."""

import sys
from pathlib import Path
from typing import Any

import pytest

from streams.app.materialize import task_validation
from streams.app.materialize.task_validation import check
from streams.errors import InvalidStatement, InvalidUsage


def task(connector: str, config: Any, *resources: Any) -> dict[str, object]:
    bindings = [
        {"collection": f"u{n}", "resource": resource} for n, resource in enumerate(resources)
    ]
    return {"task": "shop", "connector": connector, "config": config, "bindings": bindings}


def test_it_says_which_bindings_take_every_change() -> None:
    tables = [{"table": "a"}, {"table": "b", "delta_updates": True}]
    assert check(task("sqlite", {"path": "x"}, *tables)) == [False, True]
    assert check(task("files", {"url": "/x"}, {"path": "a"})) == [True]


SPARK: Any = {"backfill": {"by": "spark"}}
HOOK = task("webhook", {"url": "https://a.b/c"}, {"path": "a"})
DUCK = task("duckdb", {"path": "x"}, {"table": "a"})
LITE = task("sqlite", {"path": "x"}, {"table": "a"})


def test_what_can_be_divided_is_taken() -> None:
    assert check(LITE | SPARK | {"shards": 2}) == [False]
    assert check(DUCK | {"backfill": {"by": "spark", "master": "local[1]"}}) == [False]
    files = task("files", {"url": "/x"}, {"path": "a"})
    assert check(files | {"backfill": {"by": "spark", "ranges": 3}}) == [True]
    for master in ("local", "local[*]", "local[4,4]", "spark://a:7077", "yarn", "k8s://a:1"):
        assert check(LITE | {"backfill": {"by": "spark", "master": master}}) == [False]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            HOOK | SPARK,
            "BACKFILL BY SPARK: connector webhook does not offer the extension subranges,"
            " without which what was divided by key cannot be put together again: leave it out",
        ),
        (HOOK | {"shards": 2}, "SHARDS: connector webhook does not offer the extension"),
        (
            DUCK | SPARK,
            "a file of duckdb is open in one process at a time: expected the backfill",
        ),
        (
            DUCK | {"backfill": {"by": "spark", "master": "local[4,4]"}},
            "expected the backfill's master to be local[1], actual local[4,4]: set it, or",
        ),
        (
            LITE | {"backfill": {"by": "spark", "master": "sprak://a:7077"}},
            "backfill.master: expected local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT,"
            " actual 'sprak://a:7077'",
        ),
        (LITE | {"backfill": {"by": "spark", "ranges": 0}}, "backfill.ranges: "),
        (LITE | {"backfill": {"by": "spark", "range": 2}}, "backfill.range: "),
        (
            SPARK
            | LITE
            | {
                "bindings": [
                    {"collection": "u1", "resource": {"table": "a"}, "dead_letters": "dead"}
                ]
            },
            "expected a task without dead letters, actual dead_letters dead: leave out one",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(members: Any, expected: str) -> None:
    with pytest.raises((InvalidStatement, InvalidUsage)) as refused:
        check(members)
    assert expected in str(refused.value)


POSTGRES = {"host": "db", "database": "d", "user": "u"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (task("sqlit", {}, {}), "connector SQLIT is not known"),
        (task("sqlite", {}, {"table": "a"}), "INTO: option path is missing"),
        (task("sqlite", {"path": "x"}, {"tabel": "a"}), "BIND: option tabel is not known"),
        (
            task("sqlite", {"path": "x"}, {"table": "a"}, {"table": "a"}),
            "BIND: two bindings are kept in a",
        ),
        (
            task("postgres", {**POSTGRES, "password": "hunter2"}, {"table": "a"}),
            "INTO.password: expected 'env:NAME' or 'file:PATH', actual the secret itself",
        ),
        (
            task("./nothing", {}, {}),
            "connector ./nothing does not answer which options it takes",
        ),
    ],
)
def test_what_its_connector_does_not_take_is_refused(members: Any, expected: str) -> None:
    with pytest.raises(InvalidStatement) as refused:
        check(members)
    assert refused.value.message.startswith(expected)
    assert "hunter2" not in str(refused.value)


def test_a_secret_that_is_referred_to_is_none() -> None:
    for reference in ("env:PASSWORD", "file:/run/password"):
        assert check(task("postgres", {**POSTGRES, "password": reference}, {"table": "a"})) == [
            False
        ]


def test_a_task_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="bindings"):
        check(task("sqlite", {"path": "x"}))


def test_a_connector_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_validation, "SPEC_S", 0.2)
    program = tmp_path / "connector"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(3)\n")
    program.chmod(0o755)
    with pytest.raises(InvalidStatement, match="it has not answered Spec in 0 s"):
        check(task(str(program), {}, {}))
