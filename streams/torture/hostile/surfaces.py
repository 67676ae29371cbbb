"""The places that others may write to, and what an attacker writes there. Pure, seeded.

A surface is a generator: it yields inputs, and is sent where each one landed, so that a command
can name the chunk that was written before it. Records of a log, and of a Rollup, go to logs of
collections that the attacker keeps for this: a group whose log holds a foreign record halts, by
rule 11, and the question is whether another one notices.
"""

import hashlib
import uuid
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random

from schemas import codec
from streams.ids import Topic
from streams.torture.hostile import arrow_streams
from streams.torture.hostile.attacker_knowledge import (
    DESCRIPTION,
    KEYED_TOPIC,
    RAW_TOPIC,
    RESERVED,
    ROWS_TOPIC,
    SQUATTER,
    AttackerKnowledge,
    Victim,
)
from streams.torture.hostile.command_client import Fields
from streams.torture.hostile.forged_records import bent, encoded, forged
from streams.torture.hostile.inputs import Burst, Ending, Input, Record, Request
from streams.torture.hostile.mutations import mutated, noise, spliced, wire_headers
from streams.torture.hostile.statements import message, row_message, statement

Place = tuple[int, int]
MOST_SESSIONS = 8

Surface = Callable[[Random, AttackerKnowledge], Generator[Input, Place, None]]


def _schemas(start: str) -> list[str]:
    return [name for name in codec.registry().by_name if name.startswith(start)]


def _command(knowledge: AttackerKnowledge, value: bytes | None, **more: object) -> Record:
    topic = knowledge.topic("storage", "commands")
    return Record(surface="command", topic=topic, value=value, **more)  # type: ignore[arg-type]  # key and ending as given


def any_bytes(rng: Random, samples: Sequence[bytes]) -> bytes | None:
    """Noise, or samples that were cut up, or no value."""
    if rng.random() < 0.03:  # noqa: PLR2004  now and then a tombstone
        return None
    if not samples or rng.random() < 0.2:  # noqa: PLR2004  now and then nothing known
        return noise(rng)
    payloads = mutated(rng, rng.choice(samples)), spliced(rng, samples)
    return rng.choice(payloads)


