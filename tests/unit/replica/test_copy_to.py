"""Copy-tos of a replica: the files of one attempt, and one answer."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyarrow import fs

from streams.compute.peeks import (
    CancelPeek,
    CopyFiles,
    Peek,
    PeekCanceled,
    PeekError,
    PeekFiles,
)
from streams.copies.destination import Destination
from streams.copies.targets import CopyTargets
from streams.plan.physical import SortKey
from streams.replica.peeks import copying
from tests.support.peeking import Peeking, peek
from tests.unit.replica.test_peek_loop import Asker


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 3, 2), (3, "c", 4, 1))
    yield peeking
    peeking.close()


def copy(directory: Path, uuid: str = "c", time: int = 4) -> Peek:
    files = CopyFiles(directory.as_uri(), ("key", "value"), 1 << 20)
    order = (SortKey(0, descending=True, nulls_first=False),)
    return replace(peek("u1", time, uuid), files=files, order=order)


def allowed(path: Path) -> CopyTargets:
    return CopyTargets.of([path.as_uri()])


def rows(directory: Path) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        text = f"SELECT key, value FROM '{directory}/*.parquet'"
        return connection.execute(text).fetchall()


def test_the_rows_are_in_files_in_their_order(peeking: Peeking, tmp_path: Path) -> None:
    asker = Asker(peeking)
    peeking.replica(copy_to=allowed(tmp_path))
    asker.begin("a", copy(tmp_path / "v"), copy(tmp_path / "early", "early", 2))
    answers = asker.answers(2)
    assert rows(tmp_path / "v") == [(3, "c"), (2, "b"), (2, "b"), (1, "a")]
    assert rows(tmp_path / "early") == [(1, "a")]
    (file,) = (tmp_path / "v").glob("*.parquet")
    assert answers["c"].outcome == PeekFiles(((4, file.stat().st_size),))
    assert answers["c"].is_copy
    manifest = json.loads((tmp_path / "v" / "_SUCCESS").read_text())
    assert (manifest["copy"], manifest["as_of"], manifest["rows"]) == ("c", 4, 4)


def test_of_two_replicas_one_writes_and_both_answer_the_same(
    peeking: Peeking, tmp_path: Path
) -> None:
    asker = Asker(peeking)
    loops = [peeking.replica(name, copy_to=allowed(tmp_path)) for name in ("r1", "r2")]
    asker.begin("a", copy(tmp_path / "v"))
    responses = [response for _, response in zip(loops, both(asker), strict=False)]
    assert responses[0] == responses[1]
    assert isinstance(responses[0], PeekFiles)
    assert len(list((tmp_path / "v").glob("*.parquet"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def both(asker: Asker) -> Iterator[object]:
    while True:
        for message in asker.responses.poll(50):
            yield message.response.outcome  # type: ignore[union-attr]  # only peeks


def test_a_successor_answers_what_its_predecessor_wrote(
    peeking: Peeking, tmp_path: Path
) -> None:
    asker = Asker(peeking)
    first = peeking.replica(copy_to=allowed(tmp_path))
    asker.begin("a", copy(tmp_path / "v"))
    before = asker.answers(1)["c"]
    first.close()
    peeking.loops.clear()
    peeking.replica(copy_to=allowed(tmp_path))
    asker.begin("b", copy(tmp_path / "v"))
    assert asker.answers(1)["c"] == before
    asker.commands.write([copy(tmp_path / "v", "another")])
    refused = asker.answers(1)["another"].outcome
    assert isinstance(refused, PeekError)
    assert "COPY overwrites nothing" in refused.message


@pytest.mark.parametrize("command", [CancelPeek("c"), None])
def test_what_is_canceled_or_of_an_old_iteration_leaves_nothing(
    peeking: Peeking, tmp_path: Path, monkeypatch, command: CancelPeek | None
) -> None:
    begun, go_on, ended = (threading.Event() for _ in range(3))
    write = Destination.write

    def slow(self: Destination, data, manifest, is_canceled) -> None:
        begun.set()
        assert go_on.wait(30)
        try:
            write(self, data, manifest, is_canceled)
        finally:
            ended.set()

    monkeypatch.setattr(Destination, "write", slow)
    asker = Asker(peeking)
    loop = peeking.replica(copy_to=allowed(tmp_path))
    asker.begin("a", copy(tmp_path / "v"))
    assert begun.wait(30)
    if command is not None:
        asker.commands.write([command])
        assert asker.answers(1)["c"].outcome == PeekCanceled()
    else:
        asker.begin("b", peek("u1", 4, "p"))
        assert list(asker.answers(1)) == ["p"]
    go_on.set()
    assert ended.wait(30)
    assert not list(tmp_path.iterdir())
    assert loop.broken is None


def test_no_peek_waits_for_a_copy(peeking: Peeking, tmp_path: Path, monkeypatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(Destination, "write", lambda *_: go_on.wait(30))
    asker = Asker(peeking)
    peeking.replica(copy_to=allowed(tmp_path))
    asker.begin("a", *(copy(tmp_path / name, name) for name in ("x", "y", "z")))
    asker.commands.write([peek("u1", 4, "p")])
    assert list(asker.answers(1)) == ["p"]
    go_on.set()
    assert sorted(asker.answers(3)) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uri": "file:///elsewhere/v"}, "COPY may not write to file:///elsewhere/v"),
        ({"uri": "s3://KEY:SECRET@b/v"}, "actual one with credentials or options"),
        ({"uri": "PREFIX/none/v"}, "an existing directory"),
        ({"names": ("a",)}, "expected 2 names"),
        ({"names": ("a", "A")}, "columns of different names"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    peeking: Peeking, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    asker = Asker(peeking)
    loop = peeking.replica(copy_to=allowed(tmp_path))
    wanted = copy(tmp_path / "v")
    assert wanted.files is not None
    uri = str(changes.get("uri", wanted.files.uri)).replace("PREFIX", tmp_path.as_uri())
    files = replace(wanted.files, **{**changes, "uri": uri})  # type: ignore[arg-type]
    asker.begin("a", replace(wanted, files=files))
    if len(files.names) == 1:
        assert asker.answers(1, 1) == {}  # it cannot be decoded
    else:
        outcome = asker.answers(1)["c"].outcome
        assert isinstance(outcome, PeekError)
        assert said in outcome.message
        assert "SECRET" not in outcome.message
    assert loop.broken is None
    assert not list(tmp_path.iterdir())


def test_a_collection_in_error_is_not_copied(peeking: Peeking, tmp_path: Path) -> None:
    peeking.collection("u2")
    peeking.append("u2", 5, (1, "a", 2, 1), wrong="bad")
    asker = Asker(peeking)
    peeking.replica(copy_to=allowed(tmp_path))
    wanted = replace(copy(tmp_path / "v"), target=peek("u2", 4).target)
    asker.begin("a", replace(wanted, plan=peek("u2", 4).plan))
    assert asker.answers(1)["c"].outcome == PeekError("bad")
    assert not list(tmp_path.iterdir())


def test_a_file_system_that_fails_is_an_error_without_secrets(
    peeking: Peeking, tmp_path: Path, monkeypatch
) -> None:
    def refused(self: Destination, *_: object) -> None:
        raise PermissionError(13, "SECRET is not permitted")

    monkeypatch.setattr(Destination, "write", refused)
    (prefix,) = allowed(tmp_path).prefixes
    split = prefix.split._replace(query="secret=SECRET")
    monkeypatch.setattr(copying, "opened", lambda *_: local(tmp_path / "v"))
    asker = Asker(peeking)
    loop = peeking.replica(copy_to=CopyTargets((replace(prefix, split=split),)))
    asker.begin("a", copy(tmp_path / "v"))
    outcome = asker.answers(1)["c"].outcome
    assert isinstance(outcome, PeekError)
    assert outcome.message.startswith(f"COPY could not write to {tmp_path.as_uri()}/v")
    assert "*** is not permitted" in outcome.message
    assert loop.broken is None


def local(path: Path) -> Destination:
    return Destination(fs.LocalFileSystem(), str(path), "one")
