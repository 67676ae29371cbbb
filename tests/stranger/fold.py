"""The fold of a group's log, as a stranger writes one from the page.

The section numbers are those of `schemas/CLIENTS.md`, part 4. A state is kept as plain
records, in the words of `schemas/avro/shard_state.avsc`.
"""

from collections.abc import Iterable
from typing import Any

from tests.stranger import wire
from tests.stranger.values import (
    EMPTY,
    FOR_EVER,
    Record,
    bare,
    binding,
    copied,
    has_gap,
    later,
    loaded,
    nothing,
    unranged,
)

LAST = FOR_EVER - 1  # the largest number that a state holds
KEPT, WINDOW, STRIDE, TICK = 4096, 1024, 64, 30_000


class Fold:
    """The state of one group: what its log says. Offsets come one after the other."""

    def __init__(self) -> None:
        self.group = ""
        self.upto = -1
        self.clock = 0
        self.appended = 0  # the last record's append time
        self.collections: dict[str, Record] = {}
        self.decided: dict[str, int] = {}  # the offset at which an event was decided
        self.commands: dict[str, None] = {}  # those that carried out commands, oldest first
        self.floor: dict[int, int] = {}
        self.stages: dict[str, Record] = {}
        self.superseded: list[Record] = []
        self.rollups: list[Record] = []
        self.began = -1  # the upto of the state that was loaded
        self.passed: set[int] = set()
        self.expected: dict[int, Record] = {}  # what rollups hold that are to be checked
        self.refuted: set[int] = set()  # those of them that are not what the records come to

    # 4.2: which events count

    def step(self, offset: int, at_ms: int, value: bytes) -> None:
        assert offset == self.upto + 1, "a record is missing"
        self.compare()
        name, event = wire.decode(value)
        assert name.startswith("shard_"), name
        if name == "shard_skip":  # void itself: who folds knows it already (4.7)
            self.tick(offset, at_ms)
            return
        kind = name.removeprefix("shard_")
        self.tick(offset, at_ms)
        if self.group and event["group"] != self.group:
            return
        id_, seen = event["id"], event["seen"]
        is_command = id_.startswith("command:")
        if is_command and id_ in list(self.commands)[-KEPT:]:
            return
        if seen < offset - WINDOW:
            return
        if not is_command and self.decided.get(id_, -1) > seen:
            return
        getattr(self, f"on_{kind}")(event, offset)
        if is_command:
            self.commands.pop(id_, None)
            self.commands[id_] = None
        else:
            self.decided[id_] = offset

    def pass_over(self, offset: int) -> None:
        """What lies at an offset is as if it were not (4.7): no clock moves."""
        assert offset == self.upto + 1, "a record is missing"
        self.compare()
        self.upto = offset
        self.passed.add(offset)

    def has_folded(self, offsets: Iterable[int]) -> bool:
        """Whether something counted of what is to be passed over, as we hear now."""
        return any(
            self.began < offset <= self.upto and offset not in self.passed for offset in offsets
        )

    def compare(self) -> None:
        """Note whether a rollup of the state up to here holds another one (4.5)."""
        if self.upto in self.expected:
            other = Fold()
            other.load(self.expected.pop(self.upto))
            if self.contents() != other.contents():
                self.refuted.add(self.upto)

    def contents(self) -> dict[str, Any]:
        """What two folds of the same records have in common, wherever they began."""
        decided = {i: at for i, at in self.decided.items() if at >= self.upto - WINDOW}
        left_out = ("began", "passed", "expected", "refuted", "decided", "commands")
        rest = {name: value for name, value in vars(self).items() if name not in left_out}
        remembered = list(self.commands)[-KEPT:]
        collections = {
            id_: {**shard, "batches": sorted(shard["batches"], key=repr)}
            for id_, shard in self.collections.items()
        }
        return {**rest, "decided": decided, "kept": remembered, "collections": collections}

    def tick(self, offset: int, at_ms: int) -> None:
        passed = min(max(at_ms - self.appended, 0), TICK)
        self.clock = at_ms if self.upto < 0 else min(self.clock + passed, LAST)
        self.upto, self.appended = offset, at_ms
        for name in [n for n, s in self.stages.items() if s["expires_ms"] <= self.clock]:
            del self.stages[name]
        for _, shard in sorted(self.collections.items()):
            handles = shard["capabilities"]
            leases = [(n, c["expires_ms"]) for n, c in handles.items()]
            expired = [n for n, end in leases if end is not None and end <= self.clock]
            for name in expired:
                del handles[name]
            if expired:
                self.settle(shard)
                if shard["sealing"]:
                    self.seal_if_last(shard)
                self.end_if_last(shard, offset)

    # 4.3: frontiers follow handles

    def settle(self, shard: Record) -> None:
        handles = shard["capabilities"].values()
        writes = [handle["frontier"] for handle in handles if handle["right"] == "WRITE"]
        reads = [handle["frontier"] for handle in handles if handle["right"] == "READ"]
        if writes and shard["upper"] is not EMPTY:
            shard["upper"] = max(shard["upper"], min(writes))
        if reads:
            newest = min(reads)
            if shard["upper"] is not EMPTY:
                newest = min(newest, shard["upper"] - 1)
            shard["since"] = max(shard["since"], newest)

    def seal_if_last(self, shard: Record) -> None:
        if not any(handle["right"] == "WRITE" for handle in shard["capabilities"].values()):
            shard.update(upper=EMPTY, sealing=False)
            self.settle(shard)

    def live(self, id_: str) -> Record | None:
        """The shard, if it was created and not dropped."""
        shard = self.collections.get(id_)
        return None if shard is None or shard["since"] is EMPTY else shard

    def presented(self, shard: Record | None, event: Record) -> Record | None:
        """The handle that is presented, if it is live and its token fits."""
        handle = None if shard is None else shard["capabilities"].get(event["capability"])
        return None if handle is None or handle["token"] != event["token"] else handle

    def granted(self, right: str, frontier: int, lease: int | None, **more: Any) -> Record:
        handle = {
            "right": right,
            "frontier": frontier,
            "lease_ms": lease,
            "expires_ms": None,
        }
        self.renew(handle)
        return {**handle, "plan": None, "token": "", **more}

    def renew(self, handle: Record) -> None:
        if handle["lease_ms"] is not None:
            handle["expires_ms"] = min(self.clock + handle["lease_ms"], LAST)

    def plan(self, handle: Record, new: int | None) -> None:
        """A plan moves forward, or ends."""
        both = handle["plan"] is not None and new is not None
        handle["plan"] = max(handle["plan"], new) if both else new

    def on_create(self, event: Record, offset: int) -> None:
        if event["collection"] in self.collections:
            return
        self.group = event["group"]
        start, lease = event["frontier"], event["lease_ms"]
        for_ever = event["is_write_critical"]
        handles = {event["write"]: self.granted("WRITE", start, None if for_ever else lease)}
        if event["read"] is not None:
            handles[event["read"]] = self.granted("READ", start, lease)
        self.collections[event["collection"]] = {
            **nothing(),
            "description": event["description"],
            "since": start,
            "upper": start,
            "capabilities": handles,
        }

    def on_acquire(self, event: Record, offset: int) -> None:
        shard = self.live(event["collection"])
        token, name = event["token"], event["capability"]
        if shard is None or (token and event["lease_ms"] is not None):
            return
        old = shard["capabilities"].get(name)
        if old is not None:
            if (old["token"], old["right"]) == (token, event["right"]):
                self.renew(old)
                self.plan(old, event["plan"])
            return
        start = shard["upper"] if event["right"] == "WRITE" else shard["since"]
        if event["right"] == "READ" and event["frontier"] is not None:
            start = max(start, event["frontier"])
        if start is EMPTY:
            return
        lease, plan = event["lease_ms"], event["plan"]
        handle = self.granted(event["right"], start, lease, plan=plan, token=token)
        shard["capabilities"][name] = handle
        self.settle(shard)

    def on_clone(self, event: Record, offset: int) -> None:
        shard = self.live(event["collection"])
        old = self.presented(shard, event)
        if shard is None or old is None or event["clone"] in shard["capabilities"]:
            return
        lease = old["lease_ms"] if event["lease_ms"] is None else event["lease_ms"]
        token = old["token"] if lease is None else ""
        handle = self.granted(old["right"], old["frontier"], lease, token=token)
        shard["capabilities"][event["clone"]] = handle

    def on_transfer(self, event: Record, offset: int) -> None:
        shard = self.live(event["collection"])
        old = self.presented(shard, event)
        if shard is None or old is None or event["to"] in shard["capabilities"]:
            return
        self.renew(old)
        shard["capabilities"][event["to"]] = shard["capabilities"].pop(event["capability"])

    def on_downgrade(self, event: Record, offset: int) -> None:
        shard = self.live(event["collection"])
        old = self.presented(shard, event)
        if shard is None or old is None or event["frontier"] is EMPTY:
            return
        if event["new_token"] is not None:
            if old["lease_ms"] is not None or event["frontier"] < old["frontier"]:
                return
            old["token"] = event["new_token"]
        lower, target = old["frontier"], max(old["frontier"], event["frontier"])
        self.renew(old)
        self.plan(old, event["plan"])
        old["frontier"] = target
        if old["right"] == "WRITE" and target != lower:
            self.link(shard, (offset, 0), lower, target, [])
        self.settle(shard)

    def on_drop(self, event: Record, offset: int) -> None:
        shard = self.live(event["collection"])
        if shard is None:
            return
        if event["capability"] is None:
            self.forget(shard, offset)
            return
        old, name = self.presented(shard, event), event["capability"]
        others = [n for n, c in shard["capabilities"].items() if c["right"] == "WRITE"]
        if old is None or (event["sole"] and set(others) - {name}):
            return
        del shard["capabilities"][event["capability"]]
        self.settle(shard)
        if old["right"] == "WRITE":
            self.seal_if_last(shard)
        shard["released"] |= event["whole"]
        self.end_if_last(shard, offset)

    def end_if_last(self, shard: Record, offset: int) -> None:
        """Forget a shard that was released and that nobody holds for reading."""
        rights = [handle["right"] for handle in shard["capabilities"].values()]
        if shard["released"] and "READ" not in rights:
            self.forget(shard, offset)

    def forget(self, shard: Record, offset: int) -> None:
        """Nothing is left of a shard but its id."""
        batches = sorted(shard["batches"], key=lambda chunk: (chunk["offset"], chunk["part"]))
        self.supersede(offset, [chunk for batch in batches for chunk in batch["chunks"]])
        shard.update(nothing())

    # 4.2: Append and Advance

    def on_append(self, event: Record, offset: int) -> None:
        parts, renewals = event["parts"], event["renewals"]
        touched = {part["collection"] for part in (*parts, *renewals)}
        before = {
            id_: copied(shard) for id_, shard in self.collections.items() if id_ in touched
        }
        stages = self.stages
        is_counting = bool(parts) and not self.is_overtaken(event)
        for number, part in enumerate(parts):
            is_counting = is_counting and self.fits(part)
            if is_counting:
                self.link_part(part, (offset, number))
        is_counting = is_counting and all(self.is_renewed(renewal) for renewal in renewals)
        if not is_counting:  # nothing of it counts
            self.collections.update(before)
            self.stages = stages

    def is_overtaken(self, event: Record) -> bool:
        """Whether updates came to the collections after what its writer had read of them."""
        upto = event["read_upto"]
        collections = [self.collections.get(part["collection"]) for part in event["parts"]]
        changed = [shard["changed"] for shard in collections if shard is not None]
        return upto is not None and any(at is not None and at > upto for at in changed)

    def is_renewed(self, presented: Record) -> bool:
        """Whether a handle that does not move is valid where it is said to stand."""
        handle = self.presented(self.live(presented["collection"]), presented)
        if handle is None or handle["right"] != "WRITE":
            return False
        self.renew(handle)
        return bool(handle["frontier"] == presented["frontier"])

    def fits(self, part: Record) -> bool:
        """Whether the part counts, those before it having counted."""
        shard = self.live(part["collection"])
        handle = self.presented(shard, part)
        before, after = binding(part["from_offsets"]), binding(part["to_offsets"])
        if shard is None or handle is None or handle["right"] != "WRITE":
            return False
        if handle["frontier"] != part["lower"] or later(part["upper"]) <= part["lower"]:
            return False
        if part["fingerprint"] and part["fingerprint"] in shard["fenced"]:
            return False
        if (before is None) != (after is None):
            return False
        if before is not None and after is not None:
            if any(p not in after or after[p] < o for p, o in before.items()):
                return False
            if before != (shard["source"] or {}):
                return False
        if any(stage not in self.stages for stage in part["stages"]):
            return False
        return not self.is_gone(part["chunks"])

    def link_part(self, part: Record, place: tuple[int, int]) -> None:
        shard = self.collections[part["collection"]]
        staged = [chunk for stage in part["stages"] for chunk in self.stages[stage]["chunks"]]
        self.stages = {n: s for n, s in self.stages.items() if n not in part["stages"]}
        if part["upper"] is EMPTY:
            del shard["capabilities"][part["capability"]]
        else:
            shard["capabilities"][part["capability"]]["frontier"] = part["upper"]
        if part["to_offsets"] is not None:
            shard["source"] = binding(part["to_offsets"])
        chunks = bare(part["chunks"]) + staged
        shard["changed"] = place[0] if chunks else shard["changed"]
        self.link(shard, place, part["lower"], part["upper"], chunks)
        self.settle(shard)
        if part["upper"] is EMPTY:
            self.seal_if_last(shard)
        if part["fingerprint"] and part["fingerprint"] != shard["fingerprint"]:
            shard["fenced"] |= {shard["fingerprint"]} - {""}
            shard["fingerprint"] = part["fingerprint"]

    def on_advance(self, event: Record, offset: int) -> None:
        lower, upper = event["lower"], event["upper"]
        for id_, shard in self.collections.items():
            system = f"{id_}.write"
            handles = shard["capabilities"]
            writes = {n: c["frontier"] for n, c in handles.items() if c["right"] == "WRITE"}
            start = writes.pop(system, None)
            if start is None or start > lower or min(writes.values(), default=upper) < upper:
                continue
            if lower < upper:
                handles[system]["frontier"] = upper
                self.link(shard, (offset, 0), start, upper, [])
                self.settle(shard)

    # 4.4: batches

    def link(
        self,
        shard: Record,
        place: tuple[int, int],
        lower: int,
        upper: int | None,
        chunks: list[Record],
    ) -> None:
        """One more batch; an empty one widens the empty one that it continues."""
        batch = {
            "offset": place[0],
            "part": place[1],
            "lower": lower,
            "upper": upper,
            "since": 0,
            "chunks": chunks,
            "source": shard["source"],
        }
        before = [
            batch
            for batch in shard["batches"]
            if not chunks
            and not batch["chunks"]
            and batch["upper"] == lower
            and batch["source"] == shard["source"]
        ]
        if before:
            old = max(before, key=lambda batch: (batch["offset"], batch["part"]))
            shard["batches"].remove(old)
            batch.update(lower=old["lower"], since=old["since"])
        shard["batches"].append(batch)
        shard["sealing"] = upper is EMPTY  # until another one moves (4.3)

    def on_replace(self, event: Record, offset: int) -> None:
        shard, names = self.live(event["collection"]), event["replaced"]
        if shard is None or not names or any(names.count(name) > 1 for name in names):
            return
        current = {tuple(b[name] for name in names[0]): b for b in shard["batches"]}
        old = [current.get(tuple(name.values())) for name in names]
        replaced = [batch for batch in old if batch is not None]
        if len(replaced) < len(names) or has_gap(replaced):
            return
        end = max(later(batch["upper"]) for batch in replaced)
        if event["since"] > shard["since"] or end > later(shard["upper"]):
            return
        stages = event["stages"]
        if any(stage not in self.stages for stage in stages) or self.is_gone(event["chunks"]):
            return
        staged = [chunk for stage in stages for chunk in self.stages[stage]["chunks"]]
        self.stages = {n: s for n, s in self.stages.items() if n not in stages}
        merged = {
            "offset": offset,
            "part": 0,
            "lower": min(batch["lower"] for batch in replaced),
            "upper": EMPTY if end == FOR_EVER else end,
            "since": event["since"],
            "chunks": bare(event["chunks"]) + staged,
            "source": max(replaced, key=lambda batch: batch["lower"])["source"],
        }
        shard["batches"] = [batch for batch in shard["batches"] if batch not in replaced]
        shard["batches"].append(merged)
        if any(batch["chunks"] for batch in (merged, *replaced)):
            shard["changed"] = offset
        self.supersede(offset, [chunk for batch in replaced for chunk in batch["chunks"]])

    # 4.5: what is named

    def named(self) -> set[tuple[Any, ...]]:
        """The chunks that may not be reclaimed."""
        linked = [b for f in self.collections.values() for b in f["batches"]]
        places = (*linked, *self.stages.values(), *self.superseded, *self.rollups)
        return {tuple(chunk.values()) for place in places for chunk in place["chunks"]}

    def is_gone(self, chunks: list[Record]) -> bool:
        """Whether one of the chunks lies below the floor and is not named."""
        low = [c for c in bare(chunks) if c["offset"] < self.floor.get(c["partition"], 0)]
        return bool(low) and not {tuple(chunk.values()) for chunk in low} <= self.named()

    def supersede(self, offset: int, chunks: list[Record]) -> None:
        if chunks:
            self.superseded.append({"offset": offset, "chunks": chunks})

    def on_stage(self, event: Record, offset: int) -> None:
        if self.is_gone(event["chunks"]):
            return
        staged = self.stages.get(event["stage"], {"chunks": []})["chunks"]
        chunks = [*staged, *bare(event["chunks"])]
        expires = min(self.clock + event["lease_ms"], LAST)
        self.stages[event["stage"]] = {"chunks": chunks, "expires_ms": expires}

    def on_reclaim(self, event: Record, offset: int) -> None:
        for partition, low in (binding(event["floor"]) or {}).items():
            self.floor[partition] = max(self.floor.get(partition, 0), low)
        handles = [c for f in self.collections.values() for c in f["capabilities"].values()]
        oldest = min((c["plan"] for c in handles if c["plan"] is not None), default=FOR_EVER)
        self.superseded = [chunk for chunk in self.superseded if oldest <= chunk["offset"]]

    def on_rollup(self, event: Record, offset: int) -> None:
        upto = event["upto"]
        newest = self.rollups[-1]["upto"] if self.rollups else -1
        if upto >= offset or upto % STRIDE != STRIDE - 1:
            return
        if upto <= newest or upto < offset - WINDOW or self.is_gone(event["chunks"]):
            return
        assert upto not in self.refuted, f"the rollup at {upto} is not what the records come to"
        out = [chunk for old in self.rollups[:-1] for chunk in old["chunks"]]
        rollup = {"upto": upto, "chunks": bare(event["chunks"]), "hash": event["hash"]}
        self.supersede(offset, out)
        self.rollups = [*self.rollups[-1:], rollup]

    # 4.6: beginning at a rollup

    def load(self, state: Record) -> None:
        self.group, self.upto, self.clock = state["group"], state["upto"], state["clock_ms"]
        self.appended, self.began = state["appended_ms"], self.upto
        for shard in state["collections"]:
            self.collections[shard["id"]] = loaded(shard)
        for id_ in state["dropped"]:
            self.collections[id_] = nothing()
        self.decided = {d["id"]: d["offset"] for d in state["decided"]}
        self.commands = {d["id"]: None for d in state["kept"]}
        self.floor = binding(state["floor"]) or {}
        self.stages = {s.pop("name"): s for s in map(unranged, state["stages"])}
        self.superseded = [unranged(chunk) for chunk in state["superseded"]]
        self.rollups = [unranged(rollup) for rollup in state["rollups"]]
