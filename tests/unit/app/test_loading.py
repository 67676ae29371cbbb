"""What a command loads before it does anything: users wait for it, and it stays in memory."""

import subprocess
import sys

import pytest

from streams.app import commands

PROGRAM = """
import importlib, sys
command, *more = sys.argv[1:]
sys.argv = ["slackwater", command]
for module in ("streams.app.commands", *more):
    importlib.import_module(module)
print(*sys.modules)
"""


def loaded(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_shell_loads_no_engine() -> None:
    modules = loaded("sql")
    assert "streams.app.sql" in modules
    assert modules & {"pandas", "pyarrow", "duckdb", "numpy", "pyspark", "sqlglot"} == set()


@pytest.mark.parametrize("service", ["coordinator", "storage"])
def test_a_service_loads_no_pandas(service: str) -> None:
    modules = loaded(service, f"streams.app.{service}")
    assert "streams.trace.columns" in modules, "it converts at once"
    assert "pandas" not in modules


def test_who_plans_nothing_loads_no_parser_of_sql() -> None:
    modules = loaded("compaction", "streams.app.compaction", "streams.app.storage")
    assert "sqlglot" not in modules


def test_topics_are_printed_without_pandas() -> None:
    modules = loaded("topic", "streams.app.topic.command")
    assert "schemas.rows" in modules
    assert "pandas" not in modules


def test_a_connector_of_a_users_loads_no_pandas_by_itself() -> None:
    modules = loaded("sql", "connectors.protocol.messages")
    assert "pyarrow" in modules
    assert "pandas" not in modules


def test_materializations_load_their_engine_with_the_first_one() -> None:
    modules = loaded("materializations", "streams.app.materialize.service")
    assert "streams.kafka.client.broker" in modules
    assert modules & {"pandas", "duckdb", "pydantic", "pyspark", "sqlglot"} == set()


def test_the_shell_loads_no_http_server() -> None:
    assert loaded("sql") & {"http.server", "prometheus_client"} == set()


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_each_command_of_the_table_is_registered(command: str) -> None:
    names = {info.name for info in commands.app.registered_commands}
    assert command in names | {group.name for group in commands.app.registered_groups}