def command_bytes(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Bytes in the topic of commands, also in transactions that are aborted."""
    value = any_bytes(rng, knowledge.commands)
    yield _command(knowledge, value, ending=rng.choice(list(Ending)))


def command_forged(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A command that its schema allows."""
    name = rng.choice(
        [schema for schema in _schemas("command_") if schema != "command_response"]
    )
    pool = knowledge.pool(names_others=name != "command_acquire_capabilities")
    yield _command(knowledge, forged(rng, name, pool))


def command_bent(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A real command with one field changed, or a copy of it."""
    sample = rng.choice(knowledge.commands)
    is_copy = rng.random() < 0.2  # noqa: PLR2004  now and then
    yield _command(
        knowledge, sample if is_copy else bent(rng, sample, knowledge.pool(names_others=False))
    )


def command_reserved(
    rng: Random, knowledge: AttackerKnowledge
) -> Generator[Input, Place, None]:
    """A sound command that creates a collection of a name, or in a group, of the system's."""
    name, id_ = rng.choice(RESERVED), uuid.uuid4().hex
    group = rng.choice((None, name))
    collection = name if group is None else f"{SQUATTER}{rng.randrange(1_000)}"
    fields = {"id": id_, "collection": collection, "description": DESCRIPTION, "group": group}
    yield _command(knowledge, codec.encode("command_create", fields))


def _write(victim: Victim, updates: bytes | None, chunks: list[Fields], time: int) -> bytes:
    share = {
        "capability": victim.write,
        "updates": updates,
        "chunks": chunks,
        "new_frontier": time + 1,
    }
    fields = {"id": uuid.uuid4().hex, "writes": [share], "check_counts": time % 2 == 0}
    return codec.encode("command_update_and_downgrade", fields)


def rows_inline(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Rows in a command that are no rows."""
    victim = knowledge.a_victim(rng)
    time = _time(rng, victim)
    is_bomb = rng.random() < 0.05  # noqa: PLR2004  each takes a good part of a second
    body = arrow_streams.bomb(time) if is_bomb else arrow_streams.inline(rng, time)
    yield _command(knowledge, _write(victim, body, [], time))


def _time(rng: Random, victim: Victim) -> int:
    at = victim.write["frontier"]
    return int(at) if isinstance(at, int) and at < 1 << 60 else rng.randrange(100)


def chunk_beforehand(
    rng: Random, knowledge: AttackerKnowledge
) -> Generator[Input, Place, None]:
    """A chunk in a data topic, and the command that links it."""
    victim = knowledge.a_victim(rng)
    time = _time(rng, victim)
    body, rows = arrow_streams.chunk(rng, time)
    key = str(uuid.uuid4())
    place = yield _chunk(rng, knowledge, victim, body, rows, key)
    references = [arrow_streams.reference(rng, body, rows, key, place)]
    if rng.random() < 0.1:  # noqa: PLR2004  now and then named twice
        references *= 2
    yield _command(knowledge, _write(victim, None, references, time))


def _chunk(
    rng: Random, knowledge: AttackerKnowledge, victim: Victim, body: bytes, rows: int, key: str
) -> Record:
    headers = {
        "group": victim.group.encode(),
        "collection": victim.collection.encode(),
        "rows": str(rows).encode(),
        "crc32": f"{zlib.crc32(body):08x}".encode(),
    }
    if rng.random() < 0.2:  # noqa: PLR2004  now and then one lies
        headers[rng.choice(sorted(headers))] = noise(rng)
    is_odd = rng.random() < 0.1  # noqa: PLR2004  now and then a name is no text
    return Record(
        surface="chunk",
        topic=knowledge.topic(victim.collection, "data"),
        wire_headers=wire_headers(rng, [*headers.items()]) if is_odd else (),
        value=body,
        key=key.encode() if rng.random() < 0.9 else noise(rng),  # noqa: PLR2004  mostly right
        headers=tuple(headers.items()),
        partition=0,
        ending=rng.choice((*[Ending.PLAIN] * 6, Ending.ABORTED, Ending.COMMITTED)),
    )


def data_bytes(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A record that nothing names, in any data topic."""
    owner = rng.choice((*knowledge.others, knowledge.a_victim(rng).collection))
    yield Record(
        surface="data",
        topic=knowledge.topic(owner, "data"),
        value=rng.choice((noise(rng), b"", arrow_streams.chunk(rng, 0)[0])),
        key=rng.choice((noise(rng), uuid.uuid4().bytes, str(uuid.uuid4()).encode(), b"x")),
        headers=(("group", noise(rng)), ("rows", noise(rng))),
        wire_headers=wire_headers(rng) if rng.random() < 0.1 else (),  # noqa: PLR2004
        ending=rng.choice(list(Ending)),
    )


def log_record(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A record in the log of a collection of the attacker's."""
    victim = knowledge.a_spoiled(rng)
    pool = knowledge.pool_of(victim)
    roll = rng.random()
    if roll < 0.2 or not knowledge.events:  # noqa: PLR2004  a fifth
        value = any_bytes(rng, knowledge.events)
    elif roll < 0.6:  # noqa: PLR2004  two fifths
        value = bent(rng, rng.choice(knowledge.events), pool)
    else:
        kinds = [schema for schema in _schemas("shard_") if "state" not in schema]
        value = forged(rng, rng.choice(kinds), pool)
    ending = rng.choice((*[Ending.PLAIN] * 8, Ending.ABORTED, Ending.COMMITTED))
    topic = knowledge.topic(victim.collection, "log")
    yield Record(surface="log", topic=topic, value=value, ending=ending)


def rollup(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A Rollup that no fold has made: a state in the data topic, and the event for it."""
    victim = knowledge.a_spoiled(rng)
    pool = knowledge.pool_of(victim)
    is_bent = knowledge.states and rng.random() < 0.5  # noqa: PLR2004  half of them
    body = (
        bent(rng, rng.choice(knowledge.states), pool)
        if is_bent
        else forged(rng, "shard_state", pool)
    )
    key = str(uuid.uuid4())
    place = yield _chunk(rng, knowledge, victim, body, 0, key)
    fields: Fields = {
        "id": uuid.uuid4().hex,
        "group": victim.group,
        "seen": rng.choice((-1, 0, 3, 100)),
        "upto": rng.choice((0, 63, 64, 127, 1 << 40)),
        "chunks": [arrow_streams.reference(rng, body, 0, key, place)],
        "hash": hashlib.sha256(body).hexdigest(),
    }
    value = bent(rng, codec.encode("shard_rollup", fields), knowledge.pool(names_others=False))
    yield Record(surface="rollup", topic=knowledge.topic(victim.collection, "log"), value=value)


def linked(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A chunk that a record of the log links: no service has validated it."""
    victim = knowledge.a_spoiled(rng)
    time = _time(rng, victim)
    body, rows = arrow_streams.chunk(rng, time)
    key = str(uuid.uuid4())
    place = yield _chunk(rng, knowledge, victim, body, rows, key)
    part: Fields = {
        "collection": victim.collection,
        "capability": victim.write["name"],
        "lower": time,
        "upper": time + 1,
        "chunks": [{**arrow_streams.reference(rng, body, rows, key, place), "ranges": None}],
        "stages": [],
        "from_offsets": None,
        "to_offsets": None,
        "fingerprint": "",
        "token": "",
    }
    event: Fields = {
        "id": uuid.uuid4().hex,
        "group": victim.group,
        "seen": -1,
        "parts": [part],
        "renewals": [],
        "read_upto": None,
    }
    value = encoded(rng, "shard_append", event)
    yield Record(surface="linked", topic=knowledge.topic(victim.collection, "log"), value=value)
    victim.write = {**victim.write, "frontier": time + 1}


def raw_message(rng: Random, _: AttackerKnowledge) -> Generator[Input, Place, None]:
    """A message for the attacker's sources: rows for one that has to bear them, or anything."""
    topic = rng.choice((ROWS_TOPIC, KEYED_TOPIC, RAW_TOPIC, RAW_TOPIC))
    key, value = message(rng) if topic == RAW_TOPIC else row_message(rng)
    if topic == KEYED_TOPIC and rng.random() < 0.1:  # noqa: PLR2004  now and then a key's end
        value = None
    yield Record(
        surface="raw message",
        topic=topic,
        value=value,
        key=key,
        headers=(("h", noise(rng)),),
        wire_headers=wire_headers(rng) if rng.random() < 0.2 else (),  # noqa: PLR2004
        ending=rng.choice((*[Ending.PLAIN] * 4, Ending.ABORTED, Ending.COMMITTED)),
    )


def sql_text(rng: Random, _: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Statements for the coordinator."""
    yield Request(surface="sql", payload=_posted(statement(rng)))


def sql_sessions(rng: Random, _: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Statements that come at once from several sessions, of which some say they are the same.

    Often it is the same few statements: objects that two make, or that one drops and one reads.
    """
    few = [statement(rng) for _ in range(rng.choice((1, 2, 6)))]
    payloads = tuple(
        _posted(b";".join(rng.choices(few, k=rng.choice((1, 1, 3)))), _session(rng))
        for _ in range(rng.randint(2, MOST_SESSIONS))
    )
    yield Burst(surface="sessions", payloads=payloads)


def _session(rng: Random) -> str:
    """The headers of a session, if it has any."""
    token = rng.choice(("a", "a", "b", "c" * 70_000, "\u00ff", ""))
    time = rng.choice(("0", "17", str(1 << 62), "9" * 30, "-1", "x", "1784999999999"))
    return rng.choice(
        (
            "",
            f"Slackwater-Session: {token}\r\n",
            f"Slackwater-Session: {token}\r\nSlackwater-Session-Time: {time}\r\n",
        )
    )


def _posted(text: bytes, headers: str = "") -> bytes:
    """A request that has these statements executed."""
    head = (
        f"POST /sql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
        f"Content-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


def http_bytes(rng: Random, _: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Requests that HTTP does not know."""
    lengths = (b"-1", b"abc", b"1e3", b"99999999999999999999", b"5", b"")
    yield Request(
        surface="http",
        payload=rng.choice(
            (
                noise(rng),
                b"GET " + noise(rng) + b" HTTP/1.1\r\n\r\n",
                b"GET /status?" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
                b"POST /sql HTTP/1.1\r\nContent-Length: "
                + rng.choice(lengths)
                + b"\r\n\r\nSELECT",
                b"POST /sql HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
                b"PUT /sql HTTP/1.1\r\n\r\n",
            )
        ),
    )


def response_bytes(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Bytes where services answer."""
    topic = rng.choice((("storage", "responses"), ("compute", "default", "responses")))
    samples = knowledge.commands + knowledge.compute
    names = [schema for schema in _schemas("compute_") if schema != "compute_create_timely"]
    payloads = any_bytes(rng, samples), forged(rng, rng.choice(names), knowledge.pool())
    yield Record(
        surface="response",
        topic=knowledge.topic(*topic),
        value=rng.choice(payloads),
        ending=rng.choice((Ending.PLAIN, Ending.ABORTED)),
    )


def compute_bytes(rng: Random, knowledge: AttackerKnowledge) -> Generator[Input, Place, None]:
    """Commands for replicas that cannot be read, or come from an unknown iteration."""
    names = [schema for schema in _schemas("compute_") if schema != "compute_create_timely"]
    payloads = (
        any_bytes(rng, knowledge.compute),
        forged(rng, rng.choice(names), knowledge.pool()),
    )
    topic: Topic = knowledge.topic("compute", "default", "commands")
    yield Record(surface="compute", topic=topic, value=rng.choice(payloads))


SURFACES: Mapping[str, tuple[Surface, int]] = {
    "command-bytes": (command_bytes, 2),
    "command-forged": (command_forged, 4),
    "command-bent": (command_bent, 4),
    "command-reserved": (command_reserved, 1),
    "rows": (rows_inline, 3),
    "chunk": (chunk_beforehand, 5),
    "data": (data_bytes, 2),
    "log": (log_record, 2),
    "rollup": (rollup, 1),
    "linked": (linked, 2),
    "message": (raw_message, 4),
    "sql": (sql_text, 3),
    "sessions": (sql_sessions, 2),
    "http": (http_bytes, 1),
    "response": (response_bytes, 1),
    "compute": (compute_bytes, 1),
}
"""Every surface by name, and how often it is chosen."""
