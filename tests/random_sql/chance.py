"""What decides a random case: numbers that somebody draws, the least being the simplest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Chance:
    """A source of choices.

    `draw` gives a number below its argument. Options stand in order of simplicity, so that
    who draws smaller numbers (hypothesis, when it shrinks) gets simpler cases.
    """

    draw: Callable[[int], int]

    def below(self, bound: int) -> int:
        return self.draw(bound) if bound > 1 else 0

    def pick(self, *options: T) -> T:
        return options[self.below(len(options))]

    def among(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def maybe(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the options, each at most once, in any order."""
        remaining = list(options)
        count = min(len(remaining), least + self.below(most - least + 1))
        return [remaining.pop(self.below(len(remaining))) for _ in range(count)]
