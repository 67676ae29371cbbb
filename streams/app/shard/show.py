"""Facts of shards on the screen: tables and a picture for people, a JSON object for programs.

A frontier is its time in JSON, and null when it is empty, as in `streams.adapter.results`.
"""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from streams.app.shard.batch_chart import Picture
from streams.app.shard.formatting import (
    bytes_text,
    count_text,
    date_of,
    duration_text,
    share_text,
    time_text,
)
from streams.app.shard.shard_info import Holder, ShardFacts, Size
from streams.app.shard.topic_usage import TopicUsage
from streams.progress import Antichain
from streams.storage.log.events import Right

Json = Mapping[str, object]

LEGEND = "█ one batch  ▓ 2 to 4  ▒ 5 to 16  ░ more"


def list_table(shards: Sequence[ShardFacts]) -> Table:
    """One row a shard."""
    table = Table(header_style="bold")
    for name in ("id", "kind", "status", "since", "upper"):
        table.add_column(name, overflow="fold")
    for name in ("batches", "chunks", "rows", "bytes", "capabilities"):
        table.add_column(name, justify="right")
    for shard in shards:
        numbers = (shard.batches, shard.live.chunks, shard.live.rows)
        table.add_row(
            escape(shard.id),
            escape(shard.description.kind) if shard.description else "",
            shard.status,
            _short(shard.since),
            _short(shard.upper),
            *(f"{number:,}" for number in numbers),
            bytes_text(shard.live.bytes),
            str(shard.capabilities),
        )
    return table


def _short(frontier: Antichain) -> str:
    return "{}" if frontier.is_empty else str(frontier.time)


def shard_page(facts: ShardFacts, topics: Sequence[str], picture: Picture | None) -> Group:
    """The identity of a shard, and its picture."""
    lines: list[tuple[str, str]] = [*identity(facts), ("topics", ", ".join(topics))]
    if facts.description is None:
        lines.append(("columns", "(invalid description)"))
    else:
        named = [f"{name} {kind}" for name, kind in facts.description.columns]
        lines.append(("columns", ", ".join(named)))
        lines.append(("keys", ", ".join(facts.description.keys) or "none"))
    lines += numbers(facts)
    drawn: RenderableType = Text("no batches yet") if picture is None else framed(picture)
    return Group(grid(lines), Text(), drawn)


def stats_page(facts: ShardFacts, space: TopicUsage, holders: Sequence[Holder]) -> Group:
    """The size of a shard, and the holds that keep it from shrinking."""
    lines = [*identity(facts), *numbers(facts), *garbage(space)]
    return Group(grid(lines), Text(), holders_table(holders))


def identity(facts: ShardFacts) -> list[tuple[str, str]]:
    """The identity and frontiers of a shard."""
    kind = facts.description.kind if facts.description else "unknown"
    return [
        ("shard", f"{facts.id}, a {kind}, {facts.status}"),
        ("since", time_text(facts.since, "dropped: it can no longer be read")),
        ("upper", time_text(facts.upper, "sealed: it can no longer be written")),
    ]


def numbers(facts: ShardFacts) -> list[tuple[str, str]]:
    """The size of a shard."""
    batches = f"{facts.batches:,}, of which {facts.compacted:,} compacted"
    return [("batches", batches), ("live", size_text(facts.live))]


def garbage(space: TopicUsage) -> list[tuple[str, str]]:
    """The other contents of the group's data topic."""
    lines = [
        ("staged", size_text(space.staged)),
        ("rollups", size_text(space.rollup)),
        ("superseded", size_text(space.superseded)),
    ]
    if space.scanned is None:
        lines.append(("orphans", "unknown: --scan reads the data topic to find them"))
    else:
        usage = space.scanned
        lines.append(("deleted", f"{_chunks(usage.deleted)}, awaiting the broker"))
        lines.append(("orphans", f"{_chunks(usage.orphan)}, not linked, or not yet"))
        places = ", ".join(f"{chunk.partition}@{chunk.offset}" for chunk in usage.missing[:10])
        lines.append(
            ("missing", f"{count_text(len(usage.missing), 'chunk', 'chunks')} {places}".strip())
        )
    note = "" if space.scanned else ", orphans excluded"
    share, total = share_text(space.garbage_share), bytes_text(space.total_bytes)
    return [*lines, ("garbage", f"{share} of {total}{note}")]


def size_text(size: Size) -> str:
    """A size in words."""
    return f"{count_text(size.rows, 'row', 'rows')} in {_chunks(size)}"


def _chunks(size: Size) -> str:
    return f"{count_text(size.chunks, 'chunk', 'chunks')}, {bytes_text(size.bytes)}"


