"""The attacker's knowledge of the environment: names, capabilities of its own, real records."""

from dataclasses import dataclass, field, replace
from random import Random

from schemas.materializations import SPECS, STATES
from streams.ids import Topic
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.description import Description, dumps
from streams.torture.hostile.arrow_streams import COLUMNS
from streams.torture.hostile.command_client import Fields
from streams.torture.hostile.forged_records import Pool

DESCRIPTION = dumps(Description(COLUMNS, kind="table"))
RAW_TOPIC = Topic("hostile.raw")
ROWS_TOPIC = Topic("hostile.rows")
KEYED_TOPIC = Topic("hostile.keyed")
TOPICS = (RAW_TOPIC, ROWS_TOPIC, KEYED_TOPIC)
RIGHTS = ("write", "catalog", "reading", "reads.s1", "reads.u1")
WRITE = "WRITE"

SQUATTER = "squatter"
"""Prefix of collections that are created in a reserved group, and in no other."""

RESERVED = (
    *(SPECS, STATES, "materialize.hostile", "materializations.hostile"),
    *(REGISTRY, "id:honest", "s1", "u2", "r9999", "k9999", "e1", "i7", "g2"),
)
"""Names that no client may use for a collection or a group."""


@dataclass(slots=True)
class Victim:
    """A collection that the attacker made: its failures affect no other client."""

    collection: str
    group: str
    read: Fields
    write: Fields

    @property
    def is_spent(self) -> bool:
        """Whether it accepts no more writes: all input to it is refused."""
        return self.write["frontier"] is None


@dataclass(slots=True)
class AttackerKnowledge:
    """Everything that an input may be made from.

    `victims` are written to by commands. To the logs of `spoiled` the attacker appends: such a
    log mostly halts, and commands about it would be refused before they are looked at. `squats`
    are the ids under reserved names that a client was given: each is a defect.
    """

    namespace: str
    others: tuple[str, ...]
    victims: list[Victim] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    compute: list[bytes] = field(default_factory=list)
    spoiled: list[Victim] = field(default_factory=list)
    states: list[bytes] = field(default_factory=list)
    squats: set[str] = field(default_factory=set)

    def topic(self, *names: str) -> Topic:
        """A topic of the environment."""
        return Topic(".".join((self.namespace, *names)))

    def a_victim(self, rng: Random) -> Victim:
        """Any of the attacker's collections."""
        return rng.choice(self.victims)

    def a_spoiled(self, rng: Random) -> Victim:
        """Any of those whose logs the attacker appends to."""
        return rng.choice(self.spoiled)

    def heard(self, response: Fields) -> None:
        """Take the capabilities of a response: the next write begins where they stand."""
        mine = {victim.collection: victim for victim in (*self.victims, *self.spoiled)}
        granted = response["capabilities"]
        assert isinstance(granted, list)
        for capability in granted:
            if capability["name"] and is_squat(capability):
                self.squats.add(str(capability["collection"]))
            victim = mine.get(capability["collection"])
            if victim is not None and capability["right"] == WRITE:
                victim.write = capability
            elif victim is not None:
                victim.read = capability

    def pool_of(self, victim: Victim) -> Pool:
        """Values for the fields of an event, so that it may count in the victim's log."""
        pool = self.pool(names_others=False)
        mine = {"group": [victim.group], "collection": [victim.collection]}
        return replace(pool, named={**pool.named, **mine})

    def pool(self, *, names_others: bool = True) -> Pool:
        """Values for fields; collections of others only if they are to be named."""
        victims = (*self.victims, *self.spoiled)
        mine = [victim.collection for victim in victims]
        collections = [*mine, *(self.others if names_others else ())]
        guessed = [f"{id_}.{right}" for id_ in self.others for right in RIGHTS]
        names = [
            str(right["name"]) for victim in victims for right in (victim.read, victim.write)
        ]
        rights = [*names, *guessed]
        return Pool(
            named={
                "collection": collections,
                "name": rights,
                "capability": rights,
                "write": rights,
                "read": rights,
                "clone": rights,
                "to": rights,
                "owner": rights,
                "group": [*(victim.group for victim in victims), *mine],
                "description": [DESCRIPTION, DESCRIPTION[:-3], "{}", "[" * 5_000],
                "column": ["writer", "number", "time"],
                "operator": ["=", "<>", "<", "<=", ">", ">=", "LIKE"],
                "topic": [str(RAW_TOPIC), "none"],
            },
            texts=(*rights, *collections),
            integers=(0, 1, 10),
        )


def is_squat(capability: Fields) -> bool:
    """Whether it is the right to write under a name that is reserved for the system."""
    collection = str(capability["collection"])
    is_reserved = collection in RESERVED or collection.startswith(SQUATTER)
    return is_reserved and capability["right"] == WRITE
