"""Harness of the conformance checks: a subject, its sessions, their transactions."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from connectors.driver import Driver, Stream
from connectors.protocol import arena_codec, messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.protocol.spec_builder import Bind, Collection, FieldSpec, materialization
from schemas import materialize_pb2 as wire
from schemas.consumer_pb2 import Checkpoint
from schemas.flow_pb2 import MaterializationSpec
from schemas.flow_tuple import element

FIRST, LAST = 0, 0xFFFFFFFF
MIDDLE = 0x80000000
ACCOUNTS = Collection(
    name="testing/accounts",
    keys=("branch", "id"),
    columns=(
        FieldSpec(name="branch"),
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="amount", types=("number", "null"), required=False),
    ),
)
Document = Mapping[str, object]
Place = tuple[str, int]

numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A connector, and how a task of it is configured."""

    driver: Driver
    endpoint: Mapping[str, object]
    resource: Callable[[str], Mapping[str, object]]
    """The resource configuration of a table."""
    abandon: Callable[[Stream], None] = lambda stream: stream.channel.close()
    """How a session ends abruptly; a kill -9, if there is a process."""

    def task(self, *tables: str, collection: Collection = ACCOUNTS) -> MaterializationSpec:
        """A task of tables that no check has used; resource paths are the connector's.

        Fields that the connector refuses are not selected.
        """
        number = next(numbers)
        names = [f"{table}_{number}" for table in tables]
        bindings = [
            wire.ValidateRequest.Binding(
                resource_spec_json=json.dumps(self.resource(name)), collection=collection.spec()
            )
            for name in names
        ]
        request = wire.ValidateRequest(
            materialization=f"testing/{number}",
            endpoint_spec_json=json.dumps(self.endpoint),
            bindings=bindings,
        )
        validated = self.driver.validate(request).bindings
        binds = [
            Bind(
                collection=collection,
                resource=self.resource(name),
                path=list(binding.resource_path),
                delta=binding.delta_updates,
                fields=taken(collection, binding),
            )
            for name, binding in zip(names, validated, strict=True)
        ]
        return materialization(f"testing/{number}", self.endpoint, binds)

    def applied(self, *tables: str, collection: Collection = ACCOUNTS) -> MaterializationSpec:
        """Like `task`, and applied as version 1."""
        task = self.task(*tables, collection=collection)
        self.driver.apply(wire.ApplyRequest(materialization=task, version="1"))
        return task

    @property
    def offered(self) -> Extensions:
        """The connector's Spec response."""
        return arena_codec.extensions(self.driver.spec(wire.SpecRequest()).extensions)

    @contextmanager
    def session(
        self,
        task: MaterializationSpec,
        begin: int = FIRST,
        end: int = LAST,
        used: Extensions | None = None,
    ) -> Iterator[Stream]:
        """A session ready for loads; with all extensions that are offered, or those `used`."""
        offered = self.offered
        message = messages.Open(
            materialization=task,
            version="1",
            key_begin=begin,
            key_end=end,
            driver_checkpoint=b"{}",
            extensions=offered if used is None else used,
        )
        with self.driver.open(message, offered) as stream:
            acknowledge(stream)
            yield stream


def taken(collection: Collection, validated: wire.ValidateResponse.Binding) -> list[str]:
    """The fields that a connector takes."""
    refused = {wire.Constraint.FIELD_FORBIDDEN, wire.Constraint.UNSATISFIABLE}
    names = [column.name for column in collection.columns]
    constraints = validated.constraints
    return [
        name for name in names if name in constraints and constraints[name].type not in refused
    ]


def acknowledge(stream: Stream) -> None:
    """If the connector offers it."""
    if stream.session.extensions.acknowledge:
        stream.acknowledge()


def checkpoint(number: int) -> bytes:
    """A Flow checkpoint that says how far one journal was read."""
    source = Checkpoint.Source(read_through=number)
    return Checkpoint(sources={"testing/accounts": source}).SerializeToString()


def account(branch: str, number: int, amount: object) -> Document:
    """A document."""
    return {"branch": branch, "id": number, "amount": amount}


def store(
    stream: Stream,
    documents: Sequence[Document],
    *,
    exists: bool = False,
    deletes: bool = False,
    binding: int = 0,
) -> None:
    """Store documents of one kind."""
    keys = [(element(document["branch"]), element(document["id"])) for document in documents]
    size = len(documents)
    message = messages.Store(
        binding=binding,
        keys=Tuples.of(keys),
        values=Tuples.of([(element(document["amount"]),) for document in documents]),
        documents=[json.dumps(document).encode() for document in documents],
        exists=[exists] * size,
        deletes=[True] * size if deletes else (),
    )
    stream.send(message)


def commit(stream: Stream, number: int) -> None:
    """End the loads, then commit, without stores between."""
    stream.flush(checkpoint(number))
    stream.commit()
    acknowledge(stream)


def write(stream: Stream, number: int, documents: Sequence[Document], **kind: bool) -> None:
    """A transaction of one Store."""
    stream.flush(checkpoint(number))
    store(stream, documents, **kind)
    stream.commit()
    acknowledge(stream)


def load(stream: Stream, places: Sequence[Place], binding: int = 0) -> None:
    """Ask for documents."""
    stream.send(messages.Load(binding, Tuples.of(places)))


def read(stream: Stream, number: int, places: Sequence[Place]) -> list[Document]:
    """The documents at some keys, in the order of the keys; a transaction without stores."""
    load(stream, places)
    documents = flushed(stream, number)
    stream.commit()
    acknowledge(stream)
    return documents


def flushed(stream: Stream, number: int) -> list[Document]:
    """The documents that were asked for, sorted."""
    loaded, _ = stream.flush(checkpoint(number))
    documents: list[Document] = [json.loads(text) for part in loaded for text in part.documents]
    return sorted(
        documents, key=lambda document: (str(document["branch"]), str(document["id"]))
    )


def at(stream: Stream) -> int:
    """The position that the endpoint reports."""
    return number_of(stream.checkpoint)


def number_of(checkpoint: bytes) -> int:
    """The position in a Flow checkpoint."""
    source = Checkpoint.FromString(checkpoint).sources.get("testing/accounts")
    return source.read_through if source is not None else 0


def enter(subject: Subject, task: MaterializationSpec, used: Extensions | None = None) -> None:
    """Open a session, and let it go."""
    with subject.session(task, used=used):
        pass


@contextmanager
def raises(kind: type[Exception], what: str) -> Iterator[None]:
    """Errors: AssertionError if nothing is raised inside."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{what} was taken")
