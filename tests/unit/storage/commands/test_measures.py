"""What the service of commands measures of itself."""

from collections import Counter

from tests.support.command_service import DESCRIPTION, World


def test_what_was_answered_is_counted() -> None:
    world = World()
    service = world.service()
    world.send("create", collection="t1", description=DESCRIPTION)
    world.raw(b"no command")
    assert service.measures().answered == {}
    world.run(service)
    measures = service.measures()
    statuses = [response["status"] for response in world.responses()]
    assert measures.answered == Counter(statuses)
    assert sum(measures.answered.values()) == 2
    assert (measures.pending, measures.failures) == (0, 0)
