"""The fold of a group's log, rule by rule, as scripts."""

from pathlib import Path

import pytest

from tests.support import datadriven
from tests.support.shard_script import ShardScript


@pytest.mark.parametrize("script", datadriven.scripts("shard"), ids=lambda path: path.stem)
def test_shard(script: Path) -> None:
    datadriven.run(script, ShardScript().handle)
