"""Bindings over several generations: what is read, by whom, in which order, exactly once."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from streams.compute import binding
from streams.compute.binding import Fact
from streams.compute.description import BEGINNING, Start
from streams.compute.reclocking import (
    Clock,
    Ends,
    Follow,
    Ingest,
    Pause,
    Position,
    Rebuild,
    Tick,
    next_interval,
    ranges,
)
from streams.progress import frontier
from streams.storage.log.appends import continues_binding


def test_the_first_generation_has_the_partitions_own_numbers():
    bound = binding.extended({}, 0, {0: 5, 1: 7})
    assert bound == {0: 5, 1: 7}
    assert (binding.generation(bound), binding.offsets(bound, 0)) == (0, {0: 5, 1: 7})
    assert binding.offsets(bound, 1) == {}


def test_a_generation_begins_anywhere_and_the_binding_only_grows():
    before = binding.extended({}, 0, {0: 500, 1: 700})
    after = binding.extended(before, 1, {0: 3})
    assert continues_binding(before, after)
    assert (binding.generation(after), binding.offsets(after, 1)) == (1, {0: 3})
    assert binding.offsets(after, 0) == {0: 500, 1: 700}
    assert continues_binding(after, binding.extended(after, 1, {0: 4, 1: 0}))


def test_each_fact_has_keys_of_its_own_in_32_bits():
    bound = binding.extended({}, binding.LAST, {1: 7})
    bound = binding.extended(bound, binding.LAST, {1: 1_700_000_000_000}, Fact.EVENT_TIME)
    bound = binding.extended(bound, binding.LAST, {1: 5}, Fact.RELEASED)
    bound = binding.extended(bound, binding.LAST, {1: 3}, Fact.LATE)
    bound = binding.extended(bound, binding.LAST, {1: 2}, Fact.SKIPPED)
    bound = binding.extended(bound, binding.LAST, {1: 4}, Fact.REFUSED)
    bound = binding.extended(bound, binding.LAST, {1: 9}, Fact.MESSAGES)
    bound = binding.revised(bound, binding.LAST, 6)
    assert [binding.facts(bound, binding.LAST, fact) for fact in Fact] == [
        {1: 7},
        {1: 1_700_000_000_000},
        {1: 5},
        {1: 3},
        {1: 2},
        {1: 4},
        {1: 9},
        {0: 6},
    ]
    assert binding.revision(bound) == 6
    assert binding.revision({0: 5}) == 0
    assert binding.revised({0: 5}, 0, 0) == {0: 5}
    assert all(binding.facts(bound, 0, fact) == {} for fact in Fact)
    assert binding.generation(bound) == binding.LAST
    assert -(1 << 31) <= min(bound) <= max(bound) < 1 << 31


def test_counts_add_up_over_partitions_and_generations():
    bound = binding.counted({0: 5}, 0, {0: 2, 1: 0}, Fact.SKIPPED)
    assert binding.facts(bound, 0, Fact.SKIPPED) == {0: 2}
    bound = binding.counted(bound, 0, {0: 1, 1: 4}, Fact.SKIPPED)
    assert binding.facts(bound, 0, Fact.SKIPPED) == {0: 3, 1: 4}
    resumed = binding.counted(binding.extended(bound, 1, {0: 0}), 1, {0: 6}, Fact.SKIPPED)
    assert continues_binding(bound, resumed)
    assert binding.facts(resumed, 1, Fact.SKIPPED) == {0: 6}
    assert binding.total(resumed, Fact.SKIPPED) == 13
    assert binding.total(resumed, Fact.LATE) == 0
    assert (binding.offsets(resumed, 0), binding.generation(resumed)) == ({0: 5}, 1)


def test_a_binding_without_counts_is_as_it_was():
    assert binding.counted({0: 5}, 0, {0: 0}, Fact.SKIPPED) == {0: 5}


def test_nothing_is_bound_at_first():
    assert (binding.generation({}), binding.offsets({}, 0)) == (0, {})


def position(at: int, offsets: binding.Offsets) -> Position:
    return Position(frontier(at), offsets)


CLOCK = Clock(130, tick_ms=50, skew_ms=0)


def test_a_source_begins_at_the_offsets_that_it_was_given():
    own, topic, start = position(100, {}), {0: Ends(2, 9), 1: Ends(0, 4)}, Start(0, ((0, 7),))
    ingest = next_interval(own, own, topic, CLOCK, 1, start)
    assert isinstance(ingest, Ingest)
    assert (ingest.time, ingest.from_offsets, ingest.to_offsets) == (100, {}, {0: 9, 1: 4})
    assert ranges(ingest, topic, start) == {0: (7, 9), 1: (0, 4)}


def test_a_source_that_begins_at_the_end_has_its_first_interval_at_once():
    own, topic = position(100, {}), {0: Ends(2, 9)}
    ingest = next_interval(own, own, topic, CLOCK, 1, Start(0, ((0, 9),)))
    assert isinstance(ingest, Ingest)
    assert (ingest.to_offsets, ranges(ingest, topic, Start(0, ((0, 9),)))) == ({0: 9}, {})


def test_a_source_that_resumes_reads_within_its_budget_at_the_present_time():
    own, topic, start = position(100, {0: 500}), {0: Ends(2, 90)}, Start(1, ((0, 2),))
    ingest = next_interval(own, own, topic, CLOCK, 10, start)
    assert isinstance(ingest, Ingest)
    assert (ingest.time, ranges(ingest, topic, start)) == (130, {0: (2, 12)})
    assert ingest.from_offsets == {0: 500}
    assert ingest.to_offsets == binding.extended({0: 500}, 1, {0: 12})


def test_a_source_that_resumes_at_the_end_says_so_before_anything_comes():
    own, topic, start = position(100, {0: 500}), {0: Ends(2, 90)}, Start(1, ((0, 90),))
    ingest = next_interval(own, own, topic, CLOCK, 10, start)
    assert isinstance(ingest, Ingest)
    bound = binding.extended({0: 500}, 1, {0: 90})
    assert (ingest.to_offsets, ranges(ingest, topic, start)) == (bound, {})
    after = position(131, bound)
    assert next_interval(after, after, topic, Clock(140, 50, 0), 10, start) == Pause(181)


def test_who_has_not_heard_of_it_leaves_the_source_alone():
    own, topic = position(100, binding.extended({0: 5}, 1, {0: 2})), {0: Ends(0, 9)}
    assert next_interval(own, own, topic, CLOCK) == Pause(None)


@dataclass
class World:
    """A topic that is truncated and made again, a shard, and what was read of it.

    A message is what was once at an offset; `content` has those that are there now.
    """

    content: list[int] = field(default_factory=list)
    low: int = 0
    made: int = 0
    shard: Position = field(default_factory=lambda: position(0, {}))
    start: Start = BEGINNING
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # generation, offset, value

    @property
    def ends(self) -> dict[int, Ends]:
        return {0: Ends(self.low, len(self.content))}

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.content.append(self.made)
            self.made += 1


@dataclass
class Reader:
    """A replica: the description that it has heard of, its own state, and work in flight."""

    start: Start = BEGINNING
    own: Position = field(default_factory=lambda: position(0, {}))
    work: tuple[Ingest, list[tuple[int, int, int]]] | None = None

    def decide(self, world: World, budget: int) -> None:
        bound = binding.offsets(world.shard.offsets, self.start.generation)
        begin = bound or dict(self.start.offsets)
        if begin and not world.low <= begin[0] <= len(world.content):
            return  # stalled
        clock = Clock(world.shard.frontier.time + 1, 1_000_000, 0)
        step = next_interval(self.own, world.shard, world.ends, clock, budget, self.start)
        match step:
            case Follow(at) | Rebuild(at):
                self.own = at
            case Ingest():
                offsets = ranges(step, world.ends, self.start).get(0, (0, 0))
                generation = self.start.generation
                rows = [(generation, o, world.content[o]) for o in range(*offsets)]
                self.work = (step, rows)
            case _:
                assert isinstance(step, Pause | Tick)

    def append(self, world: World) -> None:
        if self.work is None:
            return
        step, rows = self.work
        self.work = None
        counts = (
            step.lower == world.shard.frontier
            and dict(step.from_offsets) == dict(world.shard.offsets)
            and continues_binding(step.from_offsets, step.to_offsets)
        )
        if counts:
            world.shard = Position(step.upper, step.to_offsets)
            world.rows += rows
            self.own = world.shard


actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["produce", "truncate", "retain", "resume", "hear", "decide", "append"]
        ),
        st.integers(0, 1),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(actions)
def test_every_offset_is_read_once_in_a_generation_whoever_reads(actions):
    """However the topic changes, whoever is late to hear of it, and whenever they die."""
    world, readers = World(), [Reader(), Reader()]
    for action, who, number in actions:
        reader = readers[who]
        match action:
            case "produce":
                world.produce(number)
            case "truncate":
                world.content = world.content[: max(world.low, len(world.content) - number)]
            case "retain":
                world.low = min(len(world.content), world.low + number)
            case "resume":
                at = min(len(world.content), world.low + number - 1)
                world.start = Start(world.start.generation + 1, ((0, at),))
            case "hear":
                readers[who] = Reader(world.start)  # its state is gone, too
            case "decide":
                reader.decide(world, number)
            case _:
                reader.append(world)
    places = [(generation, offset) for generation, offset, _ in world.rows]
    assert len(places) == len(set(places))
    for generation in {generation for generation, _ in places}:
        offsets = [offset for number, offset in places if number == generation]
        reached = binding.offsets(world.shard.offsets, generation)[0]
        assert offsets == list(range(offsets[0], reached))
    assert [generation for generation, _ in places] == sorted(g for g, _ in places)
