"""A CREATE MATERIALIZATION is judged by what its connector says of itself."""

import sys
from pathlib import Path
from typing import Any

import pytest

from streams.app.materialize import task_validation
from streams.app.materialize.task_validation import check
from streams.errors import InvalidStatement, InvalidUsage


def task(connector: str, config: Any, *resources: Any) -> dict[str, object]:
    bindings = [{"collection": f"u{n}", "resource": each} for n, each in enumerate(resources)]
    return {"task": "shop", "connector": connector, "config": config, "bindings": bindings}


def test_it_says_which_bindings_take_every_change() -> None:
    tables = [{"table": "a"}, {"table": "b", "delta_updates": True}]
    assert check(task("sqlite", {"path": "x"}, *tables)) == [False, True]
    assert check(task("files", {"url": "/x"}, {"path": "a"})) == [True]


POSTGRES = {"host": "db", "database": "d", "user": "u"}


@pytest.mark.parametrize(
    ("made", "expected"),
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
            "INTO.password: expected 'env:NAME' or 'file:PATH', found the secret itself",
        ),
        (
            task("./nothing", {}, {}),
            "connector ./nothing does not answer which options it takes",
        ),
    ],
)
def test_what_its_connector_does_not_take_is_refused(made: Any, expected: str) -> None:
    with pytest.raises(InvalidStatement) as refused:
        check(made)
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
