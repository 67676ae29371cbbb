"""The machines of both sides: whatever comes, they agree, and a violation changes nothing."""

import copy
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.protocol.session import ACKNOWLEDGED, SEED, Phase, StreamState
from connectors.protocol.violations import Rule, Side, Violation
from tests.support.materialization_tasks import store, task

BOTH = Extensions(acknowledge=True, delete=True)
TASK = task()
OPEN = st.builds(
    lambda used: messages.Open(materialization=TASK, version="v", extensions=used),
    st.sampled_from([Extensions(), BOTH]),
)
BINDINGS, KEYS = st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2)
KINDS: dict[Any, Any] = {
    messages.Open: OPEN,
    messages.Opened: st.just(messages.Opened()),
    messages.Acknowledge: st.just(messages.Acknowledge()),
    messages.Acknowledged: st.just(messages.Acknowledged()),
    messages.Load: st.builds(
        lambda binding, keys: messages.Load(binding, Tuples.of([(key,) for key in keys])),
        BINDINGS,
        KEYS,
    ),
    messages.Loaded: st.builds(
        lambda binding, keys: messages.Loaded(binding, [b'{"id":%d}' % key for key in keys]),
        BINDINGS,
        KEYS,
    ),
    messages.Flush: st.builds(messages.Flush, st.sampled_from([b"", b"cp"])),
    messages.Flushed: st.builds(
        messages.Flushed, st.sampled_from([b"", b"{}", b"{"]), st.booleans()
    ),
    messages.Store: st.builds(
        lambda binding, keys: store(binding, *[(key, None, "{}") for key in keys]),
        BINDINGS,
        KEYS,
    ),
    messages.StartCommit: st.just(messages.StartCommit()),
    messages.StartedCommit: st.just(messages.StartedCommit()),
}


def legal(session: StreamState) -> Any:
    """Messages that the table has in this phase, so that a run gets somewhere."""
    table = ACKNOWLEDGED if session.extensions.acknowledge else SEED
    return st.one_of([KINDS[kind] for phase, kind in table if phase is session.phase])


def tried(session: StreamState, message: Any) -> Any:
    try:
        session.take(message)
    except Violation as violation:
        return violation.side, violation.rule
    return None


@given(st.data(), st.booleans())
def test_a_violation_names_a_side_and_changes_nothing(data: Any, offer: bool) -> None:
    driver, connector = (StreamState(side, BOTH if offer else Extensions()) for side in Side)
    assert tried(driver, message := data.draw(OPEN)) == tried(connector, message)
    if driver.phase is Phase.UNOPENED:
        return
    for _ in range(data.draw(st.integers(0, 25))):
        message = data.draw(st.one_of(legal(driver), legal(driver), *KINDS.values()))
        before = copy.deepcopy((driver, connector))
        refused = tried(driver, message)
        if refused is not None:
            assert (driver, before[0]) == (before[0], driver)
            assert refused[0] is side_of(message)
            continue
        assert tried(connector, message) is None, "a connector bears what a driver may do"
        assert (driver.phase, driver.transaction) == (connector.phase, connector.transaction)


def side_of(message: Any) -> Side:
    return Side.DRIVER if isinstance(message, messages.Request) else Side.CONNECTOR


def test_every_phase_is_reached_and_left():
    """Seed, "That it!": the loop continues."""
    for table in (SEED, ACKNOWLEDGED):
        phases = {Phase.UNOPENED}
        while more := {to for (at, _), to in table.items() if at in phases} - phases:
            phases |= more
        assert {at for at, _ in table} == phases
        assert phases == set(Phase) - (
            set() if table is ACKNOWLEDGED else {Phase.UNACKNOWLEDGED, Phase.ACKNOWLEDGING}
        )


def test_a_violation_survives_being_sent():
    violation = Violation(Side.DRIVER, Rule.ORDER, "x")
    again = pickle.loads(pickle.dumps(violation))
    assert str(again) == str(violation) == "the driver broke the rule order: x"
