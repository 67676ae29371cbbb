"""The decisions of a replica about one dataflow: rules 5, 16, 17, 21, 22, 26."""

from dataclasses import replace

import pytest

from streams.compute.checkpoints import Checkpoint, HydrationCheckpoint
from streams.compute.stepping import (
    FromCheckpoint,
    Hydrate,
    Idle,
    Input,
    InputBatch,
    Overtaken,
    Step,
    Wait,
    can_hydrate,
    clip,
    holds,
    next_step,
    resume,
)
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, END, frontier


def batch(lower: int, upper: int, size: int = 1) -> InputBatch:
    return InputBatch(frontier(lower), frontier(upper), size)


def shard(name: str, upper: int | None, *batches: InputBatch) -> Input:
    final = EMPTY if upper is None else frontier(upper)
    return Input(CollectionId(name), frontier(0), final, batches)


def checkpoint(at: int) -> Checkpoint:
    return Checkpoint("f", "i", Timestamp(at))


def hydration(as_of: int, done: int) -> HydrationCheckpoint:
    return HydrationCheckpoint("f", "i", Timestamp(as_of), slices=5, done=done)


def test_a_step_reads_all_imports_up_to_the_least_upper() -> None:
    inputs = [shard("a", 20, batch(10, 20)), shard("b", 15, batch(12, 15))]
    assert next_step(frontier(10), inputs) == Step(frontier(10), frontier(15))


def test_waiting_names_the_import_that_blocks() -> None:
    inputs = [shard("a", 20, batch(10, 20)), shard("b", 10)]
    assert next_step(frontier(10), inputs) == Wait((CollectionId("b"),))


def test_news_beyond_the_least_upper_does_not_make_a_step() -> None:
    inputs = [shard("a", 20, batch(15, 20)), shard("b", 15)]
    assert next_step(frontier(10), inputs) == Idle(frontier(10), frontier(15))


def test_rule_22_old_and_empty_batches_are_no_news() -> None:
    inputs = [shard("a", 20, batch(0, 10), batch(10, 20, size=0))]
    assert next_step(frontier(10), inputs) == Idle(frontier(10), frontier(20))


def test_rule_22_something_scheduled_makes_a_step() -> None:
    inputs = [shard("a", 20)]
    due = next_step(frontier(10), inputs, scheduled=frontier(19))
    assert due == Step(frontier(10), frontier(20))
    later = next_step(frontier(10), inputs, scheduled=frontier(20))
    assert later == Idle(frontier(10), frontier(20))


def test_rule_22_nothing_is_decided_while_a_step_is_in_flight() -> None:
    assert next_step(frontier(10), [shard("a", 20)], in_flight=True) == Wait()


def test_nothing_is_computed_beyond_the_limit() -> None:
    news = (shard("a", 10, batch(0, 5), batch(5, 8)),)
    assert next_step(frontier(3), news, limit=frontier(7)) == Step(frontier(3), frontier(7))
    assert next_step(frontier(7), news, limit=frontier(7)) == Wait()
    assert next_step(frontier(8), news, limit=frontier(9)) == Idle(frontier(8), frontier(9))


def test_rule_5_history_that_reached_the_state_is_not_read_as_change() -> None:
    inputs = [shard("a", 20, batch(0, 20)), replace(shard("b", 20), since=frontier(10))]
    assert next_step(frontier(10), inputs) == Overtaken(Timestamp(9), frontier(10))
    assert next_step(frontier(11), inputs) == Step(frontier(11), frontier(20))


def test_a_sealed_import_is_final_for_ever() -> None:
    inputs = [shard("a", None, batch(5, 12)), shard("b", 15)]
    assert next_step(frontier(10), inputs) == Step(frontier(10), frontier(15))
    assert next_step(frontier(15), [inputs[0]]) == Idle(frontier(15), EMPTY)
    assert next_step(EMPTY, [inputs[0]]) == Wait()


def test_the_last_step_of_all_ends_at_the_last_time() -> None:
    """What arrives, or is scheduled, has a time: the step that brings it needs an upper."""
    inputs = [shard("a", None, batch(5, 12))]
    assert next_step(frontier(10), inputs) == Step(frontier(10), frontier(END))
    due = next_step(frontier(12), inputs, scheduled=frontier(30))
    assert due == Step(frontier(12), frontier(END))
    assert next_step(frontier(END), inputs) == Idle(frontier(END), EMPTY)


@pytest.mark.parametrize(
    ("budget", "upper"), [(1, 12), (9, 12), (10, 17), (13, 17), (14, 20), (None, 20)]
)
def test_rule_26_a_budget_ends_the_step_at_the_upper_of_some_batch(
    budget: int | None, upper: int
) -> None:
    inputs = [
        shard("a", 20, batch(17, 20, 4), batch(10, 12, 3), batch(12, 17, 1)),
        shard("b", 20, batch(13, 20, 6)),
    ]
    # up to 17 is 3 + 1 from a and all 6 of b, whose batch is read whole to be clipped
    step = next_step(frontier(10), inputs, budget=budget)
    assert step == Step(frontier(10), frontier(upper))


