"""Histories and sessions of the compute protocol, case by case, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.compute_script import ComputeScript


@pytest.mark.parametrize("script", datadriven.scripts("compute"), ids=lambda path: path.stem)
def test_compute(script: Path) -> None:
    datadriven.run(script, ComputeScript().handle)
