"""What an attacker knows of the environment: names, capabilities of its own, real records."""

from dataclasses import dataclass, field, replace
from random import Random

from streams.app.torture.hostile.asking import Fields
from streams.app.torture.hostile.forging import Pool
from streams.app.torture.hostile.sheets import COLUMNS
from streams.ids import Topic
from streams.storage.description import Description, dumps

DESCRIPTION = dumps(Description(COLUMNS, kind="table"))
RAW_TOPIC = Topic("hostile.raw")
RIGHTS = ("write", "catalog", "reading", "reads.s1", "reads.u1")


@dataclass(slots=True)
class Victim:
    """A collection that the attacker made: whatever happens to it harms nobody else."""

    collection: str
    group: str
    read: Fields
    write: Fields


@dataclass(slots=True)
class Known:
    """Everything that an input may be made from."""

    namespace: str
    others: tuple[str, ...]
    victims: list[Victim] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    compute: list[bytes] = field(default_factory=list)

    def topic(self, *names: str) -> Topic:
        """A topic of the environment."""
        return Topic(".".join((self.namespace, *names)))

    def a_victim(self, rng: Random) -> Victim:
        """Any of the attacker's collections."""
        return rng.choice(self.victims)

    def pool_of(self, victim: Victim) -> Pool:
        """What fields of an event are filled with, so that it may count in the victim's log."""
        pool = self.pool(names_others=False)
        mine = {"group": [victim.group], "collection": [victim.collection]}
        return replace(pool, named={**pool.named, **mine})

    def pool(self, *, names_others: bool = True) -> Pool:
        """What fields are filled with; collections of others only if they are to be named."""
        mine = [each.collection for each in self.victims]
        collections = [*mine, *(self.others if names_others else ())]
        guessed = [f"{id_}.{right}" for id_ in self.others for right in RIGHTS]
        held = [
            str(right["name"]) for each in self.victims for right in (each.read, each.write)
        ]
        rights = [*held, *guessed]
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
                "group": [*(each.group for each in self.victims), *mine],
                "description": [DESCRIPTION, DESCRIPTION[:-3], "{}", "[" * 5_000],
                "column": ["writer", "number", "time"],
                "operator": ["=", "<>", "<", "<=", ">", ">=", "LIKE"],
                "topic": [str(RAW_TOPIC), "none"],
            },
            texts=(*rights, *collections),
            integers=(0, 1, 10),
        )
