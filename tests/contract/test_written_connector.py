"""The connector of `connectors/docs/write-a-connector.md`: the kit runs it, as it stands."""

import re
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
CODE = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def text() -> str:
    assert CODE is not None
    return CODE.group(1)


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
