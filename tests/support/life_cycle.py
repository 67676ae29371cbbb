"""What each state of an id answers to every command."""

from collections.abc import Callable

import pytest

from streams.storage import Storage
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.client.lifecycle import REFUSALS, Command, Phase
from tests.support.storages import TABLE


def expect_all(
    storage: Storage, read: ReadCapability, write: WriteCapability, phase: Phase
) -> None:
    commands: dict[Command, list[Callable[[], object]]] = {
        Command.CREATE: [lambda: storage.create(read.id, TABLE)],
        Command.SUBSCRIBE: [lambda: storage.subscribe_at(read)],
        Command.UPDATE: [lambda: storage.update_and_downgrade(write, None, 10)],
        Command.ACQUIRE: [lambda: storage.acquire_capabilities(read.id)],
        Command.USE: [
            lambda: storage.clone(read),
            lambda: storage.transfer(write),
            lambda: storage.downgrade(read, 10),
            lambda: storage.heartbeat(write),
        ],
        Command.DROP: [lambda: storage.drop(read), lambda: storage.drop(read, whole=True)],
    }
    for command, calls in commands.items():
        expected = REFUSALS.get((command, phase))
        if expected is None:
            continue
        for call in calls:
            with pytest.raises(expected) as raised:
                call()
            assert type(raised.value) is expected
            assert read.id in str(raised.value)
