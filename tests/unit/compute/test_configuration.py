"""The configuration of replicas, from the controller to those that join."""

import itertools
from dataclasses import replace

import pytest

from streams.compute.controller import Controller, command_topic, create_topics
from streams.compute.parameters import DEFAULTS
from streams.compute.protocol import CreateInstance
from streams.errors import InvalidUsage
from streams.kafka.log import Logs
from streams.kafka.memory.logs import MemoryBroker
from tests.unit.compute.commands import description
from tests.unit.compute.test_controller import U1, Replica, controller


@pytest.fixture
def logs() -> Logs:
    broker = MemoryBroker(lambda: 1000)
    create_topics(broker.topics, "sw", "default")
    return broker.logs


def test_a_configuration_is_told_to_whoever_joins(logs) -> None:
    parameters = DEFAULTS.updated({"frontiers_ms": 500})
    settings = CreateInstance("sw", 2)
    numbers = map(str, itertools.count())
    one = Controller(logs, settings, "default", 1, lambda: next(numbers), parameters=parameters)
    one.start([description(U1)], [])
    early = Replica(logs)
    early.run()
    assert early.session.parameters == parameters
    one.update_configuration({"heartbeat_ms": 1_000})
    early.run()
    wanted = parameters.updated({"heartbeat_ms": 1_000})
    assert early.session.parameters == wanted
    one.create(replace(description(U1), plan="another"))  # in a new iteration
    early.run()
    late = Replica(logs)
    late.run()
    assert early.session.parameters == late.session.parameters == wanted


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"heartbeat_ms": 5}, "parameter heartbeat_ms: expected 1000 to 4000, actual 5"),
        ({"later": 5}, "expected a parameter of frontiers_ms, .* actual later"),
    ],
)
def test_a_controller_sends_no_configuration_that_replicas_refuse(logs, values, said) -> None:
    one = controller(logs)
    one.start([], [])
    before = logs.bounds(command_topic("sw", "default"))
    with pytest.raises(InvalidUsage, match=said):
        one.update_configuration(values)
    assert logs.bounds(command_topic("sw", "default")) == before
