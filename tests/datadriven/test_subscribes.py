"""Subscribes as a replica and a controller take them, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.subscribe_script import SubscribeScript


@pytest.mark.parametrize("script", datadriven.scripts("subscribes"), ids=lambda path: path.stem)
def test_subscribes(script: Path) -> None:
    datadriven.run(script, SubscribeScript().handle)
