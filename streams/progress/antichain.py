"""An antichain of times: the representation of a frontier F.

    t is beyond F        iff  some f in F has f <= t          (`F.less_equal(t)`)
    F <= G               iff  every g in G is beyond F        (`F.precedes(G)`)
    meet(F, G)           the greatest frontier that precedes both
    join(F, G)           the least frontier that both precede

The times of a timeline are totally ordered, so an antichain has at most one element and the
meet is the minimum; the empty antichain is the greatest frontier of all. The algebra is
written over antichains all the same: partially ordered times are to fit without a change to
the callers.

Source: Murray et al., Naiad (SOSP 2013); the verbs are those of the timely crates.
"""

from collections.abc import Iterable

from streams.ids import Timestamp
from streams.values import value


@value(frozen=True, slots=True)
class Antichain:
    """A set of mutually incomparable times; `EMPTY` when there is none."""

    elements: tuple[Timestamp, ...]

    def __post_init__(self) -> None:
        assert len(self.elements) <= 1, f"not an antichain of ordered times: {self.elements}"

    @property
    def is_empty(self) -> bool:
        """Whether no time is beyond this frontier: it is complete."""
        return not self.elements

    @property
    def time(self) -> Timestamp:
        """The single element. The caller knows that the frontier is not empty."""
        assert self.elements, "the empty frontier has no element"
        return self.elements[0]

    def less_equal(self, time: Timestamp) -> bool:
        """Whether `time` is beyond this frontier, that is, may still appear."""
        for element in self.elements:  # noqa: SIM110  # a generator costs more than the rest
            if element <= time:
                return True
        return False

    def precedes(self, other: "Antichain") -> bool:
        """Whether every time beyond `other` is beyond this frontier too (F <= G)."""
        for element in other.elements:
            for mine in self.elements:  # spelled out: `less_equal` would cost as much again
                if mine <= element:
                    break
            else:
                return False
        return True

    def strictly_precedes(self, other: "Antichain") -> bool:
        """F <= G and F != G: the move from F to G is progress."""
        return self.elements != other.elements and self.precedes(other)

    def meet(self, other: "Antichain") -> "Antichain":
        """The greatest frontier that precedes both."""
        return self if self.precedes(other) else other

    def join(self, other: "Antichain") -> "Antichain":
        """The least frontier that both precede."""
        return other if self.precedes(other) else self

    def __str__(self) -> str:
        return "{" + ", ".join(str(element) for element in self.elements) + "}"


EMPTY = Antichain(())


def frontier(time: Timestamp | int) -> Antichain:
    """The frontier of all times at or after `time`."""
    return Antichain((Timestamp(time),))


def meet_all(frontiers: Iterable[Antichain]) -> Antichain:
    """The meet of many frontiers; EMPTY, the meet's neutral element, when there are none."""
    result = EMPTY
    for frontier_ in frontiers:
        result = result.meet(frontier_)
    return result
