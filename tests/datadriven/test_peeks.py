"""Peeks as a replica takes them, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.peek_script import PeekScript


@pytest.mark.parametrize("script", datadriven.scripts("peeks"), ids=lambda path: path.stem)
def test_peeks(script: Path) -> None:
    datadriven.run(script, PeekScript().handle)
