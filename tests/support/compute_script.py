"""Histories, sessions and as_ofs of the compute protocol, as scripts name them."""

from dataclasses import replace
from typing import assert_never

from streams.compute.as_of import Bound, ReadableInterval, continued, newborn, select
from streams.compute.description import DataflowDescription, IngestionDescription
from streams.compute.history import reduce
from streams.compute.parameters import differing
from streams.compute.peeks import CancelPeek, Peek
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Schedule,
    UpdateConfiguration,
)
from streams.compute.session import (
    Action,
    Compact,
    Configure,
    Create,
    Drop,
    Reconcile,
    ReportParameters,
    Restart,
    Session,
    SetParameters,
)
from streams.compute.subscribes import AcknowledgeSubscribe, CancelSubscribe, Subscribe
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp, Topic
from streams.progress import EMPTY, Antichain, frontier
from tests.support.datadriven import Case

VIEW = DataflowDescription(
    export=CollectionId("u1"),
    kind="view",
    name="",
    group="u1",
    columns=(),
    as_of=Timestamp(0),
)
INGESTION = IngestionDescription(topic=Topic("raw"), topic_id="AAAA", envelope="none")


class ComputeScript:
    """`reduce` reduces a history, `take` has a session take commands; `new` begins anew.

    `as_of` selects one for imports, holds on them, and an export if there is one already.
    """

    def __init__(self) -> None:
        self.session = Session()

    def handle(self, case: Case) -> str:
        match case.directive:
            case "new":
                self.session = Session()
                return ""
            case "reduce":
                short = reduce([command(words) for words in case.lines()])
                assert reduce(short) == short
                return "\n".join(map(shown, short))
            case "take":
                return "\n".join(self._take(words) for words in case.lines())
            case "as_of":
                return selected(case.lines())
            case _:
                raise AssertionError(f"line {case.line}: unknown directive {case.directive}")

    def _take(self, words: list[str]) -> str:
        said = " ".join(words)
        try:
            self.session, actions = self.session.step(command(words))
        except InvalidUsage as illegal:
            return f"{said}\n    {illegal}"
        return "\n    ".join([said, *map(done, actions)])


def selected(lines: list[list[str]]) -> str:
    """The as_of for a script's bounds, and why."""
    imports, exports, held = [], [], []
    for kind, name, *given in lines:
        if kind == "held":
            held.append(Bound("at least", Timestamp(int(given[0])), f"hold on {name}"))
            continue
        values = dict(word.partition("=")[::2] for word in given)
        since, upper = (_frontier(values[key]) for key in ("since", "upper"))
        interval = ReadableInterval(name, since, upper)
        if kind == "import":
            imports.append(interval)
        else:
            exports.append((interval, Timestamp(int(values["born"]))))
    bounds = newborn(imports)
    for export, born in exports:
        bounds = continued(imports, export, born)
    as_of = select([*bounds, *held])
    unmet = [f"    cannot meet: at least {bound.time}, {bound.why}" for bound in as_of.unmet]
    return "\n".join([f"{as_of.time}: {as_of.decided_by}", *unmet])


def _frontier(text: str) -> Antichain:
    return EMPTY if text == "-" else frontier(int(text))


def command(words: list[str]) -> Command:
    """A command: its short name, its export, and what else there is to say."""
    name, *rest = words
    match name:
        case "timely":
            return CreateTimely(rest[0], 1, values(rest[1:]))
        case "instance":
            return CreateInstance("sw", 2)
        case "update":
            return UpdateConfiguration(values(rest))
        case "create":
            return CreateDataflow(description(rest))
        case "schedule":
            return Schedule(CollectionId(rest[0]))
        case "compact":
            return AllowCompaction(CollectionId(rest[0]), frontier(int(rest[1])))
        case "drop":
            return AllowCompaction(CollectionId(rest[0]), EMPTY)
        case "complete":
            return InitializationComplete()
        case "writes":
            return AllowWrites()
        case _:
            raise AssertionError(f"unknown command {name}")


def values(words: list[str]) -> dict[str, int]:
    """`name=value` words of a configuration."""
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def description(words: list[str]) -> DataflowDescription:
    """A view `u...` or a source `s...`; a plan and a name are words."""
    export, given = words[0], dict(word.partition("=")[::2] for word in words[1:])
    view = replace(
        VIEW,
        export=CollectionId(export),
        as_of=Timestamp(int(given["as_of"])),
        name=given.get("name", ""),
        plan=given.get("plan", ""),
    )
    return view if export.startswith("u") else replace(view, kind="ingestion", source=INGESTION)


def shown(command: Command) -> str:
    match command:
        case CreateTimely(nonce):
            return f"timely {nonce}"
        case UpdateConfiguration(configuration):
            said = (f"{name}={value}" for name, value in configuration.items())
            return " ".join(["update", *said])
        case CreateInstance():
            return "instance"
        case CreateDataflow(described):
            return f"create {of(described)}"
        case Schedule(id):
            return f"schedule {id}"
        case AllowCompaction(id, since):
            return f"drop {id}" if since.is_empty else f"compact {id} {since.time}"
        case InitializationComplete():
            return "complete"
        case AllowWrites():
            return "writes"
        case Peek(uuid=uuid) | CancelPeek(uuid=uuid):
            return f"peek {uuid}"
        case (
            Subscribe(uuid=uuid) | AcknowledgeSubscribe(uuid=uuid) | CancelSubscribe(uuid=uuid)
        ):
            return f"subscribe {uuid}"
        case _:
            assert_never(command)


def of(described: DataflowDescription) -> str:
    named = [
        f"{key}={text}"
        for key, text in (("plan", described.plan), ("name", described.name))
        if text
    ]
    return " ".join([described.export, f"as_of={described.as_of}", *named])


def done(action: Action) -> str:
    match action:
        case Configure():
            return "configures"
        case SetParameters(parameters):
            return f"goes by {dict(differing(parameters))}"
        case ReportParameters(message):
            return f"reports: {message}"
        case Restart(reason):
            return f"restarts: {reason}"
        case Create(described):
            return f"creates {of(described)}"
        case Drop(export, silent):
            return f"drops {export} {'in silence' if silent else 'and reports it'}"
        case Compact(export, since):
            return f"compacts {export} to {since.time}"
        case Reconcile(kept, created, dropped):
            return f"keeps {', '.join(kept) or 'nothing'}, creates {created}, drops {dropped}"
        case _:
            assert_never(action)