def grid(lines: Sequence[tuple[str, str]]) -> Table:
    """Names and what is said of them."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, escape(text))
    return table


def holders_table(holders: Sequence[Holder]) -> Table:
    """One row a capability."""
    table = Table(header_style="bold")
    for name in ("capability", "right", "frontier", "holds back", "lease"):
        table.add_column(name, overflow="fold")
    for holder in holders:
        table.add_row(
            escape(holder.id),
            holder.right.value.lower(),
            time_text(holder.frontier, "nothing"),
            effect_text(holder),
            lease_text(holder),
        )
    return table


def effect_text(holder: Holder) -> str:
    """The history that a capability holds back, as text."""
    name = "since" if holder.right is Right.READ else "upper"
    if holder.held_back is None:
        last = "would stay" if holder.right is Right.READ else "would be sealed"
        said = f"the last of its kind: without it {name} {last}"
    elif holder.held_back:
        said = f"{name} by {holder.held_back:,}"
    else:
        said = "nothing alone"
    if holder.plan is None:
        return said
    return f"{said}; reads from offset {holder.plan}: keeps {_chunks(holder.kept)}"


def lease_text(holder: Holder) -> str:
    """When a capability ends by itself."""
    left = holder.expires_in_ms
    if left is None:
        return "critical: never expires"
    if left <= 0:
        return "expired: ends with the log's next record"
    return f"{duration_text(left)} left"


def framed(picture: Picture) -> Text:
    """The picture with its frame, its axis and what the shades mean."""
    return Text("\n".join(picture_lines(picture)), no_wrap=True, overflow="crop")


def picture_lines(picture: Picture) -> Iterator[str]:
    """The picture, line by line."""
    axis = picture.axis
    margin = max(len(row.name) for row in picture.rows)
    for row in picture.rows:
        count = count_text(row.batches, "batch", "batches")
        yield f"{row.name:>{margin}} │{row.cells}│ {count}"
    yield f"{'':{margin}} └{'┄' if axis.is_broken else '─'}{'─' * (axis.width - 1)}┘"
    yield f"{'':{margin}}  {marks(picture)}"
    start, end = (f"{time} {date_of(time)}".strip() for time in (axis.start, axis.end))
    yield f"{'':{margin}}  {start}  to  {end}"
    if axis.is_broken:
        yield f"{'':{margin}}  the first column covers all earlier times"
    yield f"{'':{margin}}  {LEGEND}"


def marks(picture: Picture) -> str:
    """The positions of since and upper: `s`, `u`, or `*` for both."""
    line = [" "] * picture.axis.width
    for mark, column in (("s", picture.since), ("u", picture.upper)):
        if column is not None:
            line[column] = mark if line[column] == " " else "*"
    return f"{''.join(line).rstrip()}   s since, u upper, * both"


def shard_json(facts: ShardFacts) -> Json:
    """A shard as `list` and `show` have it."""
    description = facts.description
    return {
        "type": "shard",
        "id": facts.id,
        "group": facts.group,
        "kind": description.kind if description else None,
        "columns": [{"name": name, "type": kind} for name, kind in description.columns]
        if description
        else None,
        "keys": list(description.keys) if description else None,
        "status": facts.status,
        "since": _time(facts.since),
        "upper": _time(facts.upper),
        "batches": facts.batches,
        "compacted_batches": facts.compacted,
        "chunks": facts.live.chunks,
        "rows": facts.live.rows,
        "bytes": facts.live.bytes,
        "capabilities": facts.capabilities,
    }


def holder_json(holder: Holder) -> Json:
    """A capability as `capabilities` and `stats` have it."""
    return {
        "type": "capability",
        "id": holder.id,
        "right": holder.right.value.lower(),
        "frontier": _time(holder.frontier),
        "held_back": holder.held_back,
        "plan": holder.plan,
        "kept": size_json(holder.kept),
        "lease_ms": holder.lease_ms,
        "expires_in_ms": holder.expires_in_ms,
    }


def space_json(space: TopicUsage) -> Json:
    """A data topic as `stats` has it; what takes a scan is null without one."""
    usage = space.scanned
    return {
        "live": size_json(space.live),
        "staged": size_json(space.staged),
        "rollup": size_json(space.rollup),
        "superseded": size_json(space.superseded),
        "deleted": size_json(usage.deleted) if usage else None,
        "orphan": size_json(usage.orphan) if usage else None,
        "missing": [
            {"partition": chunk.partition, "offset": chunk.offset, "key": chunk.key}
            for chunk in usage.missing
        ]
        if usage
        else None,
        "garbage_bytes": space.garbage_bytes,
        "total_bytes": space.total_bytes,
        "garbage_share": space.garbage_share,
    }


def size_json(size: Size) -> Json:
    """A size."""
    return {"chunks": size.chunks, "rows": size.rows, "bytes": size.bytes}


def _time(frontier: Antichain) -> int | None:
    return None if frontier.is_empty else frontier.time
