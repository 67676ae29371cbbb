"""Each rule left out, one at a time: what the world would be like without it.

A mutation changes the model's actors or wraps the real machines; production code knows
nothing of it. Every one of them must lead some run to a wrong answer (`test_races`), or the
rule, or the model, is not worth its place.
"""

from enum import Enum


class Mutation(Enum):
    """A rule, and how it is broken."""

    RULE_1_ID = "a writer in doubt sends the same write again as another event"
    RULE_5_HOLD = "who consumed all times before p holds p"
    RULE_6_KEY = "a chunk's key is derived from what it holds"
    RULE_6_CHECK = "a reader takes whatever record lies at a chunk's offset"
    RULE_7_RECLAIM = "the collector takes what its own state does not name, asking nobody"
    RULE_7_FLOOR = "the fold does not look at the floor"
    RULE_8_UPTO = "a reader folds on from the Rollup's own offset"
    RULE_8_TRUNCATE = "records are deleted up to the newest Rollup, counted or not"
    RULE_9_BOUND = "a compactor advances times to since, even beyond the new upper"
    RULE_9_CURRENT = "a Replace counts though a batch it replaces is gone"
    RULE_10_SWITCH = "a reader in the middle of a snapshot switches to the merged batches"
    RULE_10_PLAN = "a superseded chunk is freed at once, whoever still reads it"
    RULE_16_JUMP = "a replica that fell behind goes on at the shard's upper"
    RULE_17_SINCE = "a replica restarts from a checkpoint that the inputs' since has passed"
    RULE_17_UPPER = "a replica restarts from a checkpoint whose Append never counted"
    RULE_18_RELINK = "an ingestion that lost links its chunks for what is still open"
    RULE_18_STATE = "an ingestion that lost keeps its keyed state"
    RULE_18_TABLE = "a table write that lost is clipped"
    RULE_19_NAMES = "a run file is named after the step that writes it"
    RULE_20_PLAN = "a hydration that goes on divides the snapshot anew"
    RULE_21_REPLAY = "a driver that starts replays the interval in Spark's old checkpoint"
    RULE_21_HOLDS = "holds are downgraded when a step is planned"
    RULE_22_OWN = "the idle path appends from the shard's upper"
    RULE_22_EMPTY = "the idle path looks at one import only"
    RULE_22_SCHEDULED = "the idle path does not ask what is scheduled"
    RULE_22_FLIGHT = "the idle path moves the checkpoint while a step is in flight"
    RULE_24_UNDO = "another version goes on where it finds the shard, and takes nothing back"
    RULE_24_RACE = "a correction that lost its race counts, as far as it is still open"
    CHAIN_VOID = "a view's Append is made although its source's was void"
    CHAIN_RECORD = "a view's checkpoint is kept although its source's Append was void"
    MACHINE_STEPPED = "a step that counts leaves the frontier where it was"
    MACHINE_BUILT = "the state after a build is taken for that before its interval"
    MACHINE_VOID = "an attempt that is void moves the state of its dataflow"


QUIET: dict[str, float | None] = {
    "busy": 0.2,
    "late": 0.0,
    "lost": 0.0,
    "fresh": 1.0,
    "lease": 1000,
    "budget": None,
    "replicas": 20,
    "laggard": 5,
    "reader": 0,
    "compactor": 0,
    "collector": 0,
}
"""Little happens, and one replica is slower than the other."""

