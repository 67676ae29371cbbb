"""A reader of collections with no server running, as a stranger writes one from the page.

It folds a group's log, fetches chunks and clips them. The section numbers are those of
`schemas/CLIENTS.md`, part 4.
"""

import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, TopicPartition

from tests.stranger import wire

Record = dict[str, Any]
EMPTY = None  # the empty frontier: later than every time
KEPT, WINDOW, TICK = 4096, 1024, 30_000


FOR_EVER = 1 << 63


def later(frontier: int | None) -> int:
    """A frontier as a number: the empty one is later than every time."""
    return FOR_EVER if frontier is EMPTY else frontier


class Fold:
    """The state of one group: what its log says. Offsets come one after the other."""

    def __init__(self) -> None:
        self.group = ""
        self.upto = -1
        self.clock: int | None = None
        self.collections: dict[str, Record] = {}
        self.decided: dict[str, int] = {}  # the offset at which an event was decided
        self.commands: dict[str, None] = {}  # those that carried out commands, oldest first
        self.superseded: list[Record] = []
        self.floor: dict[int, int] = {}
        self.stages: dict[str, Record] = {}
        self.rollups: list[Record] = []

    # 4.2: which events count

    def step(self, offset: int, at_ms: int, value: bytes) -> None:
        name, event = wire.decode(value)
        kind = name.removeprefix("shard_").removesuffix("_2").removesuffix("_3")
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

    def tick(self, offset: int, at_ms: int) -> None:
        self.upto = offset
        if self.clock is None:
            self.clock = at_ms
        self.clock = max(self.clock, min(at_ms, self.clock + TICK))
        for name in [n for n, s in self.stages.items() if s["expires_ms"] <= self.clock]:
            del self.stages[name]
        for found in self.collections.values():
            held = found["capabilities"]
            gone = [n for n, c in held.items() if (c["expires_ms"] or 1 << 62) <= self.clock]
            for each in gone:
                del held[each]
            if gone:
                self.settle(found)

    # 4.3: frontiers follow capabilities

    def settle(self, found: Record) -> None:
        held = found["capabilities"].values()
        writes = [each["frontier"] for each in held if each["right"] == "WRITE"]
        reads = [each["frontier"] for each in held if each["right"] == "READ"]
        if writes and found["upper"] is not EMPTY:
            found["upper"] = max(found["upper"], min(writes))
        if reads and found["since"] is not EMPTY:
            newest = min(reads)
            if found["upper"] is not EMPTY:
                newest = min(newest, found["upper"] - 1)
            found["since"] = max(found["since"], newest)

    def seal_if_last(self, found: Record) -> None:
        if not any(each["right"] == "WRITE" for each in found["capabilities"].values()):
            found["upper"] = EMPTY
            self.settle(found)

    def live(self, id_: str) -> Record | None:
        found = self.collections.get(id_)
        return None if found is None or found["dropped"] else found

    def held(self, event: Record) -> tuple[Record | None, Record | None]:
        found = self.live(event["collection"])
        if found is None or event["capability"] is None:
            return found, None
        capability = found["capabilities"].get(event["capability"])
        if capability is not None and capability["token"] != event.get("token", ""):
            return None, None
        return found, capability

    def granted(self, right: str, frontier: int, lease: int | None, token: str = "") -> Record:
        assert self.clock is not None
        return {
            "right": right,
            "frontier": frontier,
            "lease_ms": lease,
            "expires_ms": None if lease is None else self.clock + lease,
            "token": token,
        }

    def renew(self, capability: Record) -> None:
        if capability["lease_ms"] is not None:
            capability["expires_ms"] = (self.clock or 0) + capability["lease_ms"]

    def on_create(self, event: Record, offset: int) -> None:
        known = self.collections.get(event["collection"])
        if known is not None:
            return
        self.group = event["group"]
        start, lease = event["frontier"], event.get("lease_ms")
        for_ever = event.get("is_write_critical", False)
        held = {event["write"]: self.granted("WRITE", start, None if for_ever else lease)}
        if event["read"] is not None:
            held[event["read"]] = self.granted("READ", start, lease)
        self.collections[event["collection"]] = {
            "description": event["description"],
            "since": start,
            "upper": start,
            "dropped": False,
            "batches": [],
            "capabilities": held,
            "source": None,
            "fingerprint": "",
            "fenced": set(),
        }

    def on_acquire(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        if found is None:
            return
        old = found["capabilities"].get(event["capability"])
        token = event.get("token", "")
        if old is not None and (old["token"] != token or old["right"] != event["right"]):
            return
        if token and event["lease_ms"] is not None:
            return
        if old is not None:
            self.renew(old)
            return
        start = found["upper"] if event["right"] == "WRITE" else found["since"]
        if event["right"] == "READ" and event["frontier"] is not None:
            start = max(start, event["frontier"])
        if start is EMPTY:
            return
        made = self.granted(event["right"], start, event["lease_ms"], token)
        found["capabilities"][event["capability"]] = made
        self.settle(found)

    def on_clone(self, event: Record, offset: int) -> None:
        found, old = self.held(event)
        if found is None or old is None or event["clone"] in found["capabilities"]:
            return
        lease = old["lease_ms"] if event["lease_ms"] is None else event["lease_ms"]
        token = old["token"] if lease is None else ""
        made = self.granted(old["right"], old["frontier"], lease, token)
        found["capabilities"][event["clone"]] = made

    def on_transfer(self, event: Record, offset: int) -> None:
        found, old = self.held(event)
        if found is None or old is None or event["to"] in found["capabilities"]:
            return
        self.renew(old)
        found["capabilities"][event["to"]] = found["capabilities"].pop(event["capability"])

    def on_downgrade(self, event: Record, offset: int) -> None:
        found, old = self.held(event)
        if found is None or old is None or event["frontier"] is EMPTY:
            return
        if event.get("new_token") is not None:
            if old["lease_ms"] is not None or event["frontier"] < old["frontier"]:
                return
            old["token"] = event["new_token"]
        lower, target = old["frontier"], max(old["frontier"], event["frontier"])
        self.renew(old)
        old["frontier"] = target
        if old["right"] == "WRITE" and target != lower:
            self.link(found, (offset, 0), lower, target, [])
        self.settle(found)

    def on_drop(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        if found is None:
            return
        if event["capability"] is None:
            found.update(dropped=True, since=EMPTY, upper=EMPTY, capabilities={}, batches=[])
            return
        found, old = self.held(event)
        if found is None or old is None:
            return
        del found["capabilities"][event["capability"]]
        self.settle(found)
        if old["right"] == "WRITE":
            self.seal_if_last(found)

    # 4.4: batches

    def link(
        self,
        found: Record,
        place: tuple[int, int],
        lower: int,
        upper: int | None,
        chunks: list[Any],
    ) -> None:
        """One more batch; an empty one widens the empty one that it continues."""
        batch = {
            "offset": place[0],
            "part": place[1],
            "lower": lower,
            "upper": upper,
            "chunks": chunks,
            "since": 0,
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

    def on_append(self, event: Record, offset: int) -> None:
        if not event["parts"] or not self.fits(event["parts"]):
            return
        if self.is_overtaken(event) or not self.are_renewed(event.get("renewals", [])):
            return
        for number, part in enumerate(event["parts"]):
            found = self.collections[part["collection"]]
            chunks = list(part["chunks"])
            for stage in part["stages"]:
                chunks += self.stages.pop(stage)["chunks"]
            if part["upper"] is EMPTY:
                del found["capabilities"][part["capability"]]
            else:
                found["capabilities"][part["capability"]]["frontier"] = part["upper"]
            if part["to_offsets"] is not None:
                found["source"] = part["to_offsets"]
            self.link(found, (offset, number), part["lower"], part["upper"], chunks)
            self.settle(found)
            if part["upper"] is EMPTY:
                self.seal_if_last(found)
            if part["fingerprint"] and part["fingerprint"] != found["fingerprint"]:
                found["fenced"] |= {found["fingerprint"]} - {""}
                found["fingerprint"] = part["fingerprint"]

    def fits(self, parts: list[Record]) -> bool:
        """Whether every part counts. Each capability is named once in what clients write."""
        for part in parts:
            found, held = self.held(part)
            if found is None or held is None or held["right"] != "WRITE":
                return False
            if part["upper"] is not EMPTY and part["upper"] <= part["lower"]:
                return False
            if part["fingerprint"] and part["fingerprint"] in found["fenced"]:
                return False
            if held["frontier"] != part["lower"]:
                return False
            bound = part["from_offsets"]
            if bound is not None and bound != (found["source"] or []):
                return False
            if any(stage not in self.stages for stage in part["stages"]):
                return False
            if any(self.is_reclaimed(chunk) for chunk in part["chunks"]):
                return False
        return True

    def is_overtaken(self, event: Record) -> bool:
        """Whether updates came to what its writer had read."""
        upto = event.get("read_upto")
        if upto is None:
            return False
        batches = [
            b for p in event["parts"] for b in self.collections[p["collection"]]["batches"]
        ]
        return any(b["chunks"] and b["offset"] > upto for b in batches)

    def are_renewed(self, renewals: list[Record]) -> bool:
        """Renew the leases, if all of them are valid; they are none of the parts'."""
        live: list[Record] = []
        for each in renewals:
            _, held = self.held(each)
            if held is None or held["right"] != "WRITE" or held["frontier"] != each["frontier"]:
                return False
            live.append(held)
        for each in live:
            self.renew(each)
        return True

    def is_reclaimed(self, chunk: Record) -> bool:
        place = (chunk["partition"], chunk["offset"])
        if chunk["offset"] >= self.floor.get(chunk["partition"], 0):
            return False
        linked = [
            c for f in self.collections.values() for b in f["batches"] for c in b["chunks"]
        ]
        staged = [c for stage in self.stages.values() for c in stage["chunks"]]
        named = (*linked, *staged, *self.superseded)
        return all((c["partition"], c["offset"]) != place for c in named)

    def on_advance(self, event: Record, offset: int) -> None:
        lower, upper = event["lower"], event["upper"]
        if lower >= upper:
            return
        for id_, found in self.collections.items():
            system = found["capabilities"].get(f"{id_}.write")
            others = [
                c["frontier"]
                for n, c in found["capabilities"].items()
                if c["right"] == "WRITE" and n != f"{id_}.write"
            ]
            if (
                system is None
                or system["frontier"] > lower
                or min(others, default=upper) < upper
            ):
                continue
            before, system["frontier"] = system["frontier"], upper
            self.link(found, (offset, 0), before, upper, [])
            self.settle(found)

    def on_replace(self, event: Record, offset: int) -> None:
        found = self.live(event["collection"])
        names = event["replaced"]
        if found is None or not names or any(names.count(name) > 1 for name in names):
            return
        old = [b for b in found["batches"] if {each: b[each] for each in names[0]} in names]
        old.sort(key=lambda batch: batch["lower"])
        if len(old) < len(names) or self.has_gap(old):
            return
        ends = [later(batch["upper"]) for batch in old]
        is_past = later(found["since"]) < event["since"] or max(ends) > later(found["upper"])
        if is_past or any(self.is_reclaimed(chunk) for chunk in event["chunks"]):
            return
        found["batches"] = [batch for batch in found["batches"] if batch not in old]
        merged = {
            "offset": offset,
            "part": 0,
            "lower": old[0]["lower"],
            "upper": None if max(ends) == FOR_EVER else max(ends),
            "chunks": event["chunks"],
            "since": event["since"],
            "source": old[-1]["source"],
        }
        found["batches"].append(merged)
        self.superseded += [chunk for batch in old for chunk in batch["chunks"]]

    def has_gap(self, ordered: list[Record]) -> bool:
        upper = later(ordered[0]["upper"])
        for batch in ordered[1:]:
            if upper < batch["lower"]:
                return True
            upper = max(upper, later(batch["upper"]))
        return False

    def on_stage(self, event: Record, offset: int) -> None:
        known = self.stages.get(event["stage"], {"chunks": []})
        expires = (self.clock or 0) + event["lease_ms"]
        chunks = [*known["chunks"], *event["chunks"]]
        self.stages[event["stage"]] = {"chunks": chunks, "expires_ms": expires}

    def on_reclaim(self, event: Record, offset: int) -> None:
        for each in event["floor"]:
            partition = each["partition"]
            self.floor[partition] = max(self.floor.get(partition, 0), each["offset"])
        self.superseded = []  # no reader of ours names a plan

    def on_rollup(self, event: Record, offset: int) -> None:
        self.rollups.append(event)

    # 4.5: beginning at a rollup

    def load(self, state: Record) -> None:
        self.group, self.upto, self.clock = state["group"], state["upto"], state["clock_ms"]
        for each in state["collections"]:
            held = {c["id"]: {"token": "", **c} for c in each["capabilities"]}
            self.collections[each["id"]] = {
                **each,
                "capabilities": held,
                "dropped": each["since"] is EMPTY,
                "fenced": set(each["fenced"]),
            }
        self.decided = {d["id"]: d["offset"] for d in state["decided"]}
        self.commands = {d["id"]: None for d in state.get("kept", [])}
        self.floor = {f["partition"]: f["offset"] for f in state["floor"]}
        self.stages = {s["name"]: s for s in state["stages"]}
        self.superseded = [c for s in state["superseded"] for c in s["chunks"]]


class Reader:
    """Reads collections from the topics alone."""

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self._namespace = namespace
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "stranger",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",  # the order of offsets alone decides
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self.folds: dict[str, Fold] = {}

    def fold(self, group: str) -> Fold:
        """The group's state, folded to the end that its log has now."""
        log = f"{self._namespace}.{group}.log"
        low, high = self._consumer.get_watermark_offsets(TopicPartition(log, 0), timeout=30)
        fold = self.folds.get(group)
        start = low if fold is None else fold.upto + 1
        records = self._records(log, start, high)
        if fold is None:
            fold = self.folds[group] = self._begin(group, records)
        for message in records:
            if message.offset() > fold.upto:  # the rollup covers the others
                kind, at_ms = message.timestamp()
                assert kind == 2, "not the broker's append time"
                fold.step(message.offset(), at_ms, message.value())
        return fold

    def _begin(self, group: str, records: list[Any]) -> Fold:
        fold = Fold()
        rollups = [
            event
            for name, event in (wire.decode(each.value()) for each in records)
            if name == "shard_rollup"
        ]
        if rollups:
            newest = rollups[-1]
            bodies = [
                self.chunk(f"{self._namespace}.{group}.data", c) for c in newest["chunks"]
            ]
            fold.load(wire.decode(b"".join(bodies))[1])
        return fold

    def _records(self, topic: str, start: int, end: int) -> list[Any]:
        found: list[Any] = []
        if start >= end:
            return found
        self._consumer.assign([TopicPartition(topic, 0, start)])
        next_ = start
        while next_ < end:
            for message in self._consumer.consume(1000, 1):
                offset = message.offset() or 0
                if message.error() is None and offset < end:
                    found.append(message)
                    next_ = offset + 1
        self._consumer.unassign()
        return found

    def chunk(self, topic: str, ref: Record) -> bytes:
        """A chunk's bytes, which have to be those that were meant."""
        at = TopicPartition(topic, ref["partition"], ref["offset"])
        self._consumer.assign([at])
        message = None
        while message is None:
            message = self._consumer.poll(1)
        self._consumer.unassign()
        assert message.error() is None, f"missing: {message.error()}"
        assert message.offset() == ref["offset"], "missing"
        assert message.key() == ref["key"].encode(), "another chunk's place"
        body = message.value()
        assert body is not None, "reclaimed"
        assert zlib.crc32(body) == ref["checksum"], "damaged"
        return body

    def updates(self, group: str, id_: str, lower: int, upper: int) -> pa.Table | None:
        """Every update at times in [lower, upper); None when there is no chunk of them."""
        fold = self.folds[group]
        parts = []
        for batch in fold.collections[id_]["batches"]:
            end = upper if batch["upper"] is EMPTY else min(upper, batch["upper"])
            begin = max(lower, batch["lower"])
            if begin >= end:
                continue
            for ref in batch["chunks"]:
                body = self.chunk(f"{self._namespace}.{group}.data", ref)
                parts.append(clipped(body, begin, end))
        return pa.concat_tables(parts) if parts else None

    def snapshot(self, group: str, id_: str, as_of: int) -> dict[tuple[Any, ...], int]:
        """How often each row is there at a time."""
        found = self.fold(group).collections[id_]
        assert later(found["since"]) <= as_of, "compacted"
        assert as_of < later(found["upper"]), "not yet known"
        return counted(self.updates(group, id_, 0, as_of + 1), with_time=False)

    def listen(self, group: str, id_: str, after: int) -> dict[tuple[Any, ...], int]:
        """What changed at later times, as far as it is known: by row and time."""
        found = self.fold(group).collections[id_]
        upper = FOR_EVER if found["upper"] is EMPTY else found["upper"]
        return counted(self.updates(group, id_, after + 1, upper), with_time=True)

    def close(self) -> None:
        self._consumer.close()


def clipped(body: bytes, lower: int, upper: int) -> pa.Table:
    """The rows of a chunk at times in [lower, upper)."""
    with pa.ipc.open_stream(body) as reader:
        found = reader.read_all()
    rows = pa.table({name: found.column(name) for name in found.schema.names})
    assert rows.schema.names == ["data", "time", "diff", "error"]
    assert rows.column("error").null_count == rows.num_rows, "the collection has errors"
    times = rows.column("time")
    return rows.filter(pc.and_(pc.greater_equal(times, lower), pc.less(times, upper)))


def counted(rows: pa.Table | None, *, with_time: bool) -> dict[tuple[Any, ...], int]:
    """Diffs summed; what comes to nothing is not there."""
    total: dict[tuple[Any, ...], int] = {}
    for row in [] if rows is None else rows.to_pylist():
        key = (*row["data"].values(), *([row["time"]] if with_time else []))
        total[key] = total.get(key, 0) + row["diff"]
    return {key: count for key, count in total.items() if count}
