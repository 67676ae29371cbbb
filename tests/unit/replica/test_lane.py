"""How a lane starts its query, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

from streams.replica.lane import Lane


def test_rule_21_each_start_has_a_checkpoint_directory_of_its_own(tmp_path: Path) -> None:
    """From an earlier one Spark would repeat what it had begun, of whatever process."""
    scheduler = MagicMock(stopping=True, buckets=1)
    scheduler.store.directory = tmp_path
    scheduler.lanes = {"steady": SimpleNamespace(questions=0)}
    given: list[Path] = []
    for _process in range(2):
        session = MagicMock()
        lane = Lane("steady", session, scheduler, MagicMock(), tmp_path / "door", MagicMock())
        frame = session.readStream.format.return_value.options.return_value.load.return_value
        writer = frame.writeStream.foreachBatch.return_value.queryName.return_value
        for _start in range(2):
            lane.start()
            given.append(Path(writer.options.call_args.kwargs["checkpointLocation"]))
            given[-1].mkdir(parents=True)
    assert len(set(given)) == 4
    assert [each.exists() for each in given] == [False, True, False, True]