def test_rule_26_one_batch_is_taken_however_large() -> None:
    inputs = [shard("a", 30, batch(10, 20, 1000), batch(20, 30, 1))]
    assert next_step(frontier(10), inputs, budget=1) == Step(frontier(10), frontier(20))


def test_rule_26_the_cut_is_never_beyond_the_least_upper() -> None:
    inputs = [shard("a", 30, batch(10, 30, 1000)), shard("b", 15)]
    assert next_step(frontier(10), inputs, budget=1) == Step(frontier(10), frontier(15))


@pytest.mark.parametrize(
    ("shard_upper", "expected"),
    [(5, (10, 20)), (10, (10, 20)), (15, (15, 20)), (20, None), (25, None)],
)
def test_rule_16_only_what_is_still_open_is_appended(
    shard_upper: int, expected: tuple[int, int] | None
) -> None:
    clipped = clip(Step(frontier(10), frontier(20)), frontier(shard_upper))
    actual = None if clipped is None else (clipped[0].time, clipped[1].time)
    assert actual == expected


def test_nothing_is_appended_to_a_sealed_shard_but_a_seal_is() -> None:
    assert clip(Step(frontier(10), EMPTY), EMPTY) is None
    assert clip(Step(frontier(10), EMPTY), frontier(15)) == (frontier(15), EMPTY)


def test_rule_17_the_greatest_checkpoint_at_or_below_the_upper_serves() -> None:
    checkpoints = [checkpoint(10), checkpoint(15), checkpoint(21)]
    resumed = resume(checkpoints, frontier(20), [frontier(3), frontier(14)], Timestamp(1))
    assert resumed == FromCheckpoint(Timestamp(15))


def test_rule_17_a_checkpoint_that_the_inputs_since_has_reached_is_of_no_use() -> None:
    resumed = resume([checkpoint(15)], frontier(20), [frontier(15)], Timestamp(1))
    assert resumed == Hydrate(Timestamp(19))


def test_rule_17_without_checkpoint_state_is_built_at_the_last_appended_time() -> None:
    assert resume([], frontier(20), [frontier(19)], Timestamp(1)) == Hydrate(Timestamp(19))


def test_rule_17_at_birth_state_is_built_at_the_first_time() -> None:
    resumed = resume([checkpoint(8)], frontier(7), [frontier(7)], Timestamp(7))
    assert resumed == Hydrate(Timestamp(7))


def test_imports_that_went_on_ask_for_another_look() -> None:
    resumed = resume([], frontier(20), [frontier(2), frontier(25)], Timestamp(1))
    assert resumed == Overtaken(Timestamp(19), frontier(25))
    dropped = resume([], frontier(20), [EMPTY], Timestamp(1))
    assert dropped == Overtaken(Timestamp(19), EMPTY)


def test_rule_20_a_hydration_goes_on_where_it_stood() -> None:
    resumed = resume([], frontier(20), [frontier(5)], Timestamp(1), hydration(11, done=3))
    assert resumed == Hydrate(Timestamp(11), done=3)
    at_birth = resume([], frontier(7), [frontier(7)], Timestamp(7), hydration(7, done=5))
    assert at_birth == Hydrate(Timestamp(7), done=5)


def test_rule_20_a_hydration_that_can_no_longer_be_read_starts_anew() -> None:
    resumed = resume([], frontier(20), [frontier(19)], Timestamp(1), hydration(11, done=3))
    assert resumed == Hydrate(Timestamp(19))


def test_a_snapshot_can_be_read_once_every_import_is_final_there() -> None:
    assert can_hydrate(Timestamp(9), [shard("a", 10), shard("b", None)])
    assert not can_hydrate(Timestamp(10), [shard("a", 10), shard("b", None)])


def test_rule_5_a_hold_is_one_less_than_what_was_consumed() -> None:
    assert holds([checkpoint(10)], frontier(10)) == frontier(9)
    assert holds([checkpoint(0)], frontier(10)) == frontier(0)


def test_rule_21_a_hold_follows_what_was_read_back_of_the_shard() -> None:
    checkpoints = [checkpoint(10), checkpoint(20)]
    assert holds(checkpoints, frontier(19)) == frontier(9)
    assert holds(checkpoints, frontier(20)) == frontier(19)
    assert holds([checkpoint(20)], frontier(19)) is None


def test_a_hydration_under_way_holds_its_as_of() -> None:
    assert holds([], frontier(20), hydration(19, done=1)) == frontier(19)
    assert holds([checkpoint(10)], frontier(20), hydration(19, done=1)) == frontier(9)
