"""The connector of `connectors/docs/write-a-connector.md`: the kit runs it, as it stands."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from connectors import testing
from connectors.driver import Driver
from connectors.transport.local import Local
from connectors.transport.stdio import Command
from schemas.materialize_pb2 import SpecRequest

PAGE = Path(__file__).parent.parent.parent / "connectors/docs/write-a-connector.md"
MOST_LINES, WIDEST = 100, 96
RUFF = (sys.executable, "-m", "ruff", "format", "--isolated")
CODE = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

PRINTING = """    def spec(self, request):
        print("a word")"""


def text() -> str:
    assert CODE is not None
    return CODE.group(1)


def test_the_connector_of_the_page_has_100_lines() -> None:
    lines = text().splitlines()
    assert len(lines) <= MOST_LINES
    formatted = subprocess.run(
        [*RUFF, "--line-length", str(WIDEST), "-"],
        input=text(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert formatted.stdout == text()


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_the_connector_of_the_page_keeps_the_protocol(check: Any, memory_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(text(), str(PAGE), "exec"), names)
    subject = testing.Subject(
        driver=Driver(Local(names["Connector"]())),
        endpoint={"path": str(memory_path / "state.json")},
        resource=lambda table: {"table": table},
    )
    check(subject)


def test_the_connector_of_the_page_is_a_command(memory_path: Path) -> None:
    path = memory_path / "connector.py"
    path.write_text(text())
    driver = Driver(Command([sys.executable, str(path)], {}))
    assert driver.spec(SpecRequest()).extensions.delete


def test_what_the_connector_of_the_page_prints_is_no_response(memory_path: Path) -> None:
    path = memory_path / "connector.py"
    path.write_text(text().replace("    def spec(self, request):", PRINTING))
    driver = Driver(Command([sys.executable, str(path)], {}))
    assert driver.spec(SpecRequest()).extensions.delete
    usage = subprocess.run(
        [sys.executable, str(path)], check=False, capture_output=True, text=True
    )
    assert usage.returncode == 1
    assert usage.stderr.startswith("expected one argument of spec, validate, apply")
