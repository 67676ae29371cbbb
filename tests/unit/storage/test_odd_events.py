"""Whatever a log holds that can be read, the fold goes on and its state can be written.

Events are drawn from the schemas themselves: every field takes the numbers and texts that a
careless or hostile client could send.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.progress import frontier
from streams.storage.log import event_codec, rollup
from streams.storage.log.events import (
    Acquire,
    Append,
    Body,
    Clone,
    Create,
    Downgrade,
    Event,
    Part,
    Renewal,
    Right,
    Stage,
)
from streams.storage.log.machine import step
from streams.storage.log.state import State
from tests.support.examples import examples

U1, W, R = CollectionId("u1"), CapabilityId("u1.write"), CapabilityId("r")
FOR_EVER_MS = LAST_MS = (1 << 63) - 1
CREATE = Create(collection=U1, description="{}", frontier=Timestamp(0), write=W, read=R)
LEASED = Create(
    collection=U1,
    description="{}",
    frontier=Timestamp(0),
    write=W,
    read=R,
    lease_ms=FOR_EVER_MS,
)


def folded(*bodies: Body, at_ms: int = 1_000_000) -> State:
    state = State()
    for number, body in enumerate(bodies):
        event = Event(EventId(f"e{number}"), "g", Offset(number - 1), body)
        state, _ = step(state, event, Offset(number), at_ms + number)
    return state


GRANTS: list[tuple[Body, ...]] = [
    (LEASED,),
    (CREATE, Acquire(collection=U1, capability=W, right=Right.READ, lease_ms=FOR_EVER_MS)),
    (
        CREATE,
        Acquire(
            collection=U1, capability=CapabilityId("x"), right=Right.READ, lease_ms=FOR_EVER_MS
        ),
    ),
    (
        CREATE,
        Clone(collection=U1, capability=R, clone=CapabilityId("x"), lease_ms=FOR_EVER_MS),
    ),
    (LEASED, Downgrade(collection=U1, capability=R, frontier=frontier(0))),
    (
        LEASED,
        Append(
            (Part(collection=U1, capability=W, lower=frontier(0), upper=frontier(1)),),
            renewals=(Renewal(collection=U1, capability=W, frontier=frontier(1)),),
        ),
    ),
    (CREATE, Stage(stage="load", chunks=(), lease_ms=FOR_EVER_MS)),
]


@pytest.mark.parametrize("bodies", GRANTS)
def test_a_lease_for_ever_leaves_a_state_that_can_be_written(bodies: tuple[Body, ...]) -> None:
    state = folded(*bodies)
    assert rollup.encode(rollup.decode(rollup.encode(state))) == rollup.encode(state)
    ends = [capability.expires_ms for capability in state.collections[U1].capabilities.values()]
    ends += [stage.expires_ms for stage in state.stages.values()]
    assert all(end is None or end == LAST_MS for end in ends)


def test_refusals_keep_no_copy_of_what_was_presented() -> None:
    """300 wrong presentations of 50 KB made a state of 15 MB."""
    long = "x" * 50_000
    fenced = Acquire(collection=U1, capability=CapabilityId("f"), right=Right.READ, token=long)
    part = Part(collection=U1, capability=W, lower=frontier(0), upper=frontier(1))
    wrong: list[Body] = [
        Downgrade(collection=U1, capability=CapabilityId("f"), frontier=frontier(0)),
        Downgrade(collection=U1, capability=CapabilityId(long), frontier=frontier(0)),
        Downgrade(collection=CollectionId(long), capability=W, frontier=frontier(0)),
        Append((replace(part, stages=(long,)),)),
    ]
    body = rollup.encode(folded(CREATE, fenced, *(wrong * 75)))
    assert len(body) < len(long) + 300 * 500


NUMBERS = st.sampled_from(
    [0, 1, 5, 9, 63, -1, (1 << 31) - 1, (1 << 63) - 1, -(1 << 63), 1_000_000, 30_000]
)
TEXTS = st.sampled_from(["u1", "u2", "u1.write", "r", "x", "", "a" * 300, "\x00", "é", "s"])


def values(schema: Any, schemas: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Any value of a schema: numbers at their bounds, texts of a few."""
    if isinstance(schema, list):
        return st.one_of([values(field, schemas) for field in schema])
    if isinstance(schema, str):
        short = schema.rpartition(".")[2]
        if short in schemas:
            return values(schemas[short], schemas)
        return {
            "null": st.none(),
            "string": TEXTS,
            "long": NUMBERS,
            "int": st.sampled_from([0, 1, -1, (1 << 31) - 1, -(1 << 31)]),
            "boolean": st.booleans(),
            "double": st.floats(),
        }[short]
    kind = schema["type"]
    if kind == "record":
        schemas[schema["name"]] = schema
        return st.fixed_dictionaries(
            {field["name"]: values(field["type"], schemas) for field in schema["fields"]}
        )
    if kind == "array":
        return st.lists(values(schema["items"], schemas), max_size=3)
    if kind == "enum":
        schemas[schema["name"]] = schema
        return st.sampled_from(schema["symbols"])
    return values(kind, schemas)


KINDS = sorted(event_codec.DECODERS)


def odd(name: str) -> st.SearchStrategy[bytes]:
    """The bytes of any event of a schema."""
    schemas: dict[str, Any] = {}
    return values(codec.registry().by_name[name].raw, schemas).map(
        lambda record: codec.encode(name, {**record, "group": "g", "seen": FOR_EVER_MS})
    )


@examples(150)
@given(
    st.lists(st.sampled_from(KINDS).flatmap(odd), max_size=12),
    st.lists(st.sampled_from([0, 1, 30_000, FOR_EVER_MS]), min_size=12, max_size=12),
)
def test_any_log_that_can_be_read_folds_to_a_state_that_can_be_written(
    log: list[bytes], times: list[int]
) -> None:
    state = folded(CREATE, Stage(stage="s", chunks=(), lease_ms=9))
    for number, (value, at_ms) in enumerate(zip(log, times, strict=False)):
        event = event_codec.decode(value)
        state, _ = step(state, event, Offset(state.upto + 1 + (number > 6)), at_ms)
        body = rollup.encode(state)
        assert rollup.encode(rollup.decode(body)) == body
