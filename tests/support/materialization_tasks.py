"""Tasks, rows and transcripts of the materialization protocol."""

import json
import shlex
from typing import Any

from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.protocol.session import StreamState
from connectors.protocol.spec_builder import Bind, Collection, FieldSpec, materialization
from connectors.protocol.violations import Side, Violation
from schemas.flow_pb2 import MaterializationSpec
from tests.support.datadriven import Case

NAMES = Collection(
    name="test/names",
    keys=("id",),
    columns=(
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="name", types=("string", "null"), required=False),
    ),
)
PAIRS = Collection(
    name="test/pairs",
    keys=("a", "b"),
    columns=(
        FieldSpec(name="a"),
        FieldSpec(name="b", types=("integer",)),
        FieldSpec(name="n", types=("number",)),
    ),
)


def task(name: str = "test/task", endpoint: Any = None) -> MaterializationSpec:
    """Three bindings: of one key column, of two, and of delta updates."""
    return materialization(
        name,
        endpoint or {"path": "x"},
        [
            Bind(collection=NAMES, resource={"table": "names"}, path=("names",)),
            Bind(collection=PAIRS, resource={"table": "pairs"}, path=("pairs",)),
            Bind(collection=NAMES, resource={"table": "log"}, path=("log",), delta=True),
        ],
    )


def store(binding: int, *rows: tuple[Any, ...], width: int = 1, **options: Any) -> Any:
    """A Store of rows: key columns, value columns, document."""
    return messages.Store(
        binding=binding,
        keys=Tuples.of([row[:width] for row in rows]),
        values=Tuples.of([row[width:-1] for row in rows]),
        documents=[row[-1].encode() for row in rows],
        exists=options.get("exists", [False] * len(rows)),
        deletes=options.get("deletes", []),
    )


class ProtocolScript:
    """Transcripts: `> request` and `< response` lines, and what each side thinks of them."""

    def __init__(self) -> None:
        self.sessions: list[StreamState] = []

    def handle(self, case: Case) -> str:
        if case.directive == "session":
            offered = extensions(case.get("offered"))
            sides = [Side(side) for side in case.get("side", "driver,connector").split(",")]
            self.sessions = [StreamState(side, offered) for side in sides]
            return ""
        return "\n".join(self.line(line) for line in case.input.splitlines())

    def line(self, line: str) -> str:
        words = shlex.split(line)
        verdicts = [self.verdict(session, words) for session in self.sessions]
        if len(set(verdicts)) == 1:
            return f"{line}  -- {verdicts[0]}"
        judged = zip(self.sessions, verdicts, strict=True)
        return "\n".join([line, *(f"    {session.side}: {text}" for session, text in judged)])

    def verdict(self, session: StreamState, words: list[str]) -> str:
        before = repr(session)
        try:
            if words[1] == "end":
                session.end()
            else:
                session.take(message(words[1], words[2:]))
        except Violation as violation:
            assert repr(session) == before, "the state has changed"
            return str(violation)
        return session.phase.name.lower()


def extensions(text: str) -> Extensions:
    return Extensions(**dict.fromkeys(text.split(",") if text else [], True))


def keys(words: list[str]) -> Tuples:
    """`1` or `a/1`; hexadecimal after `x:` is taken as it is."""
    packed = []
    for word in words:
        if word.startswith("x:"):
            packed.append(bytes.fromhex(word[2:]))
            continue
        row = [int(step) if step.isdecimal() else step for step in word.split("/")]
        packed.extend(Tuples.of([row]).packed)
    return Tuples(packed)


def message(kind: str, words: list[str]) -> Any:
    """A message of a transcript."""
    options = dict(word.split("=", 1) for word in words if "=" in word and word[0] != "{")
    plain = [word for word in words if "=" not in word or word[0] == "{"]
    match kind:
        case "open":
            return messages.Open(
                materialization=task(options.get("name", "test/task")),
                version=options.get("version", "v1"),
                key_begin=int(options.get("begin", "0"), 16),
                key_end=int(options.get("end", "ffffffff"), 16),
                driver_checkpoint=options.get("checkpoint", "").encode(),
                extensions=extensions(options.get("uses", "")),
            )
        case "opened":
            subranges = tuple(map(subrange, plain))
            return messages.Opened(bytes.fromhex(options.get("checkpoint", "")), subranges)
        case "load":
            return messages.Load(int(plain[0]), keys(plain[1:]))
        case "loaded":
            return messages.Loaded(int(plain[0]), [word.encode() for word in plain[1:]])
        case "flush":
            return messages.Flush(options.get("checkpoint", "cp").encode())
        case "flushed":
            return messages.Flushed(
                options.get("checkpoint", "").encode(), options.get("patch") == "yes"
            )
        case "store":
            return stored(plain, options)
        case "commit":
            return messages.StartCommit()
        case "committed":
            return messages.StartedCommit()
        case "acknowledge":
            return messages.Acknowledge()
        case "acknowledged":
            return messages.Acknowledged()
        case _:
            raise AssertionError(kind)


def subrange(word: str) -> messages.Subrange:
    """`0-7fffffff@f8ffffff0f01`: both ends, and the checkpoint."""
    ends, _, checkpoint = word.partition("@")
    begin, end = (int(end, 16) for end in ends.split("-"))
    return messages.Subrange(begin, end, bytes.fromhex(checkpoint))


def stored(plain: list[str], options: dict[str, str]) -> Any:
    packed = keys(plain[1:])
    count = len(packed)
    values = options.get("values", ",".join(["None"] * count))
    parts = keys([value for value in values.split(",") if value])
    return messages.Store(
        binding=int(plain[0]),
        keys=packed,
        values=parts,
        documents=[json.dumps({"n": number}).encode() for number in range(count)]
        if "documents" not in options
        else [text.encode() for text in options["documents"].split(",")],
        exists=[False] * int(options.get("exists", count)),
        deletes=[True] * int(options.get("deletes", "0")),
    )
