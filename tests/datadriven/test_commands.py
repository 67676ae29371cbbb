"""The command topics, case by case, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.command_script import CommandScript


@pytest.mark.parametrize("script", datadriven.scripts("commands"), ids=lambda path: path.stem)
def test_commands(script: Path) -> None:
    datadriven.run(script, CommandScript().handle)
