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
        rest = {name: each for name, each in vars(self).items() if name not in left_out}
        kept = list(self.commands)[-KEPT:]
        collections = {
            id_: {**each, "batches": sorted(each["batches"], key=repr)}
            for id_, each in self.collections.items()
        }
        return {**rest, "decided": decided, "kept": kept, "collections": collections}

    def tick(self, offset: int, at_ms: int) -> None:
        passed = min(max(at_ms - self.appended, 0), TICK)
        self.clock = at_ms if self.upto < 0 else min(self.clock + passed, LAST)
        self.upto, self.appended = offset, at_ms
        for name in [n for n, s in self.stages.items() if s["expires_ms"] <= self.clock]:
            del self.stages[name]
        for _, found in sorted(self.collections.items()):
            held = found["capabilities"]
            leases = [(n, c["expires_ms"]) for n, c in held.items()]
            gone = [n for n, end in leases if end is not None and end <= self.clock]
            for each in gone:
                del held[each]
            if gone:
                self.settle(found)
                if found["sealing"]:
                    self.seal_if_last(found)
                self.end_if_last(found, offset)

    # 4.3: frontiers follow capabilities

    def settle(self, found: Record) -> None:
        held = found["capabilities"].values()
        writes = [each["frontier"] for each in held if each["right"] == "WRITE"]
        reads = [each["frontier"] for each in held if each["right"] == "READ"]
        if writes and found["upper"] is not EMPTY:
            found["upper"] = max(found["upper"], min(writes))
        if reads:
            newest = min(reads)
            if found["upper"] is not EMPTY:
                newest = min(newest, found["upper"] - 1)
            found["since"] = max(found["since"], newest)

    def seal_if_last(self, found: Record) -> None:
        if not any(each["right"] == "WRITE" for each in found["capabilities"].values()):
            found.update(upper=EMPTY, sealing=False)
            self.settle(found)

    def live(self, id_: str) -> Record | None:
        """The collection, if it was created and not dropped."""
        found = self.collections.get(id_)
        return None if found is None or found["since"] is EMPTY else found

    def presented(self, found: Record | None, event: Record) -> Record | None:
        """The capability that is presented, if it is live and its token fits."""
        held = None if found is None else found["capabilities"].get(event["capability"])
        return None if held is None or held["token"] != event["token"] else held

    def granted(self, right: str, frontier: int, lease: int | None, **more: Any) -> Record:
        made = {"right": right, "frontier": frontier, "lease_ms": lease, "expires_ms": None}
        self.renew(made)
        return {**made, "plan": None, "token": "", **more}

    def renew(self, held: Record) -> None:
        if held["lease_ms"] is not None:
            held["expires_ms"] = min(self.clock + held["lease_ms"], LAST)

    def plan(self, held: Record, new: int | None) -> None:
        """A plan moves forward, or ends."""
        both = held["plan"] is not None and new is not None
        held["plan"] = max(held["plan"], new) if both else new

    def on_create(self, event: Record, offset: int) -> None:
        if event["collection"] in self.collections:
            return
        self.group = event["group"]
        start, lease = event["frontier"], event["lease_ms"]
        for_ever = event["is_write_critical"]
        held = {event["write"]: self.granted("WRITE", start, None if for_ever else lease)}
        if event["read"] is not None:
            held[event["read"]] = self.granted("READ", start, lease)
        self.collections[event["collection"]] = {
            **nothing(),
            "description": event["description"],
            "since": start,
            "upper": start,
            "capabilities": held,
        }

    def on_acquire(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        token, name = event["token"], event["capability"]
        if found is None or (token and event["lease_ms"] is not None):
            return
        old = found["capabilities"].get(name)
        if old is not None:
            if (old["token"], old["right"]) == (token, event["right"]):
                self.renew(old)
                self.plan(old, event["plan"])
            return
        start = found["upper"] if event["right"] == "WRITE" else found["since"]
        if event["right"] == "READ" and event["frontier"] is not None:
            start = max(start, event["frontier"])
        if start is EMPTY:
            return
        lease, plan = event["lease_ms"], event["plan"]
        made = self.granted(event["right"], start, lease, plan=plan, token=token)
        found["capabilities"][name] = made
        self.settle(found)

    def on_clone(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        old = self.presented(found, event)
        if found is None or old is None or event["clone"] in found["capabilities"]:
            return
        lease = old["lease_ms"] if event["lease_ms"] is None else event["lease_ms"]
        token = old["token"] if lease is None else ""
        made = self.granted(old["right"], old["frontier"], lease, token=token)
        found["capabilities"][event["clone"]] = made

    def on_transfer(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        old = self.presented(found, event)
        if found is None or old is None or event["to"] in found["capabilities"]:
            return
        self.renew(old)
        found["capabilities"][event["to"]] = found["capabilities"].pop(event["capability"])

    def on_downgrade(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        old = self.presented(found, event)
        if found is None or old is None or event["frontier"] is EMPTY:
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
            self.link(found, (offset, 0), lower, target, [])
        self.settle(found)

    def on_drop(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        if found is None:
            return
        if event["capability"] is None:
            self.forget(found, offset)
            return
        old, name = self.presented(found, event), event["capability"]
        others = [n for n, c in found["capabilities"].items() if c["right"] == "WRITE"]
        if old is None or (event["sole"] and set(others) - {name}):
            return
        del found["capabilities"][event["capability"]]
        self.settle(found)
        if old["right"] == "WRITE":
            self.seal_if_last(found)
        found["released"] |= event["whole"]
        self.end_if_last(found, offset)

    def end_if_last(self, found: Record, offset: int) -> None:
        """Forget a collection that was released and that nobody holds for reading."""
        rights = [each["right"] for each in found["capabilities"].values()]
        if found["released"] and "READ" not in rights:
            self.forget(found, offset)

    def forget(self, found: Record, offset: int) -> None:
        """Nothing is left of a collection but its id."""
        batches = sorted(found["batches"], key=lambda each: (each["offset"], each["part"]))
        self.supersede(offset, [chunk for batch in batches for chunk in batch["chunks"]])
        found.update(nothing())

    # 4.2: Append and Advance

    def on_append(self, event: Record, offset: int) -> None:
        parts, renewals = event["parts"], event["renewals"]
        touched = {each["collection"] for each in (*parts, *renewals)}
        before = {id_: copied(each) for id_, each in self.collections.items() if id_ in touched}
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
        found = [self.collections.get(part["collection"]) for part in event["parts"]]
        changed = [each["changed"] for each in found if each is not None]
        return upto is not None and any(at is not None and at > upto for at in changed)

    def is_renewed(self, presented: Record) -> bool:
        """Whether a capability that does not move is valid where it is said to stand."""
        held = self.presented(self.live(presented["collection"]), presented)
        if held is None or held["right"] != "WRITE":
            return False
        self.renew(held)
        return bool(held["frontier"] == presented["frontier"])

    def fits(self, part: Record) -> bool:
        """Whether the part counts, those before it having counted."""
        found = self.live(part["collection"])
        held = self.presented(found, part)
        before, after = binding(part["from_offsets"]), binding(part["to_offsets"])
        if found is None or held is None or held["right"] != "WRITE":
            return False
        if held["frontier"] != part["lower"] or later(part["upper"]) <= part["lower"]:
            return False
        if part["fingerprint"] and part["fingerprint"] in found["fenced"]:
            return False
        if (before is None) != (after is None):
            return False
        if before is not None and after is not None:
            if any(p not in after or after[p] < o for p, o in before.items()):
                return False
            if before != (found["source"] or {}):
                return False
        if any(stage not in self.stages for stage in part["stages"]):
            return False
        return not self.is_gone(part["chunks"])

    def link_part(self, part: Record, place: tuple[int, int]) -> None:
        found = self.collections[part["collection"]]
        staged = [chunk for stage in part["stages"] for chunk in self.stages[stage]["chunks"]]
        self.stages = {n: s for n, s in self.stages.items() if n not in part["stages"]}
        if part["upper"] is EMPTY:
            del found["capabilities"][part["capability"]]
        else:
            found["capabilities"][part["capability"]]["frontier"] = part["upper"]
        if part["to_offsets"] is not None:
            found["source"] = binding(part["to_offsets"])
        chunks = bare(part["chunks"]) + staged
        found["changed"] = place[0] if chunks else found["changed"]
        self.link(found, place, part["lower"], part["upper"], chunks)
        self.settle(found)
        if part["upper"] is EMPTY:
            self.seal_if_last(found)
        if part["fingerprint"] and part["fingerprint"] != found["fingerprint"]:
            found["fenced"] |= {found["fingerprint"]} - {""}
            found["fingerprint"] = part["fingerprint"]

    def on_advance(self, event: Record, offset: int) -> None:
        lower, upper = event["lower"], event["upper"]
        for id_, found in self.collections.items():
            system = f"{id_}.write"
            held = found["capabilities"]
            writes = {n: c["frontier"] for n, c in held.items() if c["right"] == "WRITE"}
            start = writes.pop(system, None)
            if start is None or start > lower or min(writes.values(), default=upper) < upper:
                continue
            if lower < upper:
                held[system]["frontier"] = upper
                self.link(found, (offset, 0), start, upper, [])
                self.settle(found)

    # 4.4: batches

    def link(
        self,
        found: Record,
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
            "source": found["source"],
        }
        before = [
            each
            for each in found["batches"]
            if not chunks
            and not each["chunks"]
            and each["upper"] == lower
            and each["source"] == found["source"]
        ]
        if before:
            old = max(before, key=lambda each: (each["offset"], each["part"]))
            found["batches"].remove(old)
            batch.update(lower=old["lower"], since=old["since"])
        found["batches"].append(batch)
        found["sealing"] = upper is EMPTY  # until another one moves (4.3)

    def on_replace(self, event: Record, offset: int) -> None:
        found, names = self.live(event["collection"]), event["replaced"]
        if found is None or not names or any(names.count(name) > 1 for name in names):
            return
        current = {tuple(b[each] for each in names[0]): b for b in found["batches"]}
        old = [current.get(tuple(name.values())) for name in names]
        gone = [each for each in old if each is not None]
        if len(gone) < len(names) or has_gap(gone):
            return
        end = max(later(batch["upper"]) for batch in gone)
        if event["since"] > found["since"] or end > later(found["upper"]):
            return
        stages = event["stages"]
        if any(stage not in self.stages for stage in stages) or self.is_gone(event["chunks"]):
            return
        staged = [chunk for stage in stages for chunk in self.stages[stage]["chunks"]]
        self.stages = {n: s for n, s in self.stages.items() if n not in stages}
        merged = {
            "offset": offset,
            "part": 0,
            "lower": min(batch["lower"] for batch in gone),
            "upper": EMPTY if end == FOR_EVER else end,
            "since": event["since"],
            "chunks": bare(event["chunks"]) + staged,
            "source": max(gone, key=lambda batch: batch["lower"])["source"],
        }
        found["batches"] = [batch for batch in found["batches"] if batch not in gone]
        found["batches"].append(merged)
        if any(batch["chunks"] for batch in (merged, *gone)):
            found["changed"] = offset
        self.supersede(offset, [chunk for batch in gone for chunk in batch["chunks"]])

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
        known = self.stages.get(event["stage"], {"chunks": []})["chunks"]
        chunks = [*known, *bare(event["chunks"])]
        expires = min(self.clock + event["lease_ms"], LAST)
        self.stages[event["stage"]] = {"chunks": chunks, "expires_ms": expires}

    def on_reclaim(self, event: Record, offset: int) -> None:
        for partition, low in (binding(event["floor"]) or {}).items():
            self.floor[partition] = max(self.floor.get(partition, 0), low)
        held = [c for f in self.collections.values() for c in f["capabilities"].values()]
        oldest = min((c["plan"] for c in held if c["plan"] is not None), default=FOR_EVER)
        self.superseded = [each for each in self.superseded if oldest <= each["offset"]]

    def on_rollup(self, event: Record, offset: int) -> None:
        upto = event["upto"]
        newest = self.rollups[-1]["upto"] if self.rollups else -1
        if upto >= offset or upto % STRIDE != STRIDE - 1:
            return
        if upto <= newest or upto < offset - WINDOW or self.is_gone(event["chunks"]):
            return
        assert upto not in self.refuted, f"the rollup at {upto} is not what the records come to"
        out = [chunk for old in self.rollups[:-1] for chunk in old["chunks"]]
        made = {"upto": upto, "chunks": bare(event["chunks"]), "hash": event["hash"]}
        self.supersede(offset, out)
        self.rollups = [*self.rollups[-1:], made]

    # 4.6: beginning at a rollup

    def load(self, state: Record) -> None:
        self.group, self.upto, self.clock = state["group"], state["upto"], state["clock_ms"]
        self.appended, self.began = state["appended_ms"], self.upto
        for each in state["collections"]:
            self.collections[each["id"]] = loaded(each)
        for id_ in state["dropped"]:
            self.collections[id_] = nothing()
        self.decided = {d["id"]: d["offset"] for d in state["decided"]}
        self.commands = {d["id"]: None for d in state["kept"]}
        self.floor = binding(state["floor"]) or {}
        self.stages = {s.pop("name"): s for s in map(unranged, state["stages"])}
        self.superseded = [unranged(each) for each in state["superseded"]]
        self.rollups = [unranged(each) for each in state["rollups"]]