WEATHER: dict[Mutation, dict[str, float | None]] = {
    Mutation.RULE_1_ID: {"late": 0.6, "busy": 1.0, "fresh": 0.7, "replicas": 2, "laggard": 2},
    Mutation.RULE_5_HOLD: {"since_lag": 1, "compactor": 6, "controller": 6},
    Mutation.RULE_6_CHECK: {
        "reader": 30,
        "collector": 20,
        "compactor": 20,
        "clean": 0.3,
        "fresh": 0.3,
        "replicas": 2,
        "lease": 20,
    },
    Mutation.RULE_10_SWITCH: {"reader": 10, "compactor": 6},
    Mutation.RULE_10_PLAN: {
        "reader": 20,
        "compactor": 10,
        "collector": 20,
        "clean": 0.2,
        "lease": 1000,
        "replicas": 6,
        "laggard": 6,
        "stop": 0.0,
        "crash": 0.0,
    },
    Mutation.RULE_17_SINCE: {
        "stop": 0.04,
        "away": 60,
        "lease": 20,
        "wipe": 0.0,
        "since_lag": 1,
        "compactor": 10,
        "controller": 10,
        "budget": None,
    },
    Mutation.RULE_17_UPPER: {"stop": 0.04, "wipe": 0.0},
    Mutation.RULE_19_NAMES: {
        "stop": 0.06,
        "away": 10,
        "zombie": 0.8,
        "wipe": 0.0,
        "busy": 1.0,
        "replicas": 20,
        "lease": 1000,
    },
    Mutation.RULE_20_PLAN: {
        "stop": 0.1,
        "away": 60,
        "compactor": 20,
        "replicas": 6,
        "laggard": 6,
        "budget": 1,
        "lease": 1000,
        "wipe": 0.0,
        "busy": 1.0,
    },
    Mutation.RULE_21_REPLAY: {
        "stop": 0.04,
        "away": 60,
        "lease": 20,
        "wipe": 0.0,
        "since_lag": 1,
        "compactor": 10,
        "controller": 10,
        "budget": None,
    },
    Mutation.RULE_21_HOLDS: {"since_lag": 1, "compactor": 10, "lease": 1000},
    Mutation.RULE_22_OWN: QUIET | {"stop": 0.0},
    Mutation.RULE_22_FLIGHT: QUIET | {"stop": 0.03, "away": 10, "wipe": 0.0, "laggard": 20},
    Mutation.RULE_24_UNDO: {"upgrader": 12, "lease": 1000, "replicas": 6, "crash": 0.0},
    Mutation.RULE_24_RACE: {"upgrader": 12, "lease": 1000, "replicas": 6, "crash": 0.0},
    Mutation.CHAIN_VOID: {"chained": 0.7, "busy": 1.0},
    Mutation.MACHINE_VOID: {"chained": 0.7, "busy": 1.0},
    Mutation.CHAIN_RECORD: {
        "chained": 0.7,
        "busy": 1.0,
        "stop": 0.06,
        "away": 10,
        "wipe": 0.0,
        "lease": 1000,
        "replicas": 20,
        "laggard": 20,
        "budget": None,
    },
}
"""What makes it likely that a missing rule shows: not needed, but it saves runs."""

FOUND: dict[Mutation, int] = {
    Mutation.RULE_1_ID: 20,
    Mutation.RULE_5_HOLD: 3,
    Mutation.RULE_7_RECLAIM: 1,
    Mutation.RULE_7_FLOOR: 8,
    Mutation.RULE_8_UPTO: 10,
    Mutation.RULE_8_TRUNCATE: 17,
    Mutation.RULE_9_BOUND: 6,
    Mutation.RULE_9_CURRENT: 3,
    Mutation.RULE_16_JUMP: 1,
    Mutation.RULE_17_SINCE: 13,
    Mutation.RULE_17_UPPER: 2,
    Mutation.RULE_18_TABLE: 9,
    Mutation.RULE_19_NAMES: 45,
    Mutation.RULE_20_PLAN: 23,
    Mutation.RULE_21_REPLAY: 13,
    Mutation.RULE_21_HOLDS: 7,
    Mutation.RULE_22_OWN: 10,
    Mutation.RULE_22_EMPTY: 1,
    Mutation.RULE_22_SCHEDULED: 21,
    Mutation.RULE_22_FLIGHT: 21,
    Mutation.RULE_24_RACE: 21,
    Mutation.CHAIN_VOID: 5,
    Mutation.CHAIN_RECORD: 72,
    Mutation.MACHINE_VOID: 6,
}
"""The first run that went wrong, where it is not run 0, when it was last searched for."""
