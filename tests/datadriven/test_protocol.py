"""Transcripts of the materialization protocol, as driver and connector take them."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.materialization_tasks import ProtocolScript


@pytest.mark.parametrize("script", datadriven.scripts("protocol"), ids=lambda path: path.stem)
def test_protocol(script: Path) -> None:
    datadriven.run(script, ProtocolScript().handle)
