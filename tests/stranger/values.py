"""Values of the stranger's fold: frontiers, references, bindings, collections and batches."""

from typing import Any

Record = dict[str, Any]
EMPTY = None  # the empty frontier: later than every time
FOR_EVER = 1 << 63
REFERENCE = ("partition", "offset", "key", "checksum", "rows", "size")


def later(frontier: int | None) -> int:
    """A frontier as a number: the empty one is later than every time."""
    return FOR_EVER if frontier is EMPTY else frontier


def bare(chunks: list[Record]) -> list[Record]:
    """References, without what is no part of them (ranges)."""
    return [{name: chunk[name] for name in REFERENCE} for chunk in chunks]


def binding(offsets: list[Record] | None) -> dict[int, int] | None:
    return None if offsets is None else {o["partition"]: o["offset"] for o in offsets}


def offsets(bound: dict[int, int] | None) -> list[Record] | None:
    if bound is None:
        return None
    return [{"partition": partition, "offset": bound[partition]} for partition in sorted(bound)]


def nothing() -> Record:
    """What is left of a collection that was dropped."""
    return {
        "description": "",
        "since": EMPTY,
        "upper": EMPTY,
        "batches": [],
        "capabilities": {},
        "source": None,
        "fingerprint": "",
        "fenced": set(),
        "changed": None,
        "released": False,
        "sealing": False,
    }


def loaded(stored: Record) -> Record:
    """A collection of a state, as a fold keeps it."""
    capabilities = {c["id"]: {**c} for c in stored["capabilities"]}
    for capability in capabilities.values():
        del capability["id"]
    batches = [{**unranged(b), "source": binding(b["source"])} for b in stored["batches"]]
    return {
        **{name: value for name, value in stored.items() if name != "id"},
        "batches": batches,
        "capabilities": capabilities,
        "source": binding(stored["source"]),
        "fenced": set(stored["fenced"]),
    }


def unranged(holder: Record) -> Record:
    """What names chunks, its references bare."""
    return {**holder, "chunks": bare(holder["chunks"])}


def copied(collection: Record) -> Record:
    """A collection that may be changed while the other stays."""
    capabilities = {
        name: dict(capability) for name, capability in collection["capabilities"].items()
    }
    more = {"batches": list(collection["batches"]), "fenced": set(collection["fenced"])}
    return {**collection, **more, "capabilities": capabilities}


def has_gap(batches: list[Record]) -> bool:
    """Whether the batches leave a time out between them."""
    ordered = sorted(batches, key=lambda batch: batch["lower"])
    upper = later(ordered[0]["upper"])
    for batch in ordered[1:]:
        if upper < batch["lower"]:
            return True
        upper = max(upper, later(batch["upper"]))
    return False
