"""Fences of key ranges, case by case, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.fence_script import FenceScript


@pytest.mark.parametrize("script", datadriven.scripts("fence"), ids=lambda path: path.stem)
def test_fence(script: Path) -> None:
    datadriven.run(script, FenceScript().handle)
